"""Offline reinforcement learning on the DQN Replay Dataset.

Importing the package changes nothing in the process. The packages of agents, such as
`batch_rl.agents`, prepare it for Dopamine (see `batch_rl.dopamine_compat`).
"""

from typing import TYPE_CHECKING, Any

from batch_rl import dataset

if TYPE_CHECKING:
  from batch_rl.fixed_replay.training import train

__all__ = ['dataset', 'train']
__version__ = '1.0.0'


def __getattr__(name: str) -> Any:
  if name != 'train':
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  from batch_rl.fixed_replay import training

  return training.train
