"""Offline reinforcement learning on the DQN Replay Dataset.

Importing the package changes nothing in the process. The packages of agents, such as
`batch_rl.agents`, prepare it for Dopamine (see `batch_rl.dopamine_compat`).
"""

from batch_rl import dataset

__all__ = ['dataset']
__version__ = '1.0.0'
