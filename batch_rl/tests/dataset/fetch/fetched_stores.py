"""Helpers to examine the stores of a small run that is fetched from RL Unplugged."""

import json

from batch_rl.dataset.fetch import unplugged_run
from batch_rl.dataset.store import store_directory
from batch_rl.dataset.unplugged import file_names

# Files of the run, and flags to fetch them.
NAMES = [file_names.format(1, k, 50) for k in range(4)]
FLAGS = ('--layout=unplugged', '--checkpoints=0-3')


def shards(store):
  """Returns the numbers of a complete store's shards."""
  return store_directory.StoreDirectory(str(store)).shards()


def imported_files(store):
  """Returns the names of the files in a store that may be incomplete."""
  manifest = store / 'manifest.json'
  entries = (
    json.loads(manifest.read_text())['shards'] if manifest.exists() else []
  )
  return {name for entry in entries for name in entry['files']}


def raw_files(store):
  """Returns the names in the folder of raw files; [] without the folder."""
  raw = store / unplugged_run.RAW
  return sorted(path.name for path in raw.iterdir()) if raw.exists() else []
