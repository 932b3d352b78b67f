"""Logged data: shards, stores, batches, checks, and the command-line tools."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from batch_rl.dataset.logged_run import LoggedRun, open
  from batch_rl.dataset.sampling import sampler, sequences, subsets
  from batch_rl.dataset.shards.replay_log import ReplayLog

__all__ = [
  'LoggedRun',
  'ReplayLog',
  'open',
  'sampler',
  'sequences',
  'subsets',
]

# Names that users import from here: `from batch_rl.dataset import ReplayLog, sampler`.
# Imported on first use, because most tools do not need them. Other names are modules.
_MODULE_OF = {
  'LoggedRun': 'batch_rl.dataset.logged_run',
  'ReplayLog': 'batch_rl.dataset.shards.replay_log',
  'open': 'batch_rl.dataset.logged_run',
}


def __getattr__(name: str) -> Any:
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  if name in _MODULE_OF:
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
  return importlib.import_module(f'batch_rl.dataset.sampling.{name}')
