"""Logged data: shards, stores, batches, checks, and the command-line tools."""

import importlib
from typing import Any

# Modules that users import from here: `from batch_rl.dataset import sampler, store`.
# Imported on first use, because most tools do not need them.
_SHORT_NAMES = {
  'sampler': 'batch_rl.dataset.sampling.sampler',
  'subsets': 'batch_rl.dataset.sampling.subsets',
}


def __getattr__(name: str) -> Any:
  if name in _SHORT_NAMES:
    return importlib.import_module(_SHORT_NAMES[name])
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
