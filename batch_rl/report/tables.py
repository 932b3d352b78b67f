"""Tables of a report: runs, scores and aggregates, as Markdown and CSV."""

import dataclasses
import html
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import tabulate

from batch_rl.report import aggregates, normalisation
from batch_rl.report.aggregates import Summary
from batch_rl.report.comparison import Comparison, Excluded
from batch_rl.utils import files, programs

_HASHES = ('rom', 'subset_hash')  # Shortened in the formatted table.
_AGGREGATES = (*aggregates.METRICS, aggregates.GAMES_ABOVE)
_KINDS = {
  'final': 'in the last evaluation of each run',
  'best': 'in the best evaluation of each run',
}
_BOLD = 'Bold: the best method, and those whose interval overlaps with its.'
Interval = tuple[float, float | None, float | None]  # Value, low, high.


@dataclasses.dataclass(frozen=True)
class Table:
  """A formatted table and its data.

  Attributes:
    name: Name of the files.
    caption: Caption, one or two sentences.
    text: Formatted cells.
    records: Rows of the CSV file; see `write_csv`.
    bold: Whether a cell is bold, bool (rows, some of the columns).
  """

  name: str
  caption: str
  text: pd.DataFrame
  records: list[dict[str, Any]]
  bold: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)

  @property
  def legend(self) -> str:
    """The caption, and what bold means if a cell is."""
    return self.caption + f' {_BOLD}' * bool(self.bold.any(axis=None))

  @property
  def is_text(self) -> list[bool]:
    """Whether a column is text: the first one, and those without numbers."""
    is_number = self.text.map(lambda cell: bool(re.match(r'-?\d', cell)))
    return [i == 0 or not has for i, has in enumerate(is_number.any())]

  def marked(
    self, escape: Callable[[str], str], before: str = '', after: str = ''
  ) -> pd.DataFrame:
    """Returns the cells escaped, with the given text around bold ones."""
    cells = self.text.map(escape)
    bold = self.bold.reindex_like(cells).eq(True)
    return cells.mask(bold, before + cells + after).rename(columns=escape)

  def render(
    self, form: str, escape: Callable[[str], str] = str, *bold: str
  ) -> str:
    """Returns the table in a form of tabulate; see `marked`."""
    cells = self.marked(escape, *bold)
    return tabulate.tabulate(
      cells.values.tolist(),
      list(cells),
      form,
      disable_numparse=True,
      colalign=['left' if is_text else 'right' for is_text in self.is_text],
    )

  def write(self, directory: str) -> None:
    """Writes `<name>.md`, and `<name>.csv` if it has records."""
    write_csv(directory, self.name, self.records)
    table = self.render('github', markdown, '**', '**')
    text = f'{markdown(self.legend)}\n\n{table}\n'
    write_text(directory, f'{self.name}.md', text)


def write_csv(directory: str, name: str, records: list[dict[str, Any]]) -> None:
  """Writes `<name>.csv`, unless there are no records.

  Args:
    directory: Directory of the file.
    name: Name without the ending.
    records: Rows `{column: value}`. A missing value or None is empty.
  """
  if records:
    # As objects, since integers beside missing values would become floats.
    data = pd.DataFrame(records, dtype=object)
    write_text(directory, f'{name}.csv', data.to_csv(index=False))


def write_text(directory: str, name: str, text: str) -> None:
  """Writes text as UTF-8. Bytes of a path that are not UTF-8 become escapes."""
  path = os.path.join(directory, name)
  files.write_bytes(path, text.encode(errors='backslashreplace'))


def markdown(text: str) -> str:
  """Escapes names in a line or a cell: no HTML, links, borders or line breaks."""
  line = programs.printable(' '.join(text.split()))
  escaped = minus(html.escape(line, quote=False))
  return escaped.replace('|', r'\|').replace('](', r'\](')


def minus(text: str) -> str:
  """Returns text with minus signs, not hyphens, before numbers."""
  return re.sub(r'(?<![\w.])-(?=\d)', '\N{MINUS SIGN}', text)


