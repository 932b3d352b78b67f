"""Figures of a report, as PNG for the screen and PDF for a paper.

rliable's own plot functions are not used: their panels have a fixed width in which long
names of methods, tick labels and axis labels overlap, and they have no line styles.
"""

import io
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure, ticker

from batch_rl.report import aggregates, normalisation
from batch_rl.report.aggregates import Estimate, Summary
from batch_rl.report.comparison import Comparison
from batch_rl.utils import files

# Okabe and Ito, 2008: safe for colour-blind readers. Without yellow, which is faint on
# paper.
_COLOURS = '#0072B2 #D55E00 #009E73 #CC79A7 #56B4E9 #E69F00 #000000'.split()
_STYLES = ('-', '--', '-.', ':')
_WIDTH = 6.75  # Inches, the text width of a paper.
_LINE = 0.13  # Inches, the height of a line of small text.
_MAX_PAIRS = 28  # All pairs of eight methods.
_GRID_COLUMNS = 5
_PARAMETERS: dict[Any, Any] = {
  'font.size': 8,
  'axes.titlesize': 9,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'grid.alpha': 0.3,
  'legend.frameon': False,
  'lines.linewidth': 1.5,
  'pdf.fonttype': 42,  # Embeds text as text, as publishers demand.
  'text.parse_math': False,  # Names may contain dollars.
}


