"""Helpers to request runs, and to compare fetched files with the originals."""

import pathlib

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.unplugged import file_names

# Path of the tests' run, relative to the dataset's root.
RUN = 'Pong/1/replay_logs'
# Frames of shard 1, the file that tests damage or withhold.
FRAMES = shard_files.file_name('observation', 1)

# Files of RL Unplugged's run, and flags to fetch them.
NAMES = [file_names.format(1, k, 50) for k in range(4)]
FLAGS = ('--layout=unplugged', '--checkpoints=0-3')


def contents(folder, suffixes=None):
  """Returns the bytes of shard files by name."""
  return {
    path.name: path.read_bytes()
    for path in pathlib.Path(folder).glob('*_ckpt.*')
    if suffixes is None or shard_files.suffix_of(path.name) in suffixes
  }


def assert_complete(root, data_dir, suffixes=None):
  """Asserts that all files were fetched, and nothing else is left."""
  assert contents(data_dir) == contents(root / RUN, suffixes)
  assert not (data_dir / 'partial').exists()
  assert not run_checks.verify(str(data_dir)).problems
