"""Figures of a report: SVG for its page, PDF for a paper, PNG for slides.

All are as wide as the text of a paper, and have one font size.

rliable's own plot functions are not used: their panels have a fixed width in which long
names of methods, tick labels and axis labels overlap, and they have no line styles.
"""

import io
import os
import pathlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure, ticker

from batch_rl.report import aggregates, comparison, normalisation, run_results
from batch_rl.report.aggregates import Estimate, Summary
from batch_rl.report.comparison import Comparison
from batch_rl.utils import files

# Okabe and Ito, 2008: safe for colour-blind readers. Without yellow, which is faint on
# paper.
_COLOURS = '#0072B2 #D55E00 #009E73 #CC79A7 #56B4E9 #E69F00 #000000'.split()
_STYLES = ('-', '--', '-.', ':')
_WIDTH = 5.5  # Inches, the text width of a paper.
_LINE = 0.14  # Inches, the height of a line of text.
_LETTER = 0.065  # Inches, the width of a letter.
_MAX_METHODS = 8  # With all pairs in a figure.
_GRID_COLUMNS = 4
_PANELS = 20  # On a page.
_ROWS = 5  # On a page of diagnostics.
# Diagnostics beside returns, with labels.
_DIAGNOSTICS = {
  'overestimation': 'over-estimation (return)',
  'srank': 'effective rank (features)',
}
# Parameters of matplotlib, for drawing and writing.
PARAMETERS = matplotlib.rc_params_from_file(
  pathlib.Path(__file__).with_suffix('.mplstyle'), use_default_template=False
)


def learning_curves(*directories: str | os.PathLike[str]) -> figure.Figure:
  """Draws the learning curves of runs, also of those under way, as a report does.

  Args:
    *directories: Run directories.

  Raises:
    ValueError: If no directory is given, or a run has no evaluations yet, or is a copy
      of another.
  """
  if not directories:
    raise ValueError('learning_curves: give the directory of a run.')
  runs = [run_results.read_run(os.fspath(path)) for path in directories]
  with matplotlib.rc_context(PARAMETERS):
    compared = comparison.compare(runs)
    drawn = {run.directory for _, run in (*compared.runs, *compared.unfinished)}
    for path, reason in compared.excluded:
      if path not in drawn:
        raise ValueError(f'{path}: {reason}.')
    return Plotter(compared)._curves(compared.games_with_curves)