class Plotter:
  """Draws the figures of a report, with one colour and line style per method.

  Args:
    compared: Runs.
    repetitions: Number of bootstrap samples.
  """

  def __init__(self, compared: Comparison, repetitions: int):
    self._compared, self._repetitions = compared, repetitions
    self._lines = {
      method: {
        'color': _COLOURS[i % len(_COLOURS)],
        'linestyle': _STYLES[i // len(_COLOURS) % len(_STYLES)],
      }
      for i, method in enumerate(compared.methods)
    }

  def figures(
    self, summaries: list[Summary]
  ) -> Iterator[tuple[str, str, figure.Figure]]:
    """Draws the figures one after another; yields name, caption and figure.

    Args:
      summaries: Aggregates to draw, besides the learning curves.
    """
    drawn: list[tuple[str, str, Callable, Any]] = []
    for summary in summaries:
      kinds = [
        ('metrics', 'aggregates with 95 % intervals', self._metrics),
        ('profiles', 'performance profiles', self._profiles),
      ]
      if len(summary.scores) > 1:
        text = 'probability of improvement'
        kinds.append(('improvement', text, self._improvements))
      if summary.kind == 'final':
        kinds.append(('efficiency', 'IQM during training', self._efficiency))
      drawn += [
        (
          f'{name}_{summary.kind}_{summary.normaliser}',
          f'{_axis(summary)}: {caption}.',
          draw,
          summary,
        )
        for name, caption, draw in kinds
      ]
    games = self._compared.games_with_curves
    caption = 'mean over runs, 95 % intervals.'
    if len(games) > 1:
      drawn.append(
        ('curves', f'Learning curves: {caption}', self._all_curves, games)
      )
    drawn += [
      (f'curves_{game}', f'{game}: {caption}', self._curves, game)
      for game in games
    ]
    for name, caption, draw, subject in drawn:
      with matplotlib.rc_context(_PARAMETERS):
        plot = draw(subject)
      yield name, caption, plot

  def _metrics(self, summary: Summary) -> figure.Figure:
    """Draws IQM, median, mean and optimality gap: a bar per method."""
    labels = [_wrapped(method) for method in summary.metrics]
    colours = [self._lines[method]['color'] for method in summary.metrics]
    plot, axes = _subplots(
      0.9 + _row_height(labels) * len(labels),
      columns=len(aggregates.METRICS),
      sharey=True,
    )
    for i, name in enumerate(aggregates.METRICS):
      ax = axes[0, i]
      _bars(ax, labels, summary.metrics.values(), i, colours)
      ax.set_title(name)
      _label_sparsely(ax)
      ax.use_sticky_edges = False  # Keeps bars off the edge.
      ax.margins(x=0.08)
      ax.tick_params(axis='y', length=0)
    plot.supxlabel(_axis(summary), fontsize=8)
    return plot

  def _profiles(self, summary: Summary) -> figure.Figure:
    """Draws performance profiles: the fraction of runs above each score."""
    scores = summary.scores
    everything = np.concatenate([array.ravel() for array in scores.values()])
    low, high = np.percentile(everything, [5, 95])
    thresholds = np.linspace(min(0, low), max(1, high), 201)
    plot, ax = _beside_legend(
      scores, f'{_axis(summary)} (t)', 'fraction of runs with a score above t'
    )
    for method, array in scores.items():
      estimate = aggregates.profile(array, thresholds, self._repetitions)
      self._curve(ax, method, thresholds, estimate)
    ax.set_ylim(-0.02, 1.02)
    _legend(plot, ax)
    return plot

  def _improvements(self, summary: Summary) -> figure.Figure:
    """Draws the probability of improvement: a bar per pair of methods."""
    estimates = aggregates.improvements(summary.scores, self._repetitions)
    if len(estimates) > _MAX_PAIRS:  # Only improvements on the first method.
      first = next(iter(summary.scores))
      estimates = {pair: e for pair, e in estimates.items() if first in pair}
    labels = [f'{x} > {y}' for x, y in estimates]
    if max(map(len, labels)) >= 45:
      labels = [f'{_wrapped(x)}\n> {_wrapped(y)}' for x, y in estimates]
    height = 0.8 + _row_height(labels) * len(labels)
    plot, [[ax]] = _subplots(height, width=5.5)
    _bars(ax, labels, estimates.values(), 0, [_COLOURS[0]] * len(labels))
    ax.axvline(0.5, color='black', lw=0.8, ls='--')
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel('probability of improvement')
    return plot

  def _efficiency(self, summary: Summary) -> figure.Figure:
    """Draws the IQM of normalised scores against iterations."""
    plot, ax = _beside_legend(
      summary.scores, 'iteration', f'IQM of {_axis(summary)}'
    )
    for method, array in summary.scores.items():
      returns = [
        self._returns(method, game)[: len(array)] for game in summary.games
      ]
      length = min(curves.shape[1] for curves in returns)
      scores = [
        normalisation.normalise(curves[:, :length], game, summary.normaliser)
        for game, curves in zip(summary.games, returns, strict=True)
      ]
      estimate = aggregates.curve(np.stack(scores, axis=1), self._repetitions)
      self._curve(ax, method, np.arange(length) + 1, estimate)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    _legend(plot, ax)
    return plot

  def _curves(self, game: str) -> figure.Figure:
    """Draws the learning curves of a game."""
    names = [*self._labels(), *'ab']  # Two references.
    plot, ax = _beside_legend(names, 'iteration', 'return')
    self._draw_game(ax, game)
    _legend(plot, ax)
    return plot

  def _all_curves(self, games: list[str]) -> figure.Figure:
    """Draws the learning curves of all games, as a grid."""
    columns = min(_GRID_COLUMNS, len(games))
    rows = -(-len(games) // columns)
    height = 1.2 + 1.25 * rows + _LINE * sum(map(_lines, self._labels()))
    plot, axes = _subplots(height, rows, columns, width=_WIDTH + 1)
    for ax, game in zip(axes.flat, games, strict=False):
      self._draw_game(ax, game)
      ax.tick_params(labelsize=6)
      ax.set_title(game, fontsize=7)
    for ax in axes.flat[len(games) :]:
      ax.set_visible(False)
    plot.supxlabel('iteration', fontsize=8)
    plot.supylabel('return', fontsize=8)
    _legend(plot, *axes.flat[: len(games)], above=True)
    return plot

  def _labels(self) -> list[str]:
    """Returns the labels of all learning curves."""
    labels = [method for method, _ in self._compared.runs]
    labels += [
      f'{method}, under way' for method, _ in self._compared.unfinished
    ]
    return list(dict.fromkeys(labels))

  def _returns(self, method: str, game: str) -> np.ndarray:
    """Returns the returns of runs, (runs, iterations), truncated to the shortest."""
    runs = self._compared.select(method, game)
    length = min(run.done for run in runs)
    return np.stack([run.returns[:length] for run in runs])

  def _draw_game(self, ax, game):
    """Draws means with intervals, runs under way as thin lines, and references."""
    runs, unfinished = (
      [(method, run) for method, run in rows if run.game == game]
      for rows in (self._compared.runs, self._compared.unfinished)
    )
    for method in dict.fromkeys(method for method, _ in runs):
      returns = self._returns(method, game)
      estimate = aggregates.game_means(returns, self._repetitions)
      self._curve(ax, method, np.arange(returns.shape[1]) + 1, estimate)
    for method, run in unfinished:
      steps = np.arange(run.done) + 1
      ax.plot(
        steps,
        run.returns,
        label=f'{method}, under way',
        marker=_marker(steps),
        **{**self._lines[method], 'linewidth': 0.7, 'alpha': 0.8},
      )
    known = normalisation.load().get(game, {})
    for score, name, dash in (
      ('random', 'random', ':'),
      ('dqn_final', 'online DQN, final', '--'),
    ):
      if score in known:
        label = f'{name} (reference)'
        ax.axhline(known[score], color='0.5', lw=1, ls=dash, label=label)
    ax.set_title(game)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(ticker.MaxNLocator(4))
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(_thousands))

  def _curve(self, ax, method: str, x: np.ndarray, estimate: Estimate):
    """Draws a line, and its interval, if any, as a shaded band."""
    line = self._lines[method]
    ax.plot(x, estimate.value, label=method, marker=_marker(x), **line)
    if np.isfinite(estimate.low).all():
      band = {'color': line['color'], 'alpha': 0.2, 'linewidth': 0}
      ax.fill_between(x, estimate.low, estimate.high, **band)


def write(plot: figure.Figure, directory: str, name: str) -> bytes:
  """Writes `<name>.png` and `<name>.pdf`; returns the PNG."""
  buffers = {'png': io.BytesIO(), 'pdf': io.BytesIO()}
  for ending, buffer in buffers.items():
    plot.savefig(buffer, format=ending, dpi=150)
    plot.set_layout_engine('none')  # The layout is slow, and done now.
    path = os.path.join(directory, f'{name}.{ending}')
    files.write_bytes(path, buffer.getvalue())
  return buffers['png'].getvalue()


def _bars(ax, labels, estimates: Iterable[Estimate], i: int, colours) -> None:
  """Draws value `i` of each estimate as a bar with a mark, the first one on top."""
  rows = range(len(labels))[::-1]
  for y, estimate, colour in zip(rows, estimates, colours, strict=True):
    low, high, value = estimate.low[i], estimate.high[i], estimate.value[i]
    ax.barh(y, high - low, left=low, height=0.6, color=colour, alpha=0.35)
    ax.plot([value] * 2, [y - 0.3, y + 0.3], color=colour, lw=2)
  ax.set_yticks(rows, labels)
  ax.grid(axis='y', visible=False)


def _marker(steps: np.ndarray) -> str:
  """Returns a dot for a curve of one point, where a line would be invisible."""
  return '.' if len(steps) == 1 else ''


def _thousands(value: float, _: int) -> str:
  for unit, divisor, name in ((1e6, 1e6, 'M'), (1e4, 1e3, 'k')):
    if abs(value) >= unit:
      return f'{value / divisor:g}{name}'
  return f'{value:.5g}'


def _label_sparsely(ax) -> None:
  """Draws few and short labels on the x axis."""
  low, high = ax.get_xlim()
  middle = (low + high) / 2
  if high - low < 0.05 * max(1, abs(middle)):  # All values are about the same.
    ax.set_xlim(middle - 0.05, middle + 0.05)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
  ax.xaxis.set_major_formatter(ticker.FuncFormatter(_thousands))


def _axis(summary: Summary) -> str:
  name = 'human' if summary.normaliser == 'human' else 'DQN'
  return f'{name}-normalised score ({summary.kind})'


def _wrapped(name: str) -> str:
  return textwrap.fill(name, 28)


def _lines(name: str) -> int:
  return _wrapped(name).count('\n') + 1


def _row_height(labels: Iterable[str]) -> float:
  """Returns the height of a row, in inches, that fits any of the labels."""
  return 0.11 + _LINE * max(
    sum(map(_lines, label.split('\n'))) for label in labels
  )


def _subplots(height, rows=1, columns=1, width=_WIDTH, **kwargs):
  plot = figure.Figure((width, height), layout='constrained')
  return plot, plot.subplots(rows, columns, squeeze=False, **kwargs)


def _beside_legend(names: Iterable[str], xlabel: str, ylabel: str):
  """Returns a figure and its axes, high enough for a legend of names beside it."""
  height = max(3.0, 0.5 + sum(0.05 + _LINE * _lines(name) for name in names))
  plot, [[ax]] = _subplots(height)
  ax.set_xlabel(xlabel)
  ax.set_ylabel(ylabel)
  return plot, ax


def _legend(plot, *axes, above=False) -> None:
  """Draws one legend for all axes: beside them, or above them in columns."""
  handles: dict[str, Any] = {}
  for ax in axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      handles.setdefault(_wrapped(label), handle)
  columns = 1
  if above:
    longest = max(len(line) for label in handles for line in label.split('\n'))
    columns = max(1, int(plot.get_figwidth() / (0.06 * longest + 0.5)))
  plot.legend(
    handles.values(),
    handles,
    loc=f'outside {"upper center" if above else "right center"}',
    ncols=columns,
    fontsize=7,
  )
