"""Offline reinforcement learning on the DQN Replay Dataset.

Importing this package prepares the process for Dopamine's TensorFlow agents (see
`batch_rl.dopamine_compat`), so import it before TensorFlow is used. It does not
import TensorFlow itself.
"""

from batch_rl import dataset, dopamine_compat
from batch_rl.utils import programs

__all__ = ['dataset', 'dopamine_compat']
__version__ = '1.0.0'

programs.open_closed_streams()
dopamine_compat.activate()
