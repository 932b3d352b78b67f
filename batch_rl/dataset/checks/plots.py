"""A plot of a run: returns, episode lengths, actions and a contact sheet of frames."""

import io
import os
from typing import Any

import numpy as np

from batch_rl.dataset.checks import frame_images, run_statistics
from batch_rl.utils import files, programs

# Rows and columns of the contact sheet.
_SHEET = (3, 8)
# Frames come from the start of a shard, because later ones take seconds to decompress.
_SHEET_REACH = 50_000
_COLOR, _ACCENT = '#3465a4', '#cc5500'


def check_output(path: str) -> None:
  """Validates the path of a plot, before the slow work.

  Raises:
    ValueError: If Matplotlib is not installed or does not support the file name's
      ending, or the folder is missing.
  """
  formats = sorted(_matplotlib()[1].filetypes)
  frame_images.check_output(path, tuple(f'.{name}' for name in formats))


def _matplotlib() -> tuple[Any, Any]:
  """Returns Matplotlib's figure class and its canvas without a display."""
  try:
    from matplotlib import figure
    from matplotlib.backends import backend_agg
  except ImportError:
    raise ValueError(
      '--plot needs Matplotlib: pip install matplotlib.'
    ) from None
  return figure.Figure, backend_agg.FigureCanvasAgg


def choose_sheet_rows(statistics: run_statistics.RunStatistics) -> np.ndarray:
  """Chooses rows for the contact sheet: spread over the run, without padding.

  Returns:
    int64 (n,), ascending; n is at most the number of cells.
  """
  cells = _SHEET[0] * _SHEET[1]
  count = len(statistics.placements)
  if not statistics.starts[-1]:
    return np.empty(0, np.int64)
  # Cells are spaced evenly over the shards, and within each shard over its rows.
  position = (np.arange(cells) + 0.5) * count / cells
  shards = position.astype(np.int64)
  reach = np.minimum(np.diff(statistics.starts), _SHEET_REACH)[shards]
  rows = statistics.starts[shards] + ((position - shards) * reach).astype(
    np.int64
  )
  while (is_padding := np.isin(rows, statistics.padding)).any():
    rows += is_padding
  return np.unique(rows[rows < statistics.starts[-1]])


def plot(statistics: run_statistics.RunStatistics, path: str) -> None:
  """Plots returns, episode lengths, actions and frames of a run to one file.

  Without frames if these are not images (see `frame_images.explain_no_images`).

  Args:
    statistics: Statistics of the run.
    path: Output file, in a format of Matplotlib.

  Raises:
    ValueError: If Matplotlib is not installed or a file is damaged.
  """
  figure_class, canvas = _matplotlib()
  with_frames = frame_images.explain_no_images(statistics) is None
  height = 10.5 if with_frames else 5.9
  figure = figure_class(figsize=(12, height), layout='constrained')
  canvas(figure)
  totals = statistics.totals()
  agent = f', {agent}' if (agent := statistics.manifest.get('agent')) else ''
  title = (
    f'{statistics.game}, run {statistics.run.name}{agent}: {totals["agent_steps"]:,} '
    f'agent steps, {totals["episodes"]:,} episodes'
  )
  figure.suptitle(programs.printable(title), fontsize=14, parse_math=False)
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  top = figure
  if with_frames:
    top, bottom = figure.subfigures(2, 1, height_ratios=(5.5, 4.8))
    _plot_sheet(statistics, bottom)
  grid = top.add_gridspec(2, 2)
  _plot_returns(statistics, top.add_subplot(grid[0, :]))
  _plot_lengths(statistics, top.add_subplot(grid[1, 0]))
  _plot_actions(statistics, top.add_subplot(grid[1, 1]))
  content, ending = io.BytesIO(), os.path.splitext(path)[1]
  figure.savefig(content, format=ending[1:].lower(), dpi=110)
  files.write_bytes(path, content.getvalue())


def _plot_returns(statistics: run_statistics.RunStatistics, axes: Any) -> None:
  episodes = statistics.episodes
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
  axes.set_title('Returns by the shard in which episodes end', loc='left')
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


def _plot_lengths(statistics: run_statistics.RunStatistics, axes: Any) -> None:
  axes.hist(
    statistics.lengths, bins=30, color=_COLOR, edgecolor='white', lw=0.5
  )
  if len(statistics.lengths):
    median = float(np.median(statistics.lengths))
    axes.axvline(median, color=_ACCENT, label=f'median {median:,.0f}')
    axes.legend(frameon=False, fontsize='small')
  axes.yaxis.get_major_locator().set_params(integer=True)
  axes.set(xlabel='agent steps', ylabel='episodes')
  axes.set_title('Episode lengths', loc='left')
  _decorate(axes)


def _plot_actions(statistics: run_statistics.RunStatistics, axes: Any) -> None:
  share = 100 * statistics.actions / max(statistics.actions.sum(), 1)
  bars = axes.bar(range(len(share)), share, color=_COLOR, width=0.75)
  if len(share) <= 18:
    axes.set_xticks(range(len(share)))
    axes.bar_label(bars, fmt='%.1f', fontsize='x-small', padding=1)
  axes.set(xlabel='action', ylabel='% of agent steps')
  axes.set_title('Actions', loc='left')
  _decorate(axes)


def _plot_sheet(statistics: run_statistics.RunStatistics, figure: Any) -> None:
  rows = choose_sheet_rows(statistics)
  images = frame_images.read_images(statistics, rows)
  # Empty lists of ticks are faster than invisible ticks.
  no_ticks: dict[str, Any] = {'xticks': [], 'yticks': []}
  cells = figure.subplots(*_SHEET, squeeze=False, subplot_kw=no_ticks).ravel()
  for axes in cells:
    axes.axis('off')
  shards = np.searchsorted(statistics.starts, rows, 'right') - 1
  for axes, row, image, i in zip(cells, rows, images, shards, strict=False):
    axes.imshow(image, cmap='gray', vmin=0, vmax=255)
    axes.set_title(
      f'shard {statistics.placements[i].suffix}, row {row:,}',
      fontsize='x-small',
      pad=2,
    )


def _decorate(axes: Any) -> None:
  axes.grid(alpha=0.3)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
