"""Frames of a run as images, and checks of output paths."""

import os

import numpy as np

from batch_rl.dataset.store import frame_reading, store
from batch_rl.utils import plane_colors


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


def explain_no_images(data: store.Store) -> str | None:
  """Returns one line if a run's observations are not images, else None.

  Images are (height, width), (height, width, 3) in RGB, and (height, width, planes).
  """
  shape, most = data.frame_shape, plane_colors.MOST
  planes = shape[2] if len(shape) == 3 else 1
  if len(shape) in (2, 3) and min(shape[:2]) > 1 and planes <= most:
    return None
  return (
    f'observations of {data.frame_dtype} {shape} are not images: these are (height, '
    f'width) or (height, width, planes) with at most {most} planes.'
  )


def read_images(data: store.Store, rows: np.ndarray) -> np.ndarray:
  """Reads the frames of rows as images.

  Gray levels and RGB stay as they are. Other values are scaled, 0 or the smallest to
  black and the largest to white. Two planes, or more than three, have a colour each.

  Args:
    data: Store of the run.
    rows: int64 (n,), rows of the run, ascending.

  Returns:
    uint8 (n, height, width) or (n, height, width, 3).

  Raises:
    ValueError: If a file is damaged or the frames are not images.
  """
  if reason := explain_no_images(data):
    raise ValueError(f'{data.data_dir}: {reason}')
  frames = frame_reading.read_frames(data, rows)
  if frames.ndim == 3:
    frames = frames[..., None]
  planes = frames.shape[-1]
  is_shown = frames.dtype == np.uint8 and planes in (1, 3)
  if not is_shown or frames.max(initial=0) <= 1:
    # Infinity and NaN become 0.
    values = np.nan_to_num(frames.astype(np.float32), posinf=0, neginf=0)
    low, high = values.min(initial=0), values.max(initial=0)
    scale = 255 / max(high - low, 1e-30)
    frames = ((values - low) * scale).astype(np.uint8)
  if planes == 1:
    return frames[..., 0]
  return frames if planes == 3 else plane_colors.color(frames)
