"""Videos of episodes, as GIF or MP4."""

import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

from batch_rl.dataset.checks import frame_images, run_statistics

_ENDINGS = ('.gif', '.mp4')
_SCALE = 3
# Episodes are enlarged to about this height or width in pixels, at least by _SCALE.
_PIXELS = 252
# A step is four frames of a game that shows 60 a second.
_STEPS_PER_SECOND = 15


def check_output(path: str) -> None:
  """Validates the path of a video, before the slow work.

  Raises:
    ValueError: If the file name does not end in .gif or .mp4, or the folder is missing.
  """
  frame_images.check_output(path, _ENDINGS)


def choose_episode(
  statistics: run_statistics.RunStatistics, number: int | None
) -> int:
  """Returns the number of the episode to show.

  Args:
    statistics: Statistics of the run.
    number: Number of a complete episode; None for the one with the highest return in
      the last shard that has one.

  Raises:
    ValueError: If there is no such episode.
  """
  directory, count = statistics.run.directory, len(statistics.last)
  if not count:
    raise ValueError(f'{directory} has no complete episode.')
  if number is None:
    candidates = np.flatnonzero(statistics.ends_in == statistics.ends_in[-1])
    return int(candidates[np.argmax(statistics.returns[candidates])])
  if not 0 <= number < count:
    raise ValueError(
      f'There is no episode {number}: {directory} has {count} complete episodes, '
      f'0 to {count - 1}.'
    )
  if not statistics.lengths[number]:
    raise ValueError(f'Episode {number} of {directory} has no steps.')
  return number


def write_episode(
  statistics: run_statistics.RunStatistics, number: int, path: str
) -> None:
  """Writes a video of an episode, enlarged at least three times.

  Args:
    statistics: Statistics of the run.
    number: Number of a complete episode (see `choose_episode`).
    path: Output file, .gif or .mp4.

  Raises:
    ValueError: If frames cannot be read or are not images, or the file cannot be
      encoded.
  """
  rows = np.arange(statistics.first[number], statistics.last[number] + 1)
  images = frame_images.read_images(statistics.data, rows)
  write_images(images, path, max(_SCALE, _PIXELS // max(images.shape[1:3])))


def write_images(
  images: Iterable[np.ndarray], path: str, scale: int = _SCALE
) -> None:
  """Writes a video with 15 images a second.

  Args:
    images: uint8 images, each (height, width) or (height, width, 3) in RGB.
    path: Output file, .gif or .mp4.
    scale: Factor by which images are enlarged.

  Raises:
    ValueError: If the file cannot be encoded.
  """
  name, ending = os.path.splitext(path)
  partial = f'{name}.{os.getpid()}.partial{ending}'
  write = _write_gif if ending.lower() == '.gif' else _write_mp4
  large = (image.repeat(scale, 0).repeat(scale, 1) for image in images)
  try:
    write(partial, large)
    os.replace(partial, path)
  finally:
    pathlib.Path(partial).unlink(missing_ok=True)


def _write_gif(path: str, images: Iterator[np.ndarray]) -> None:
  from PIL import Image

  first, *rest = (Image.fromarray(image) for image in images)
  # GIF counts hundredths of a second; loop=0 repeats forever.
  duration = round(100 / _STEPS_PER_SECOND) * 10
  first.save(path, save_all=True, append_images=rest, duration=duration, loop=0)


def _write_mp4(path: str, images: Iterator[np.ndarray]) -> None:
  import cv2

  first = next(images)
  height, width = first.shape[:2]
  fourcc = cv2.VideoWriter.fourcc(*'mp4v')
  writer, size = cv2.VideoWriter(), (width, height)
  # OpenCV crashes if a path is not Unicode.
  is_unicode = path == path.encode(errors='ignore').decode()
  if not is_unicode or not writer.open(path, fourcc, _STEPS_PER_SECOND, size):
    raise ValueError(f'OpenCV cannot write {path} here; choose a .gif.')
  for image in itertools.chain([first], images):
    color = cv2.COLOR_GRAY2BGR if image.ndim == 2 else cv2.COLOR_RGB2BGR
    writer.write(cv2.cvtColor(image, color))
  writer.release()
  # OpenCV reports no error, e.g. of a full disk.
  if not cv2.VideoCapture(path).isOpened():
    raise ValueError(f'{path} cannot be written; is the disk full?')
