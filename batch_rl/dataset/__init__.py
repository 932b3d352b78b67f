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
# Imported on first use, because most tools do not need them.
_MODULES = {
  'sampler': 'batch_rl.dataset.sampling.sampler',
  'sequences': 'batch_rl.dataset.sampling.sequences',
  'subsets': 'batch_rl.dataset.sampling.subsets',
}
_OBJECTS = {
  'LoggedRun': 'batch_rl.dataset.logged_run',
  'ReplayLog': 'batch_rl.dataset.shards.replay_log',
  'open': 'batch_rl.dataset.logged_run',
}


def __getattr__(name: str) -> Any:
  if name in _MODULES:
    return importlib.import_module(_MODULES[name])
  if name in _OBJECTS:
    return getattr(importlib.import_module(_OBJECTS[name]), name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
