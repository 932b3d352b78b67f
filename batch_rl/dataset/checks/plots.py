"""Pictures of a run: a plot, and a video of an episode."""

import concurrent.futures
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset.checks import inspection
from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.dataset.store import store
from batch_rl.utils import machine

VIDEO_ENDINGS = ('.gif', '.mp4')
_SCALE = 3
# A step is four frames of a game that shows 60 a second.
_STEPS_PER_SECOND = 15
_SHEET = (3, 8)
# From the start of a shard: what is further takes seconds to unpack.
_SHEET_REACH = 50_000
_COLOR, _ACCENT = '#3465a4', '#cc5500'


def check_output(path: str, endings: tuple[str, ...]) -> None:
  """Refuses a file that could not be written, before hours of work.

  Raises:
    ValueError: if the ending is none of those, or there is no such folder.
  """
  if os.path.splitext(path)[1].lower() not in endings:
    raise ValueError(
      f'{path} does not end in {", ".join(endings[:-1])} or {endings[-1]}.'
    )
  folder = os.path.dirname(path) or '.'
  if not os.path.isdir(folder):
    raise ValueError(f'{path} cannot be written: there is no folder {folder}.')


def plot_endings() -> tuple[str, ...]:
  """Endings of the files that `plot` can write.

  Raises:
    ValueError: if Matplotlib is not installed.
  """
  backend = _matplotlib()[1]
  return tuple(f'.{name}' for name in sorted(backend.filetypes))


def _matplotlib() -> tuple[Any, Any]:
  """Its figure class and the canvas that needs no display."""
  try:
    from matplotlib import figure
    from matplotlib.backends import backend_agg
  except ImportError:
    raise ValueError(
      '--plot needs Matplotlib: pip install matplotlib.'
    ) from None
  return figure.Figure, backend_agg.FigureCanvasAgg


def choose_episode(found: inspection.Inspection, number: int | None) -> int:
  """The number of an episode, checked; the best of the last shard if None.

  Raises:
    ValueError: if there is no such episode.
  """
  episodes = found.episodes
  count = len(episodes.last)
  if number is None:
    if not count:
      raise ValueError(f'{found.run.directory} has no whole episode.')
    candidates = np.flatnonzero(episodes.suffix == episodes.suffix[-1])
    return int(candidates[np.argmax(episodes.returns[candidates])])
  if not 0 <= number < count:
    raise ValueError(
      f'There is no episode {number}: {found.run.directory} has {count} whole '
      f'ones, 0 to {count - 1}.'
      if count
      else f'{found.run.directory} has no whole episode.'
    )
  return number


def read_frames(found: inspection.Inspection, rows: np.ndarray) -> np.ndarray:
  """Reads frames, each shard only as far as needed, with all cores.

  Args:
    found: the run.
    rows: int64 (n,), ascending, numbered through the run.

  Returns:
    (n, ...), of the run's frame shape and dtype.

  Raises:
    ValueError: if a file is damaged.
  """
  if found.run.is_store:
    return store.Store(found.run.logs, pack=False).frames(rows)
  out = np.empty((len(rows), *found.frame_shape), found.frame_dtype)
  jobs = []
  for i, placement in enumerate(found.placements):
    begin, end = np.searchsorted(rows, found.starts[i : i + 2])
    if begin < end:
      local = placement.start + rows[begin:end] - found.starts[i]
      jobs.append((placement, local % placement.capacity, out[begin:end]))
  total = sum(int(ring.max()) + 1 for _, ring, _ in jobs)
  bar = tqdm.tqdm(
    total=total, unit='frame', unit_scale=True, disable=None, leave=False
  )

  def read(job):
    placement, ring, target = job
    for count in _copy_frames(found.run.logs, placement, ring, target):
      bar.update(count)

  with bar, concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
    list(pool.map(read, jobs))
  return out


def _copy_frames(
  logs: str,
  placement: stitching.Placement,
  ring: np.ndarray,
  target: np.ndarray,
) -> Iterator[int]:
  """Fills `target` with rows of a ring; yields how many were passed."""
  name = shard_files.file_name('observation', placement.suffix)
  path = os.path.join(logs, name)
  for start, chunk in shard_reader.iterate_rows(path, int(ring.max()) + 1):
    inside = (ring >= start) & (ring < start + len(chunk))
    target[inside] = chunk[ring[inside] - start]
    yield len(chunk)


