"""A shard's small columns and counters: everything but its frames."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.utils import files

NAMES = tuple(shard_reader.DTYPES)


class Columns(NamedTuple):
  """A shard without its frames.

  Rows are kept in ring order, without stale ones.

  Attributes:
    suffix: Shard number.
    capacity: Number of rows in the shard's ring.
    add_count: Number of rows added before the dump; the cursor in a final shard.
    action: Integer actions, (rows,).
    reward: Rewards, (rows,); int8 if that is exact, else float32.
    terminal: Booleans, (rows,).
    frame_shape: Shape of an observation.
    frame_dtype: Dtype of an observation.
    sources: Shard files the columns were read from,
      `{file name: {'bytes', 'mtime_ns', 'sha256'}}`.
    digest: SHA-256 of actions, rewards and terminals, in hex.
    truncated: Rows at which an episode was truncated rather than terminated, of a
      shard of whole episodes. Such a shard begins and ends with an episode, and its
      ring is just full. None for a part of a log, whose manifest lists these rows.
  """

  suffix: int
  capacity: int
  add_count: int
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  frame_shape: tuple[int, ...]
  frame_dtype: np.dtype
  sources: Mapping[str, dict[str, Any]]
  digest: str = ''
  truncated: tuple[int, ...] | None = None

  @property
  def prefix(self) -> int:
    """Number of valid rows at the start of the ring."""
    return min(self.add_count, self.capacity)

  @property
  def rows(self) -> int:
    """Number of rows kept.

    The prefix, and in a last shard also the ring's last row, which may precede the
    ring's first in time order (see `stitching.stitch`).
    """
    return self.prefix + (self.add_count < self.capacity and self.suffix > 0)

  def without_rows(self) -> 'Columns':
    """Returns a copy with empty actions, rewards and terminals."""
    empty = np.empty(0)
    return self._replace(action=empty, reward=empty, terminal=empty)


def read(data_dir: str, suffix: int) -> Columns:
  """Reads a shard's counters and small columns.

  Args:
    data_dir: Directory of the shards.
    suffix: Shard number.

  Raises:
    ValueError: If a file is missing, damaged, or not of the format.
  """
  frames = shard_reader.read_headers(data_dir, suffix)['observation']
  arrays: dict[str, Any] = {}
  sources: dict[str, dict[str, Any]] = {}
  for name in (*NAMES, 'add_count', 'invalid_range'):
    path, digest = shard_files.path(data_dir, name, suffix), hashlib.sha256()
    stat = files.stat(path)
    arrays[name] = shard_reader.read_array(path, digest)
    sources[os.path.basename(path)] = {**stat, 'sha256': digest.hexdigest()}
  columns = Columns(
    suffix,
    len(arrays['terminal']),
    int(arrays['add_count']),
    frame_shape=frames.shape[1:],
    frame_dtype=frames.dtype,
    sources=sources,
    **{name: arrays[name] for name in NAMES},
  )
  return compacted(columns)


def compacted(columns: Columns) -> Columns:
  """Returns the rows that are kept of a ring, in the smallest dtypes, and their digest."""
  keep = np.arange(columns.rows)
  keep[columns.prefix :] = columns.capacity - 1
  kept: dict[str, Any] = {
    'action': _narrow(columns.action[keep], np.uint8),
    'reward': _narrow(columns.reward[keep], np.int8),
    'terminal': columns.terminal[keep] != 0,
  }
  content = hashlib.sha256()
  for name, dtype in shard_reader.DTYPES.items():
    content.update(kept[name].astype(dtype).tobytes())
  return columns._replace(**kept, digest=content.hexdigest())


def _narrow(column: np.ndarray, dtype) -> np.ndarray:
  """Returns the column in a smaller dtype, if no value changes."""
  with np.errstate(invalid='ignore'):  # NaN becomes a number, which differs.
    narrow = column.astype(dtype)
  return narrow if np.array_equal(narrow, column) else column
