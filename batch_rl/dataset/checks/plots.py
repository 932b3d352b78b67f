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
    ValueError: If Matplotlib does not support the file name's ending, or the folder
      is missing.
  """
  from matplotlib import figure

  formats = sorted(figure.Figure().canvas.get_supported_filetypes())
  frame_images.check_output(path, tuple(f'.{name}' for name in formats))


def choose_sheet_rows(statistics: run_statistics.RunStatistics) -> np.ndarray:
  """Chooses rows for the contact sheet: spread over the run, without padding.

  Returns:
    int64 (n,), ascending; n is at most the number of cells.
  """
  starts = statistics.data.starts
  cells, count = _SHEET[0] * _SHEET[1], len(starts) - 1
  # Cells are spaced evenly over the shards, and within each shard over its rows.
  position = (np.arange(cells) + 0.5) * count / cells
  shards = position.astype(np.int64)
  reach = np.minimum(np.diff(starts), _SHEET_REACH)[shards]
  # A shard's first row in time may be the last one of its file.
  rows = starts[shards] + 1 + ((position - shards) * reach).astype(np.int64)
  while (is_padding := np.isin(rows, statistics.padding)).any():
    rows += is_padding
  return np.unique(rows[rows < starts[-1]])


def plot(statistics: run_statistics.RunStatistics, path: str) -> None:
  """Plots returns, episode lengths, actions and frames of a run to one file.

  Without frames if these are not images (see `frame_images.explain_no_images`).

  Args:
    statistics: Statistics of the run.
    path: Output file, in a format of Matplotlib.

  Raises:
    ValueError: If a file is damaged.
  """
  from matplotlib import figure as figure_lib  # takes a second

  with_frames = frame_images.explain_no_images(statistics.data) is None
  size = 12, 10.5 if with_frames else 5.9
  figure: Any = figure_lib.Figure(figsize=size, layout='constrained')
  totals = statistics.totals()
  agent = f', {agent}' if (agent := statistics.manifest.get('agent')) else ''
  title = (
    f'{statistics.game}, run {statistics.run.name}{agent}: {totals["agent_steps"]:,} '
    f'agent steps, {totals["episodes"]:,} episodes'
  )
  figure.suptitle(programs.printable(title), fontsize=14, parse_math=False)
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
  x = np.unique(statistics.ends_in)
  returns = [statistics.returns[statistics.ends_in == shard] for shard in x]
  bands = ('all episodes', 0, 100, 0.15), ('middle half', 25, 75, 0.3)
  for label, low, high, alpha in bands:
    bottom = np.array([np.percentile(r, low) for r in returns])
    top = np.array([np.percentile(r, high) for r in returns])
    style = {'color': _COLOR, 'alpha': alpha, 'label': label}
    axes.bar(x, top - bottom, 0.7, bottom, **style)
  axes.plot(x, [r.mean() for r in returns], 'o-', color=_ACCENT, label='mean')
  axes.set(ylabel='return', xlabel='shard')
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.use_sticky_edges = False
  axes.legend(ncols=3)
  _decorate(axes, 'Returns by the shard in which episodes end')


def _plot_lengths(statistics: run_statistics.RunStatistics, axes: Any) -> None:
  lengths = statistics.lengths
  axes.hist(lengths, bins=30, color=_COLOR, edgecolor='white')
  if len(lengths):
    median = float(np.median(lengths))
    axes.axvline(median, color=_ACCENT, label=f'median {median:,.0f}')
    axes.legend()
  axes.yaxis.get_major_locator().set_params(integer=True)
  axes.set(xlabel='agent steps', ylabel='episodes')
  _decorate(axes, 'Episode lengths')


def _plot_actions(statistics: run_statistics.RunStatistics, axes: Any) -> None:
  share = 100 * statistics.actions / max(statistics.actions.sum(), 1)
  bars = axes.bar(range(len(share)), share, color=_COLOR)
  if len(share) <= 18:
    names = statistics.action_names or [*map(str, range(len(share)))]
    is_long = len(names) > 6 and len(max(names, key=len)) > 2
    axes.set_xticks(range(len(share)), names, rotation=90 * is_long)
    axes.bar_label(bars, fmt='%.1f', fontsize='x-small')
  axes.set(xlabel='action', ylabel='% of agent steps')
  _decorate(axes, 'Actions')


def _plot_sheet(statistics: run_statistics.RunStatistics, figure: Any) -> None:
  data, rows = statistics.data, choose_sheet_rows(statistics)
  images = frame_images.read_images(data, rows)
  # Empty lists of ticks are faster than invisible ticks.
  no_ticks: dict[str, Any] = {'xticks': [], 'yticks': []}
  cells = figure.subplots(*_SHEET, squeeze=False, subplot_kw=no_ticks).ravel()
  for axes in cells:
    axes.axis('off')
  shards, _ = data.ring_of(rows)
  for axes, row, image, i in zip(cells, rows, images, shards, strict=False):
    axes.imshow(image, cmap='gray', vmin=0, vmax=255)
    axes.set_title(f'shard {data.suffixes[i]}, row {row:,}', fontsize='x-small')


def _decorate(axes: Any, title: str) -> None:
  axes.set_title(title, loc='left')
  axes.grid(alpha=0.3)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