def _as_images(frames: np.ndarray) -> np.ndarray:
  """Frames as pictures, uint8 (n, height, width) or (n, height, width, 3).

  Raises:
    ValueError: if they are no pictures.
  """
  shape = frames.shape[1:]
  if frames.dtype == np.uint8:
    if len(shape) == 3 and shape[-1] == 1:
      return frames[..., 0]
    if len(shape) == 2 or (len(shape) == 3 and shape[-1] == 3):
      return frames
  raise ValueError(
    f'Observations of {frames.dtype} {shape} are no pictures: uint8 (height, '
    'width) or (height, width, 3).'
  )


def write_video(found: inspection.Inspection, number: int, path: str) -> None:
  """Writes the frames of an episode, three times their size.

  Args:
    found: the run.
    number: of the episode, among the whole ones (`choose_episode`).
    path: a file that ends in one of `VIDEO_ENDINGS`.

  Raises:
    ValueError: if the frames cannot be read or are no pictures, or what writes
      the file is not there.
  """
  first = found.episodes.first[number] + found.padding
  rows = np.arange(first, found.episodes.last[number] + 1)
  images = _as_images(read_frames(found, rows))
  write_images(images, path)


def write_images(
  images: Iterable[np.ndarray], path: str, scale: int = _SCALE
) -> None:
  """Writes a video of 15 images a second, enlarged.

  Args:
    images: uint8, each (height, width), or (height, width, 3) in RGB.
    path: a file that ends in one of `VIDEO_ENDINGS`.
    scale: how many times their size.

  Raises:
    ValueError: if what writes the file is not there.
  """
  write = _write_gif if path.lower().endswith('.gif') else _write_mp4
  write(
    path,
    (image.repeat(scale, axis=0).repeat(scale, axis=1) for image in images),
  )


def _write_gif(path: str, images: Iterator[np.ndarray]) -> None:
  try:
    from PIL import Image
  except ImportError:
    raise ValueError('A .gif needs Pillow: pip install pillow.') from None
  first, *rest = (Image.fromarray(image) for image in images)
  # GIF knows hundredths of a second; 0 repeats for ever.
  duration = round(100 / _STEPS_PER_SECOND) * 10
  first.save(path, save_all=True, append_images=rest, duration=duration, loop=0)


def _write_mp4(path: str, images: Iterator[np.ndarray]) -> None:
  import cv2

  first = next(images)
  height, width = first.shape[:2]
  fourcc = cv2.VideoWriter.fourcc(*'mp4v')
  writer = cv2.VideoWriter(path, fourcc, _STEPS_PER_SECOND, (width, height))
  if not writer.isOpened():
    raise ValueError(f'OpenCV cannot write {path} here; choose a .gif.')
  for image in itertools.chain([first], images):
    color = cv2.COLOR_GRAY2BGR if image.ndim == 2 else cv2.COLOR_RGB2BGR
    writer.write(cv2.cvtColor(image, color))
  writer.release()


def choose_sheet_rows(found: inspection.Inspection) -> np.ndarray:
  """Rows for the contact sheet, spread over the run, none of them padding.

  Returns:
    int64 (n,), ascending; n is at most the cells of the sheet.
  """
  cells = _SHEET[0] * _SHEET[1]
  count = len(found.placements)
  if not found.starts[-1]:
    return np.empty(0, np.int64)
  # Every cell a shard, and so far into it as the cell is among those of it.
  at = (np.arange(cells) + 0.5) * count / cells
  shards = at.astype(np.int64)
  reach = np.minimum(np.diff(found.starts), _SHEET_REACH)[shards]
  rows = found.starts[shards] + ((at - shards) * reach).astype(np.int64)
  starts = np.concatenate([[-found.padding], found.episodes.starts])
  into = rows - starts[np.searchsorted(starts, rows, 'right') - 1]
  rows += np.maximum(found.padding - into, 0)
  return np.unique(rows[rows < found.starts[-1]])


