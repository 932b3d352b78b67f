"""Offline reinforcement learning on the DQN Replay Dataset.

Importing this package prepares the Python process for Dopamine's TensorFlow
agents (see `batch_rl.dopamine_compat`), so import it before TensorFlow is used.
It does not import TensorFlow itself.
"""

import os

from batch_rl import dopamine_compat

__version__ = '1.0.0'

dopamine_compat.activate()
# TensorFlow keeps the memory of tensors on a CPU, and uses it again. Else each update
# gets it anew from the system: 6,500 page faults for DQN, a sixth of the time.
os.environ.setdefault('TF_CPU_ALLOCATOR_USE_BFC', 'true')
