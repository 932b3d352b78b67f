import shutil

import numpy as np

from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import shard_packing
from batch_rl.tests import shards
from batch_rl.tests.known_runs import open_store

__all__ = ['open_store']
SAMPLE = 'data/Pong/1/replay_logs'


def rows_in(opened):
  """Returns all rows of a store of 2 x 2 frames as `shards.Row`."""
  rows = np.arange(opened.rows)
  columns = opened.action, opened.reward, np.isin(rows, opened.ends)
  return shards.rows_of(opened.frames(rows), *columns)


def copy_shard(directory, old, new, to=None):
  for name in shard_files.FILES:
    target = shard_files.path(to or directory, name, new)
    shutil.copy(shard_files.path(directory, name, old), target)


def before_packing(patch, function):
  """Calls a function with the number of each shard before it is packed."""
  original = shard_packing.pack

  def pack(data_dir, columns, *args, **kwargs):
    function(columns.suffix)
    return original(data_dir, columns, *args, **kwargs)

  patch.setattr(shard_packing, 'pack', pack)


def damage_frames(patch, suffix):
  """Makes packing find the frames of a shard damaged, as opening does not."""

  def find(packed):
    if packed == suffix:
      raise ValueError(f'the frames of shard {suffix} are damaged')

  before_packing(patch, find)
