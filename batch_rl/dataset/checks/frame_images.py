"""Frames of a run as images, and checks of output paths."""

import os

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset.checks import run_statistics
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import store
from batch_rl.utils import machine, plane_colors, threads


def check_output(path: str, endings: tuple[str, ...]) -> None:
  """Validates the path of an output file.

  Raises:
    ValueError: If the file name has none of the endings, or the folder is missing.
  """
  if os.path.splitext(path)[1].lower() not in endings:
    raise ValueError(
      f'{path or "An empty name"} does not end in {", ".join(endings[:-1])} or {endings[-1]}.'
    )
  folder = os.path.dirname(path) or '.'
  if not os.path.isdir(folder):
    raise ValueError(f'{path} cannot be written: there is no folder {folder}.')
  if os.path.isdir(path):
    raise ValueError(f'{path} is a directory; choose another file name.')


def explain_no_images(
  statistics: run_statistics.RunStatistics,
) -> str | None:
  """Returns one line if a run's observations are not images, else None.

  Images are (height, width), (height, width, 3) in RGB, and (height, width, planes).
  """
  shape, dtype = statistics.frame_shape, statistics.frame_dtype
  planes = shape[2] if len(shape) == 3 else 1
  if (
    len(shape) in (2, 3) and min(shape[:2]) > 1 and planes <= plane_colors.MOST
  ):
    return None
  return (
    f'observations of {dtype} {shape} are not images: these are (height, width) or '
    f'(height, width, planes) with at most {plane_colors.MOST} planes.'
  )


def read_images(
  statistics: run_statistics.RunStatistics, rows: np.ndarray
) -> np.ndarray:
  """Reads the frames of rows as images.

  Gray levels and RGB stay as they are. Other values are scaled, 0 or the smallest to
  black and the largest to white. Two planes, or more than three, have a colour each.

  Args:
    statistics: Statistics of the run.
    rows: int64 (n,), rows of the run, ascending.

  Returns:
    uint8 (n, height, width) or (n, height, width, 3).

  Raises:
    ValueError: If a file is damaged or the frames are not images.
  """
  if reason := explain_no_images(statistics):
    raise ValueError(f'{statistics.run.directory}: {reason}')
  frames = read_frames(statistics, rows)
  if frames.ndim == 3:
    frames = frames[..., None]
  planes = frames.shape[-1]
  if (
    frames.dtype != np.uint8
    or planes not in (1, 3)
    or frames.max(initial=0) <= 1
  ):
    frames = _as_gray_levels(frames)
  if planes == 1:
    return frames[..., 0]
  return frames if planes == 3 else plane_colors.color(frames)


def _as_gray_levels(frames: np.ndarray) -> np.ndarray:
  """Scales values to uint8; infinity and NaN become 0."""
  values = np.nan_to_num(frames.astype(np.float32), posinf=0, neginf=0)
  low, high = values.min(initial=0), values.max(initial=0)
  return ((values - low) * (255 / max(high - low, 1e-30))).astype(np.uint8)


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
  parts = np.searchsorted(rows, statistics.starts)
  jobs = [i for i, count in enumerate(np.diff(parts)) if count]
  bar = tqdm.tqdm(unit='frame', unit_scale=True, disable=None, leave=False)

  def read(i: int) -> None:
    """Reads the frames of shard i."""
    placement, part = statistics.placements[i], slice(parts[i], parts[i + 1])
    local = placement.start + rows[part] - statistics.starts[i]
    ring, target = local % placement.capacity, out[part]
    name = shard_files.file_name('observation', placement.suffix)
    path = os.path.join(run.data_dir, name)
    for start, chunk in shard_reader.iterate_rows(path, int(ring.max()) + 1):
      inside = (ring >= start) & (ring < start + len(chunk))
      target[inside] = chunk[ring[inside] - start]
      bar.update(len(chunk))

  with bar:
    threads.parallel_map(read, jobs, machine.num_cpus())
  return out