class Plotter:
  """Draws the figures of a report, with one colour and line style per method.

  Args:
    compared: Runs.
  """

  def __init__(self, compared: Comparison):
    self._compared = compared
    self._lines = {
      method: {
        'color': _COLOURS[i % len(_COLOURS)],
        'linestyle': _STYLES[i // len(_COLOURS) % len(_STYLES)],
      }
      for i, method in enumerate(compared.methods)
    }
    rows = *compared.runs, *compared.unfinished
    lengths = {run.provenance.get('iteration') for _, run in rows}
    # Iterations of different length have no common unit.
    length = lengths.pop() if len(lengths) == 1 else ''
    self._steps = f'iteration (of {length})' if length else 'iteration'

  def figures(
    self, summaries: list[Summary]
  ) -> Iterator[tuple[str, str, figure.Figure]]:
    """Draws the figures one after another; yields name, caption and figure.

    Args:
      summaries: Aggregates to draw, besides the learning curves.
    """
    for summary in summaries:
      of = f'of {summary.kind} scores'
      kinds = [
        ('metrics', f'Aggregates {of}', self._metrics),
        ('profiles', f'Performance profiles {of}', self._profiles),
      ]
      if len(summary.scores) > 1:
        text = 'Probability of improvement'
        if len(summary.scores) > _MAX_METHODS:
          first = next(iter(summary.scores))
          text += f' over {first} only, as there are more than eight methods,'
        kinds.append(('improvement', f'{text} {of}', self._improvements))
      if summary.kind == 'final':
        text = 'Interquartile mean of scores during training'
        kinds.append(('efficiency', text, self._efficiency))
      for name, caption, draw in kinds:
        name = f'{name}_{summary.kind}_{summary.normaliser}'
        text = f'{caption} over {summary.sample}, 95 % intervals.'
        yield name, text, draw(summary)
    games = self._compared.games_with_curves
    for name, page in _pages('curves', games, _PANELS):
      caption = 'Learning curves: mean over runs, 95 % intervals.'
      yield name, caption, self._curves(page)
    rows = *self._compared.runs, *self._compared.unfinished
    diagnosed = {r.game for _, r in rows if _DIAGNOSTICS.keys() & r.diagnostics}
    for name, page in _pages('diagnostics', sorted(diagnosed), _ROWS):
      caption = (
        'Over-estimation (values of logged actions, less their returns) and effective '
        'rank of features: mean over runs, 95 % intervals.'
      )
      yield name, caption, self._diagnostics(page)

  def _metrics(self, summary: Summary) -> figure.Figure:
    """Draws IQM, median, mean and optimality gap: a bar per method."""
    labels = [_wrapped(method) for method in summary.metrics]
    colours = [self._lines[method]['color'] for method in summary.metrics]
    plot, axes = _subplots(
      0.9 + _height(labels), columns=len(aggregates.METRICS), sharey=True
    )
    for i, ax in enumerate(axes[0]):
      _bars(ax, labels, summary.metrics.values(), i, colours)
      ax.set_title(aggregates.METRICS[i])
      ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
      ax.use_sticky_edges = False  # Keeps bars off the edge.
      ax.margins(x=0.08)
      ax.tick_params(axis='y', length=0)
    plot.supxlabel(_axis(summary, f' {summary.kind}'))
    return plot

  def _profiles(self, summary: Summary) -> figure.Figure:
    """Draws performance profiles: the fraction of runs above each score."""
    scores = summary.scores
    everything = np.concatenate([array.ravel() for array in scores.values()])
    low, high = np.percentile(everything, [0, 95])
    high = max(high, normalisation.reference_score(summary.normaliser))
    low -= float(low == high)  # All scores may be equal.
    # From below the lowest score, where each profile is 1.
    thresholds = np.linspace(low - 0.02 * (high - low), high, 201)
    plot, [[ax]] = _subplots()
    for method, array in scores.items():
      estimate = aggregates.profile(array, thresholds)
      self._curve(ax, method, thresholds, estimate)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel(f'{_axis(summary, f" {summary.kind}")}, t')
    ax.set_ylabel('fraction of runs above t')
    _legend(plot)
    return plot

  def _improvements(self, summary: Summary) -> figure.Figure:
    """Draws the probability of improvement: a bar per pair of methods."""
    estimates = summary.improvements
    if len(summary.scores) > _MAX_METHODS:
      first = next(iter(summary.scores))
      estimates = {pair: e for pair, e in estimates.items() if first in pair}
    labels = [f'{_wrapped(x)}\n> {_wrapped(y)}' for x, y in estimates]
    plot, [[ax]] = _subplots(0.8 + _height(labels))
    _bars(ax, labels, estimates.values(), 0, [_COLOURS[0]] * len(labels))
    ax.axvline(0.5, color='black', lw=0.8, ls='--')
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel('probability of improvement')
    return plot

  def _efficiency(self, summary: Summary) -> figure.Figure:
    """Draws the IQM of normalised scores against iterations."""
    plot, [[ax]] = _subplots()
    for method, array in summary.scores.items():
      scores = []
      for game in summary.games:
        runs = self._compared.select(method, game)[: len(array)]
        returns = np.stack([run.returns for run in runs])  # of one length
        scores.append(
          normalisation.normalise(returns, game, summary.normaliser)
        )
      estimate = aggregates.curve(np.stack(scores, axis=1))
      self._curve(ax, method, np.arange(len(estimate.value)) + 1, estimate)
    ax.set_xlabel(self._steps)
    ax.set_ylabel(f'IQM of {_axis(summary)}')
    ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    _legend(plot)
    return plot

  def _curves(self, games: Sequence[str]) -> figure.Figure:
    """Draws the learning curves, a panel per game."""
    columns = min(_GRID_COLUMNS, len(games))
    rows = -(-len(games) // columns)
    plot, axes = _subplots(max(2.5, 1.4 * rows), rows, columns)
    for ax, game in zip(axes.flat, games, strict=False):
      self._draw_game(ax, game)
    for ax in axes.flat[len(games) :]:
      ax.set_visible(False)
    plot.supxlabel(self._steps)
    plot.supylabel('return (points of the game)')
    _legend(plot)
    return plot

  def _diagnostics(self, games: Sequence[str]) -> figure.Figure:
    """Draws returns and diagnostics, a row per game."""
    height = max(2.0, 1.6 * len(games))
    plot, axes = _subplots(height, len(games), 1 + len(_DIAGNOSTICS))
    for (first, *others), game in zip(axes, games, strict=True):
      self._draw_game(first, game)
      first.set_ylabel('return (points)')
      for ax, (name, title) in zip(others, _DIAGNOSTICS.items(), strict=True):
        self._draw_runs(ax, game, name)
        ax.set_ylabel(title)
      others[0].axhline(0, color='0.5', lw=1, ls='--')  # no over-estimation
    plot.supxlabel(self._steps)
    _legend(plot)
    return plot

  def _draw_runs(self, ax, game, name=''):
    """Draws means with intervals, and runs under way as thin lines.

    Args:
      ax: Axes.
      game: Name of the game.
      name: Name of the diagnostics to draw; '' for returns.
    """
    counted, unfinished = (
      [
        (method, run.diagnostics[name] if name else run.returns)
        for method, run in rows
        if run.game == game and (not name or name in run.diagnostics)
      ]
      for rows in (self._compared.runs, self._compared.unfinished)
    )
    for method in dict.fromkeys(method for method, _ in counted):
      curves = np.stack([curve for m, curve in counted if m == method])
      estimate = aggregates.game_means(curves)
      self._curve(ax, method, np.arange(curves.shape[1]) + 1, estimate)
    for method, curve in unfinished:
      steps = np.arange(len(curve)) + 1
      style = {**self._lines[method], 'linewidth': 0.7, 'alpha': 0.8}
      label = f'{method}, under way'
      ax.plot(steps, curve, label=label, marker=_marker(steps), **style)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(ticker.MaxNLocator(4))

  def _draw_game(self, ax, game):
    """Draws the learning curves of a game, and references."""
    self._draw_runs(ax, game)
    known = normalisation.load().get(game, {})
    lines = ('random', 'random', ':'), ('dqn_final', 'online DQN, final', '--')
    for score, name, dash in lines:
      if score in known:
        label = f'{name} (reference)'
        ax.axhline(known[score], color='0.5', lw=1, ls=dash, label=label)
    ax.set_title(game)

  def _curve(self, ax, method: str, x: np.ndarray, estimate: Estimate):
    """Draws a line, and its interval, if any, as a shaded band."""
    line = self._lines[method]
    ax.plot(x, estimate.value, label=method, marker=_marker(x), **line)
    if np.isfinite(estimate.low).any():
      band = {'color': line['color'], 'alpha': 0.2, 'linewidth': 0}
      ax.fill_between(x, estimate.low, estimate.high, **band)


def write(plot: figure.Figure, directory: str, name: str) -> str:
  """Writes `<name>.png` and `<name>.pdf`; returns the figure as an `svg` element.

  It has the width of its surroundings, no background, and their colour in place of black.
  """
  buffers = {ending: io.BytesIO() for ending in ('png', 'pdf', 'svg')}
  with matplotlib.rc_context({'svg.hashsalt': name}):  # Unique identifiers.
    for ending, buffer in buffers.items():
      plot.savefig(buffer, format=ending, dpi=200, transparent=ending == 'svg')
      plot.set_layout_engine('none')  # The layout is slow, and done now.
  svg = buffers.pop('svg').getvalue().decode()
  for ending, buffer in buffers.items():
    path = os.path.join(directory, f'{name}.{ending}')
    files.write_bytes(path, buffer.getvalue())
  svg = re.sub(r'(?s)^.*?(<svg.*?)<metadata>.*?</metadata>', r'\1', svg)
  svg = re.sub(r' (width|height)="[^"]*pt"', '', svg, count=2)
  svg = re.sub(
    r' d="[^"]*"', lambda d: re.sub(r'(\.\d\d)\d+', r'\1', d[0]), svg
  )
  return svg.replace(': #000000', ': currentColor')


def _pages(
  name: str, games: Sequence[str], size: int
) -> Iterator[tuple[str, Sequence[str]]]:
  """Yields the name and the games of each figure: `name`, `name_2`, ..."""
  for start in range(0, len(games), size):
    number = f'_{start // size + 1}' if start else ''
    yield f'{name}{number}', games[start : start + size]


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


def _axis(summary: Summary, kind: str = '') -> str:
  name = 'DQN' if summary.normaliser.startswith('dqn') else summary.normaliser
  one = normalisation.reference_score(summary.normaliser)
  reference = normalisation.reference_name(summary.normaliser)
  return f'{name}-normalised{kind} score ({reference} = {one:g})'


def _wrapped(name: str) -> str:
  return textwrap.fill(name, 28)


def _height(labels: Iterable[str]) -> float:
  """Returns the height, in inches, of equal rows that fit any of the labels."""
  lines = [label.count('\n') + 1 for label in labels]
  return len(lines) * (0.11 + _LINE * max(lines))


def _subplots(height=3.0, rows=1, columns=1, **kwargs):
  plot = figure.Figure((_WIDTH, height), layout='constrained')
  return plot, plot.subplots(rows, columns, squeeze=False, **kwargs)


def _legend(plot) -> None:
  """Draws one legend for all axes above them, and makes room for it."""
  handles: dict[str, Any] = {}
  for ax in plot.axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      handles.setdefault(textwrap.fill(label, 75), handle)
  longest = max(len(line) for label in handles for line in label.split('\n'))
  columns = max(1, int(_WIDTH / (0.5 + _LETTER * longest)))
  lines = sum(label.count('\n') + 1 for label in handles)
  plot.legend(
    handles.values(), handles, loc='outside upper center', ncols=columns
  )
  plot.set_figheight(plot.get_figheight() + _LINE * (2 + lines / columns))
