"""Offline reinforcement learning on the DQN Replay Dataset.

Importing the package changes nothing in the process. The packages of agents, such as
`batch_rl.agents`, prepare it for Dopamine (see `batch_rl.dopamine_compat`).
"""

from typing import TYPE_CHECKING

from batch_rl import dataset
from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .fixed_replay.training import TrainedRun, train

__all__ = ['TrainedRun', 'dataset', 'train']
__version__ = '1.0.0'
lazy_exports.install(__name__)