def plot(found: inspection.Inspection, path: str) -> None:
  """Draws returns, episode lengths, actions and frames of a run into one file.

  Args:
    found: the run.
    path: a file that ends in one of `plot_endings`.

  Raises:
    ValueError: if Matplotlib is not installed, frames are no pictures, or a file
      is damaged.
  """
  figure_class, canvas = _matplotlib()
  rows = choose_sheet_rows(found)
  images = _as_images(read_frames(found, rows))
  figure = figure_class(figsize=(12, 10.5), layout='constrained')
  canvas(figure)
  totals = found.totals()
  agent = f', {agent}' if (agent := found.manifest.get('agent')) else ''
  figure.suptitle(
    f'{found.game}, run {found.run.name}{agent}: {totals["agent_steps"]:,} '
    f'agent steps, {totals["episodes"]:,} episodes',
    fontsize=14,
  )
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  top, bottom = figure.subfigures(2, 1, height_ratios=(5.5, 4.8))
  grid = top.add_gridspec(2, 2)
  _plot_returns(found, top.add_subplot(grid[0, :]))
  _plot_lengths(found, top.add_subplot(grid[1, 0]))
  _plot_actions(found, top.add_subplot(grid[1, 1]))
  _plot_sheet(found, bottom, rows, images)
  figure.savefig(path, dpi=110)


def _plot_returns(found: inspection.Inspection, axes: Any) -> None:
  episodes = found.episodes
  x = np.unique(episodes.suffix)
  returns = [episodes.returns[episodes.suffix == suffix] for suffix in x]
  spreads = (('all episodes', 0, 100, 0.15), ('middle half', 25, 75, 0.3))
  for label, low, high, alpha in spreads:
    bottom = np.array([np.percentile(r, low) for r in returns])
    top = np.array([np.percentile(r, high) for r in returns])
    axes.bar(
      x, top - bottom, 0.7, bottom, color=_COLOR, alpha=alpha, label=label
    )
  means = [r.mean() for r in returns]
  axes.plot(x, means, 'o-', color=_ACCENT, ms=4, lw=1.2, label='mean')
  axes.set(ylabel='return', xlabel='shard')
  axes.set_title('Return of the episodes that end in a shard', loc='left')
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.use_sticky_edges = False
  axes.margins(x=0.01)
  axes.legend(
    frameon=False,
    fontsize='small',
    ncols=3,
    loc='lower right',
    bbox_to_anchor=(1, 1),
  )
  _decorate(axes)


def _plot_lengths(found: inspection.Inspection, axes: Any) -> None:
  axes.hist(found.lengths, bins=30, color=_COLOR, edgecolor='white', lw=0.5)
  if len(found.lengths):
    median = float(np.median(found.lengths))
    axes.axvline(median, color=_ACCENT, label=f'median {median:,.0f}')
    axes.legend(frameon=False, fontsize='small')
  axes.yaxis.get_major_locator().set_params(integer=True)
  axes.set(xlabel='agent steps', ylabel='episodes')
  axes.set_title('Length of episodes', loc='left')
  _decorate(axes)


def _plot_actions(found: inspection.Inspection, axes: Any) -> None:
  share = 100 * found.actions / max(found.actions.sum(), 1)
  bars = axes.bar(range(len(share)), share, color=_COLOR, width=0.75)
  if len(share) <= 18:
    axes.set_xticks(range(len(share)))
    axes.bar_label(bars, fmt='%.1f', fontsize='x-small', padding=1)
  axes.set(xlabel='action', ylabel='% of agent steps')
  axes.set_title('Actions', loc='left')
  _decorate(axes)


def _plot_sheet(
  found: inspection.Inspection,
  figure: Any,
  rows: np.ndarray,
  images: np.ndarray,
) -> None:
  cells = figure.subplots(*_SHEET, squeeze=False).ravel()
  for axes in cells:
    axes.axis('off')
  shards = np.searchsorted(found.starts, rows, 'right') - 1
  for axes, row, image, i in zip(cells, rows, images, shards, strict=False):
    axes.imshow(image, cmap='gray', vmin=0, vmax=255)
    axes.set_title(
      f'shard {found.placements[i].suffix}, row {row:,}',
      fontsize='x-small',
      pad=2,
    )


def _decorate(axes: Any) -> None:
  axes.grid(alpha=0.3)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