def runs_table(compared: Comparison, excluded: Iterable[Excluded]) -> Table:
  """Returns the table of all runs, with their protocol, and of those left out."""
  records = [
    {
      'method': method,
      'agent': run.agent,
      'game': run.game,
      'data': run.data,
      'seed': run.seed,
      'final': run.final,
      'best': run.best,
      'best_iteration': int(run.returns.argmax()),
      'iterations': run.done,
      'episodes_of_final': int(run.episodes[-1]),
      'episodes': int(run.episodes.sum()),
      **run.protocol,
      **run.provenance,
      'directory': run.directory,
      'left_out': '',
    }
    for method, run in compared.runs
  ]
  shown = ['method', 'game', 'data', 'seed', 'final', 'best', 'iterations']
  shown += ['episodes_of_final', 'epsilon', 'sticky', *_HASHES]
  text = pd.DataFrame(records, columns=shown, dtype=object).map(format_number)
  for name in _HASHES:
    text[name] = text[name].str[:8]
  text.columns = [name.replace('_', ' ') for name in text]
  records += [{'directory': d, 'left_out': reason} for d, reason in excluded]
  caption = (
    'Runs that count, with the mean returns of their final and best evaluation.'
  )
  return Table('runs', caption, text, records)


def curve_records(compared: Comparison) -> list[dict[str, Any]]:
  """Returns a record of every evaluation, including runs under way.

  A column for each of the diagnostics follows.
  """
  return [
    {
      'method': method,
      'game': run.game,
      'data': run.data,
      'seed': run.seed,
      'iteration': iteration,
      'return': float(run.returns[iteration]),
      'episodes': int(run.episodes[iteration]),
      'finished': finished,
      'directory': run.directory,
      **{name: values[iteration] for name, values in run.diagnostics.items()},
    }
    for finished, runs in ((1, compared.runs), (0, compared.unfinished))
    for method, run in runs
    for iteration in range(run.done)
  ]


def scores_table(compared: Comparison, kind: str) -> Table:
  """Returns the table of scores: for each game, the mean over runs and its interval.

  Args:
    compared: Runs.
    kind: 'final' or 'best'.
  """
  games, known = compared.games, normalisation.load()
  references = {
    'Random (reference)': 'random',
    'Online DQN (reference)': f'dqn_{kind}',
  }
  records = [
    _score_record(game, name, kind, (known[game][score], None, None))
    for name, score in references.items()
    for game in games
    if score in known.get(game, {})
  ]
  for method, by_game in compared.scores(kind).items():
    estimates = _estimate_means(by_game)
    for game in sorted(by_game):
      runs = compared.select(method, game)
      seeds = {'seeds': ' '.join(run.seed for run in runs), 'runs': len(runs)}
      records.append(_score_record(game, method, kind, estimates[game]) | seeds)
  columns = dict.fromkeys([*references, *(name for name, _ in compared.runs)])
  intervals = {
    (r['game'], r['method']): (r['mean'], r['low'], r['high']) for r in records
  }
  cells = pd.Series(intervals).unstack().reindex(games, columns=[*columns])
  own = cells.drop(columns=references, errors='ignore')
  bold = own.apply(are_best, axis=1).reindex_like(cells)
  axis = 'game'
  if cells.shape[1] > len(games):  # Rows are the longer axis.
    cells, bold, axis = cells.T, bold.T, 'method'
  text = cells.map(lambda i: interval_text(*i), na_action='ignore').fillna('')
  caption = f'Returns {_KINDS[kind]}: mean over runs (95 % bootstrap interval).'
  text = text.rename_axis(axis).reset_index()
  return Table(
    f'scores_{kind}', caption, text, records, bold.reset_index(drop=True)
  )


def aggregate_records(summaries: list[Summary]) -> list[dict[str, Any]]:
  """Returns a record of each metric of each method, of all summaries."""
  return [
    {
      'method': method,
      'score': summary.kind,
      'normaliser': summary.normaliser,
      'metric': metric,
      **dict(zip(('value', 'low', 'high'), interval, strict=True)),
      'runs': len(summary.scores[method]),
      'games': len(summary.games),
      'names_of_games': ' '.join(summary.games),
    }
    for summary in summaries
    for method, intervals in intervals_of(summary).items()
    for metric, interval in intervals.items()
  ]


