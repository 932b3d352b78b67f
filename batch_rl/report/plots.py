"""The report's figures, as PNG to look at and PDF for a paper."""

import functools
import io
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure, ticker

from batch_rl.report import aggregates, normalisation
from batch_rl.report.aggregates import Summary
from batch_rl.report.comparison import Comparison
from batch_rl.report.run_results import Run
from batch_rl.utils import files

# Okabe and Ito, 2008: told apart by the colour-blind; yellow is left out, as it
# cannot be told from paper.
_COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#56B4E9',
  '#E69F00',
  '#000000',
)
_STYLES = ('-', '--', '-.', ':')
_WIDTH = 6.75  # inches, the text of a paper
_LINE = 0.13  # inches, of small text
_MOST_PAIRS = 28  # eight methods against each other
_COLUMNS = 5  # of the page of all games
_PARAMETERS = {
  'font.size': 8,
  'axes.titlesize': 9,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'grid.alpha': 0.3,
  'legend.frameon': False,
  'lines.linewidth': 1.5,
  'pdf.fonttype': 42,  # letters stay letters: publishers ask for it
  'text.parse_math': False,  # a dollar in a name is a dollar
}


class Style:
  """A colour and a line for each method, the same in all figures."""

  def __init__(self, methods: list[str]):
    self._index = {method: i for i, method in enumerate(methods)}

  def colour(self, method: str) -> str:
    """Of its lines, bars and intervals."""
    return _COLOURS[self._index[method] % len(_COLOURS)]

  def line(self, method: str) -> dict[str, Any]:
    """Arguments of a plotted line."""
    dash = _STYLES[self._index[method] // len(_COLOURS) % len(_STYLES)]
    return {'color': self.colour(method), 'linestyle': dash}


def _styled(function: Callable) -> Callable:
  @functools.wraps(function)
  def wrapper(*args, **kwargs):
    with matplotlib.rc_context(_PARAMETERS):
      return function(*args, **kwargs)

  return wrapper


@_styled
def of_metrics(summary: Summary, style: Style) -> figure.Figure:
  """IQM, median, mean and optimality gap: a dot and an interval a method."""
  methods = list(summary.metrics)[::-1]  # the first one on top
  row = _row_height(methods)
  height = 0.9 + row * len(methods)
  plot, axes = _subplots(1, len(aggregates.METRICS), height, sharey=True)
  for i, name in enumerate(aggregates.METRICS):
    ax = axes[0, i]
    for y, method in enumerate(methods):
      estimate, colour = summary.metrics[method], style.colour(method)
      low, high = estimate.low[i], estimate.high[i]
      ax.barh(y, high - low, left=low, height=0.6, color=colour, alpha=0.35)
      ax.plot([estimate.value[i]] * 2, [y - 0.3, y + 0.3], color=colour, lw=2)
    ax.set_title(name)
    ax.set_yticks(range(len(methods)), [_wrapped(m) for m in methods])
    _label_sparsely(ax)
    ax.use_sticky_edges = False  # bars would touch the edge
    ax.margins(x=0.08)
    ax.grid(axis='y', visible=False)
    ax.tick_params(axis='y', length=0)
  plot.supxlabel(_axis(summary), fontsize=8)
  return plot


@_styled
def of_profiles(
  summary: Summary, style: Style, repetitions: int
) -> figure.Figure:
  """The share of runs above each normalised score."""
  scores = summary.matrices.scores
  everything = np.concatenate([array.ravel() for array in scores.values()])
  low, high = np.percentile(everything, [5, 95])
  thresholds = np.linspace(min(0, low), max(1, high), 201)
  plot, axes = _subplots(1, 1, _height_beside(scores))
  ax = axes[0, 0]
  for method, array in scores.items():
    estimate = aggregates.profile(array, thresholds, repetitions)
    ax.plot(thresholds, estimate.value, label=method, **style.line(method))
    _shade(ax, thresholds, estimate, style.colour(method))
  ax.set_xlabel(f'{_axis(summary)} (t)')
  ax.set_ylabel('share of runs with a score above t')
  ax.set_ylim(-0.02, 1.02)
  _legend(plot, ax)
  return plot


@_styled
def of_improvements(summary: Summary, repetitions: int) -> figure.Figure:
  """How likely one method is better than another, a row a pair."""
  estimates = aggregates.improvements(summary.matrices.scores, repetitions)
  pairs = list(estimates)[::-1]
  if len(pairs) > _MOST_PAIRS:  # the first method is the one to improve on
    first = next(iter(summary.matrices.scores))
    pairs = [pair for pair in pairs if first in pair]
  labels = [f'{_wrapped(x)}\n> {_wrapped(y)}' for x, y in pairs]
  if max(len(f'{x} > {y}') for x, y in pairs) < 45:
    labels = [f'{x} > {y}' for x, y in pairs]
  height = 0.8 + _row_height(labels) * len(pairs)
  plot, axes = _subplots(1, 1, height, width=5.5)
  ax = axes[0, 0]
  for y, pair in enumerate(pairs):
    estimate = estimates[pair]
    value, low, high = estimate.value[0], estimate.low[0], estimate.high[0]
    ax.barh(y, high - low, left=low, height=0.6, color='#0072B2', alpha=0.35)
    ax.plot([value] * 2, [y - 0.3, y + 0.3], color='#0072B2', lw=2)
  ax.axvline(0.5, color='black', lw=0.8, ls='--')
  ax.set_yticks(range(len(pairs)), labels)
  ax.set_xlim(-0.02, 1.02)
  ax.grid(axis='y', visible=False)
  ax.set_xlabel('probability of improvement')
  return plot


@_styled
def of_efficiency(
  compared: Comparison,
  summary: Summary,
  style: Style,
  repetitions: int,
) -> figure.Figure:
  """The IQM of normalised evaluations as training goes on."""
  plot, axes = _subplots(1, 1, _height_beside(summary.matrices.scores))
  ax = axes[0, 0]
  games = summary.matrices.games
  for method, array in summary.matrices.scores.items():
    used = {game: compared.runs[method][game][: len(array)] for game in games}
    length = min(run.done for runs in used.values() for run in runs)
    scores = np.stack(
      [
        [
          normalisation.normalise(
            run.returns[:length], game, summary.normaliser
          )
          for run in runs
        ]
        for game, runs in used.items()
      ],
      axis=1,
    )
    estimate = aggregates.curve(scores, repetitions)
    steps = np.arange(length) + 1
    line = {**style.line(method), 'marker': _marker(steps)}
    ax.plot(steps, estimate.value, label=method, **line)
    _shade(ax, steps, estimate, style.colour(method))
  ax.set_xlabel('iteration')
  ax.set_ylabel(f'IQM of {_axis(summary)}')
  ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
  _legend(plot, ax)
  return plot


@_styled
def of_game(
  compared: Comparison, game: str, style: Style, repetitions: int
) -> figure.Figure:
  """The learning curves of a game."""
  names = [*compared.runs, *(f'{m}, under way' for m in compared.unfinished)]
  plot, axes = _subplots(1, 1, _height_beside([*names, *'ab']))
  ax = axes[0, 0]
  _draw_game(ax, compared, game, style, repetitions)
  ax.set_xlabel('iteration')
  ax.set_ylabel('return')
  _legend(plot, ax)
  return plot


@_styled
def of_games(
  compared: Comparison, style: Style, repetitions: int
) -> figure.Figure:
  """The learning curves of all games on a page."""
  games = compared.games_with_curves
  columns = min(_COLUMNS, len(games))
  rows = -(-len(games) // columns)
  names = [*compared.runs, *compared.unfinished]
  height = 1.2 + 1.25 * rows + _LINE * sum(map(_lines, names))
  plot, axes = _subplots(rows, columns, height, width=_WIDTH + 1)
  for ax, game in zip(axes.flat, games, strict=False):
    _draw_game(ax, compared, game, style, repetitions)
    ax.tick_params(labelsize=6)
    ax.set_title(game, fontsize=7)
  for ax in axes.flat[len(games) :]:
    ax.set_visible(False)
  plot.supxlabel('iteration', fontsize=8)
  plot.supylabel('return', fontsize=8)
  _legend(plot, *axes.flat[: len(games)], above=True)
  return plot


def _draw_game(ax, compared, game, style, repetitions):
  """Means and intervals of what is done, a thin line for each run under way."""
  for method, by_game in compared.runs.items():
    if game in by_game:
      returns = _together(by_game[game])
      steps = np.arange(returns.shape[1]) + 1
      estimate = aggregates.game_means(returns, repetitions)
      line = {**style.line(method), 'marker': _marker(steps)}
      ax.plot(steps, estimate.value, label=method, **line)
      _shade(ax, steps, estimate, style.colour(method))
  for method, by_game in compared.unfinished.items():
    for i, run in enumerate(by_game.get(game, ())):
      line = {**style.line(method), 'linewidth': 0.7, 'alpha': 0.8}
      label = '' if i else f'{method}, under way'
      steps = np.arange(run.done) + 1
      ax.plot(steps, run.returns, label=label, marker=_marker(steps), **line)
  known = normalisation.load().get(game, {})
  for score, (name, dash) in {
    'random': ('random', ':'),
    'dqn_final': ('online DQN, final', '--'),
  }.items():
    if score in known:
      label = f'{name} (reference)'
      ax.axhline(known[score], color='0.5', lw=1, ls=dash, label=label)
  ax.set_title(game)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
  ax.yaxis.set_major_locator(ticker.MaxNLocator(4))
  ax.yaxis.set_major_formatter(ticker.FuncFormatter(_thousands))


def _together(runs: list[Run]) -> np.ndarray:
  """Returns (runs, iterations) as far as all of them have got."""
  length = min(run.done for run in runs)
  return np.stack([run.returns[:length] for run in runs])


def _marker(steps: np.ndarray) -> str:
  """A line of one point would not be seen."""
  return '.' if len(steps) == 1 else ''


def _thousands(value: float, _: int) -> str:
  for unit, name in ((1e6, 'M'), (1e4, 'k')):
    if abs(value) >= unit:
      return f'{value / {"M": 1e6, "k": 1e3}[name]:g}{name}'
  return f'{value:.5g}'


def _label_sparsely(ax) -> None:
  """Few labels on the x axis, and no more digits than they need."""
  low, high = ax.get_xlim()
  middle = (low + high) / 2
  if high - low < 0.05 * max(1, abs(middle)):  # nothing to tell apart
    ax.set_xlim(middle - 0.05, middle + 0.05)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
  ax.xaxis.set_major_formatter(ticker.FuncFormatter(_thousands))


def _shade(ax, x, estimate, colour) -> None:
  if np.isfinite(estimate.low).all():
    ax.fill_between(
      x, estimate.low, estimate.high, color=colour, alpha=0.2, linewidth=0
    )


def _axis(summary: Summary) -> str:
  names = {'human': 'human', 'dqn_final': 'DQN', 'dqn_best': 'DQN'}
  return f'{names[summary.normaliser]}-normalised score ({summary.kind})'


def _wrapped(name: str) -> str:
  return textwrap.fill(name, 28)


def _lines(name: str) -> int:
  return _wrapped(name).count('\n') + 1


def _row_height(labels: Iterable[str]) -> float:
  """Inches of a row that holds any of the labels."""
  return 0.11 + _LINE * max(
    sum(map(_lines, label.split('\n'))) for label in labels
  )


def _height_beside(names: Iterable[str]) -> float:
  """Inches of a figure that has a legend with the names at its side."""
  return max(3.0, 0.5 + sum(0.05 + _LINE * _lines(name) for name in names))


def _subplots(rows, columns, height, width=_WIDTH, **kwargs):
  plot = figure.Figure((width, height), layout='constrained')
  return plot, plot.subplots(rows, columns, squeeze=False, **kwargs)


def _legend(plot, *axes, above=False) -> None:
  """One for all axes: beside them, or above them in columns."""
  found: dict[str, Any] = {}
  for ax in axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      found.setdefault(_wrapped(label), handle)
  columns = 1
  if above:
    longest = max(len(line) for label in found for line in label.split('\n'))
    columns = max(1, int(plot.get_figwidth() / (0.06 * longest + 0.5)))
  plot.legend(
    found.values(),
    found,
    loc=f'outside {"upper center" if above else "right center"}',
    ncols=columns,
    fontsize=7,
  )


def write(plot: figure.Figure, directory: str, name: str) -> bytes:
  """Writes `<name>.png` and `<name>.pdf`; returns the PNG."""
  buffers = {'pdf': io.BytesIO(), 'png': io.BytesIO()}
  for ending, buffer in buffers.items():
    plot.savefig(buffer, format=ending, dpi=150)
    path = os.path.join(directory, f'{name}.{ending}')
    files.write_bytes(path, buffer.getvalue())
  return buffers['png'].getvalue()


def all_of(
  compared: Comparison, summaries: list[Summary], repetitions: int
) -> Iterator[tuple[str, str, Callable[[], figure.Figure]]]:
  """What there is to draw: `(name, caption, how)`."""
  methods = list(dict.fromkeys([*compared.runs, *compared.unfinished]))
  style, partial = Style(methods), functools.partial
  for summary in summaries:
    if not summary.metrics:
      continue
    about = f'{summary.kind}_{summary.normaliser}'
    yield (
      f'metrics_{about}',
      f'{_axis(summary)}: aggregates with 95 % intervals.',
      partial(of_metrics, summary, style),
    )
    yield (
      f'profiles_{about}',
      f'{_axis(summary)}: performance profiles.',
      partial(of_profiles, summary, style, repetitions),
    )
    if len(summary.matrices.scores) > 1:
      yield (
        f'improvement_{about}',
        f'{_axis(summary)}: probability of improvement.',
        partial(of_improvements, summary, repetitions),
      )
    if summary.kind == 'final':
      yield (
        f'efficiency_{about}',
        f'{_axis(summary)}: the IQM as training goes on.',
        partial(of_efficiency, compared, summary, style, repetitions),
      )
  games = compared.games_with_curves
  if len(games) > 1:
    yield (
      'curves',
      'Learning curves: mean over runs, 95 % intervals.',
      partial(of_games, compared, style, repetitions),
    )
  for game in games:
    yield (
      f'curves_{game}',
      f'{game}: mean over runs, 95 % intervals.',
      partial(of_game, compared, game, style, repetitions),
    )
