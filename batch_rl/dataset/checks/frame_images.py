"""Frames of a run as images, and checks of output paths."""

import concurrent.futures
import os
from collections.abc import Iterator

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset.checks import run_statistics
from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.dataset.store import store
from batch_rl.utils import machine


def check_output(path: str, endings: tuple[str, ...]) -> None:
  """Validates the path of an output file.

  Raises:
    ValueError: If the file name has none of the endings, or the folder is missing.
  """
  if os.path.splitext(path)[1].lower() not in endings:
    raise ValueError(
      f'{path} does not end in {", ".join(endings[:-1])} or {endings[-1]}.'
    )
  folder = os.path.dirname(path) or '.'
  if not os.path.isdir(folder):
    raise ValueError(f'{path} cannot be written: there is no folder {folder}.')


def read_images(
  statistics: run_statistics.RunStatistics, rows: np.ndarray
) -> np.ndarray:
  """Reads the frames of rows as images.

  Args:
    statistics: Statistics of the run.
    rows: int64 (n,), rows of the run, ascending.

  Returns:
    uint8 (n, height, width) or (n, height, width, 3).

  Raises:
    ValueError: If a file is damaged or the frames are not images.
  """
  frames = read_frames(statistics, rows)
  shape = frames.shape[1:]
  if frames.dtype == np.uint8:
    if len(shape) == 3 and shape[-1] == 1:
      return frames[..., 0]
    if len(shape) == 2 or (len(shape) == 3 and shape[-1] == 3):
      return frames
  raise ValueError(
    f'Observations of {frames.dtype} {shape} are not images, which are uint8 '
    '(height, width) or (height, width, 3).'
  )


def read_frames(
  statistics: run_statistics.RunStatistics, rows: np.ndarray
) -> np.ndarray:
  """Reads frames on all processors, each shard only as far as needed.

  Args:
    statistics: Statistics of the run.
    rows: int64 (n,), rows of the run, ascending.

  Returns:
    Frames (n, *frame_shape), in the run's dtype.

  Raises:
    ValueError: If a file is damaged.
  """
  run = statistics.run
  if run.is_store:
    return store.Store(run.data_dir, pack=False).frames(rows)
  out = np.empty((len(rows), *statistics.frame_shape), statistics.frame_dtype)
  jobs = []
  for i, placement in enumerate(statistics.placements):
    begin, end = np.searchsorted(rows, statistics.starts[i : i + 2])
    if begin < end:
      local = placement.start + rows[begin:end] - statistics.starts[i]
      jobs.append((placement, local % placement.capacity, out[begin:end]))
  total = sum(int(ring.max()) + 1 for _, ring, _ in jobs)
  bar = tqdm.tqdm(
    total=total, unit='frame', unit_scale=True, disable=None, leave=False
  )

  def read(job):
    placement, ring, target = job
    for count in _copy_frames(run.data_dir, placement, ring, target):
      bar.update(count)

  with bar, concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
    list(pool.map(read, jobs))
  return out


def _copy_frames(
  data_dir: str,
  placement: stitching.Placement,
  ring: np.ndarray,
  target: np.ndarray,
) -> Iterator[int]:
  """Copies ring positions to `target`; yields the number of frames passed."""
  name = shard_files.file_name('observation', placement.suffix)
  path = os.path.join(data_dir, name)
  for start, chunk in shard_reader.iterate_rows(path, int(ring.max()) + 1):
    inside = (ring >= start) & (ring < start + len(chunk))
    target[inside] = chunk[ring[inside] - start]
    yield len(chunk)