def improvement_records(summaries: list[Summary]) -> list[dict[str, Any]]:
  """Returns a record of the probability of improvement of each pair of methods."""
  return [
    {
      'score': summary.kind,
      'normaliser': summary.normaliser,
      'method': method,
      'over': other,
      **dict(zip(('value', 'low', 'high'), interval, strict=True)),
    }
    for summary in summaries
    for (method, other), estimate in summary.improvements.items()
    for interval in estimate.by_name(['']).values()
  ]


def intervals_of(summary: Summary) -> dict[str, dict[str, Interval]]:
  """Returns the aggregates of each method, `{method: {metric: interval}}`."""
  return {
    method: estimate.by_name(_AGGREGATES[: len(estimate.value)])
    for method, estimate in summary.metrics.items()
  }


def are_best(intervals: pd.Series, lowest: bool = False) -> pd.Series:
  """Returns which intervals overlap with that of the best value.

  None do if all do, or if a value has no interval, as of a single run.

  Args:
    intervals: Values and the ends of their intervals; NaN for a missing one.
    lowest: Whether low values are good.
  """
  found = [i if isinstance(i, tuple) else (None,) * 3 for i in intervals]
  value, *ends = (-1 if lowest else 1) * np.array(found, float).T
  low, high = np.sort(np.where(np.isnan(ends), value, ends), axis=0)
  are = high >= low[np.nanargmax(value)]
  known = np.isfinite(value)
  are &= are.sum() < known.sum() and bool(np.isfinite(ends)[:, known].all())
  return pd.Series(are, intervals.index)


def aggregates_table(summary: Summary) -> Table:
  """Returns the table of aggregates of a summary."""
  intervals = pd.DataFrame(intervals_of(summary)).T
  bold = intervals.apply(lambda c: are_best(c, c.name == 'Optimality gap'))
  text = intervals.map(lambda interval: interval_text(*interval))
  if (above := aggregates.GAMES_ABOVE) in text:
    text[above] = intervals[above].map(lambda interval: f'{interval[0]:.0f}')
  caption = (
    f'{summary.kind.capitalize()} scores, normalised by the '
    f'{normalisation.reference_name(summary.normaliser)}, over {summary.sample} (95 % '
    'stratified bootstrap intervals).'
  )
  name = f'aggregates_{summary.kind}_{summary.normaliser}'
  text = text.rename_axis('method').reset_index()
  return Table(name, caption, text, [], bold.reset_index(drop=True))


def _score_record(
  game: str, method: str, kind: str, interval: tuple
) -> dict[str, Any]:
  mean, *_ = interval
  normalised = {
    f'normalised_{name}': float(normalisation.normalise(mean, game, name))
    for name in (f'dqn_{kind}', 'human', 'gamer')
    if normalisation.can_normalise(game, name)
  }
  return {
    'game': game,
    'method': method,
    'score': kind,
    **dict(zip(('mean', 'low', 'high'), interval, strict=True)),
    **normalised,
  }


def _estimate_means(by_game: dict[str, list[float]]) -> dict[str, tuple]:
  """Returns mean and interval of each game, `{game: (value, low, high)}`.

  Games with the same number of runs are resampled together.
  """
  estimates: dict[str, tuple] = {}
  for count in {len(scores) for scores in by_game.values()}:
    games = [game for game, scores in by_game.items() if len(scores) == count]
    scores = np.stack([by_game[game] for game in games], axis=1)
    estimate = aggregates.game_means(scores)
    estimates |= estimate.by_name(games)
  return estimates


def interval_text(
  value: float, low: float | None, high: float | None, between: str = ', '
) -> str:
  """Returns `1.2 (0.9, 1.5)`, or `1.2` without an interval."""
  if low is None:
    return format_number(value)
  ends = between.join(map(format_number, (low, high)))
  return f'{format_number(value)} ({ends})'


def format_number(value) -> str:
  """Returns a float in three digits, or text and integers unchanged."""
  if isinstance(value, str | int):
    return str(value)
  value = round(value, 2) or 0.0  # Not -0.00.
  if abs(value) >= 100:
    return f'{value:.0f}'
  return f'{value:.1f}' if abs(value) >= 10 else f'{value:.2f}'
