"""Reads frames of a run, of packed shards from their blocks and of others from files."""

from collections.abc import Iterator

import numpy as np

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import frame_blocks
from batch_rl.utils import machine, threads

# Rows decoded at a time: some 0.8 MB. Arrays of 2 MB are new pages of memory each
# time, which takes longer than decoding.
_CHUNK_ROWS = 120


def read_frames(run: frame_blocks.RunFrames, rows: np.ndarray) -> np.ndarray:
  """Reads frames on all processors, each file only as far as needed.

  Args:
    run: Run with the frames.
    rows: int64 (n,), rows of the run, ascending.

  Returns:
    Frames (n, *frame_shape), in the run's dtype.

  Raises:
    ValueError: If a file is damaged.
  """
  shard, ring = run.ring_of(rows)
  needed = np.unique(shard).tolist()
  if {run.suffixes[i] for i in needed} <= {*run.packed}:
    return run.frames(rows)
  out = np.empty((len(rows), *run.frame_shape), run.frame_dtype)

  def read(i: int) -> None:
    """Reads the frames of shard i."""
    last = int(ring[shard == i].max())
    for found, frames in iterate_frames(run, run.suffixes[i], last + 1):
      wanted = np.isin(found, rows)
      out[np.searchsorted(rows, found[wanted])] = frames[wanted]

  threads.parallel_map(read, needed, machine.num_cpus())
  return out


def iterate_frames(
  run: frame_blocks.RunFrames, suffix: int, ring_rows: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields the rows of a shard and their frames, some at a time.

  Args:
    run: Run with the frames.
    suffix: Number of the shard.
    ring_rows: Number of rows to read from the start of the ring, if the shard is not
      packed; None reads and verifies the whole file.

  Yields:
    Rows of the run int64 (n,), and their frames (n, *frame_shape).

  Raises:
    ValueError: If a file is damaged.
  """
  if suffix in run.packed:
    start, stop = run.shard_rows[suffix]
    for first in range(start, stop, _CHUNK_ROWS):
      rows = np.arange(first, min(first + _CHUNK_ROWS, stop))
      yield rows, run.frames(rows)
    return
  path = shard_files.path(run.data_dir, 'observation', suffix)
  for start, frames in shard_reader.iterate_rows(path, ring_rows):
    rows = run.rows_of(suffix, np.arange(start, start + len(frames)))
    kept = rows >= 0  # Not the stale ones.
    yield rows[kept], frames if kept.all() else frames[kept]
