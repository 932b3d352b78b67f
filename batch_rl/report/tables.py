"""The report's tables: of runs, of scores, of aggregates; as Markdown, CSV, LaTeX."""

import csv
import dataclasses
import io
import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tabulate

from batch_rl.report import aggregates, normalisation
from batch_rl.report.aggregates import Summary
from batch_rl.report.comparison import Comparison, Excluded
from batch_rl.report.run_results import Run
from batch_rl.utils import files


@dataclasses.dataclass(frozen=True)
class Table:
  """A table in two forms.

  Attributes:
    name: of its files.
    caption: a sentence about what it shows.
    header: names of the columns to be read; none if it is not to be.
    rows: texts to be read.
    records: to be computed with, `{column: value}` each, None for nothing.
  """

  name: str
  caption: str
  header: list[str]
  rows: list[list[str]]
  records: list[dict[str, Any]]

  def render(self, form: str) -> str:
    """The table to be read, as 'github', 'latex_booktabs' or 'html'."""
    header, rows = self.header, self.rows
    if form == 'github':
      header, *rows = [
        [cell.replace('|', r'\|') for cell in row] for row in (header, *rows)
      ]
    align = ('left', *['right'] * (len(header) - 1))
    return tabulate.tabulate(
      rows, header, form, disable_numparse=True, colalign=align
    )

  def latex(self) -> str:
    """The table as a float of LaTeX's; needs the package booktabs."""
    caption = self.caption.replace('%', r'\%').replace('_', r'\_')
    return (
      f'\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n'
      f'{self.render("latex_booktabs")}\n\\end{{table}}\n'
    )

  def csv(self) -> str:
    """The table to be computed with."""
    text = io.StringIO()
    fields = dict.fromkeys(name for record in self.records for name in record)
    writer = csv.DictWriter(text, fields, lineterminator='\n')
    writer.writeheader()
    writer.writerows(self.records)
    return text.getvalue()

  def write(self, directory: str) -> None:
    """Writes `<name>.csv`, and `.md` and `.tex` if it is to be read."""
    texts = {'csv': self.csv()}
    if self.header:
      texts['md'] = f'{self.caption}\n\n{self.render("github")}\n'
      texts['tex'] = self.latex()
    for ending, text in texts.items():
      path = os.path.join(directory, f'{self.name}.{ending}')
      files.write_bytes(path, text.encode())


_HASHES = ('rom', 'subset_hash')  # of which some characters are shown


def of_runs(compared: Comparison, excluded: Iterable[Excluded]) -> Table:
  """Every run with what makes its results comparable, and those left out."""
  records = [
    _record(method, run)
    for method, by_game in compared.runs.items()
    for runs in by_game.values()
    for run in runs
  ]
  shown = ['method', 'game', 'data', 'seed', 'final', 'best', 'iterations']
  shown += ['episodes_of_final', 'epsilon', 'sticky', *_HASHES]
  rows = [
    [_text(record[name])[: 8 if name in _HASHES else None] for name in shown]
    for record in records
  ]
  records += [
    {'directory': directory, 'left_out': why} for directory, why in excluded
  ]
  caption = (
    'Runs that count: mean returns of the final and the best evaluation.'
  )
  return Table('runs', caption, shown, rows, records)


def _record(method: str, run: Run) -> dict[str, Any]:
  return {
    'method': method,
    'agent': run.agent,
    'game': run.game,
    'data': run.data,
    'seed': run.seed,
    'final': float(run.returns[-1]),
    'best': float(run.returns.max()),
    'best_iteration': int(run.returns.argmax()),
    'iterations': run.done,
    'episodes_of_final': int(run.episodes[-1]),
    'episodes': int(run.episodes.sum()),
    **run.protocol,
    **run.about,
    'config_hash': run.config_hash,
    'normalisers': normalisation.VERSION,
    'directory': run.directory,
  }


def of_curves(compared: Comparison) -> Table:
  """Every evaluation of every run, those under way among them."""
  groups = {1: compared.runs, 0: compared.unfinished}
  records = [
    {
      'method': method,
      'game': game,
      'data': run.data,
      'seed': run.seed,
      'iteration': iteration,
      'return': float(run.returns[iteration]),
      'episodes': int(run.episodes[iteration]),
      'finished': finished,
      'directory': run.directory,
    }
    for finished, group in groups.items()
    for method, by_game in group.items()
    for game, runs in by_game.items()
    for run in runs
    for iteration in range(run.done)
  ]
  return Table('curves', 'Mean returns of all evaluations.', [], [], records)


def of_scores(compared: Comparison, kind: str, repetitions: int) -> Table:
  """Scores of each game: the mean over runs with its interval.

  Args:
    compared: the runs.
    kind: 'final' or 'best'.
    repetitions: of the bootstrap.
  """
  references = {'Random': 'random', 'Online DQN': f'dqn_{kind}'}
  estimates = {
    method: _estimates(by_game, repetitions)
    for method, by_game in compared.scores(kind).items()
  }
  known = normalisation.load()
  columns: dict[str, list[str]] = {'game': compared.games}
  records = []
  for name, reference in references.items():
    values = {
      game: known.get(game, {}).get(reference) for game in compared.games
    }
    columns[name] = ['' if v is None else _text(v) for v in values.values()]
    for game, value in values.items():
      if value is not None:
        records.append(_score(game, name, kind, value))
  for method, by_game in compared.runs.items():
    columns[method] = []
    for game in compared.games:
      estimate = estimates[method].get(game)
      columns[method].append(interval_text(*estimate) if estimate else '')
      if estimate:
        about = _comparable(by_game[game])
        records.append(_score(game, method, kind, *estimate) | about)
  table = [[name, *cells] for name, cells in columns.items()]
  if len(columns) - 1 <= len(compared.games):
    # Games downwards; where there are more methods than games, methods.
    table = [list(row) for row in zip(*table, strict=True)]
  runs = [
    run for by in compared.runs.values() for rs in by.values() for run in rs
  ]
  return Table(
    f'scores_{kind}',
    f'Returns, {_KIND[kind]}: mean over runs (95 % bootstrap interval). '
    f'{_protocol_text(runs)}',
    table[0],
    table[1:],
    records,
  )


def _protocol_text(runs: Iterable[Run]) -> str:
  """How runs were evaluated, as far as it is the same for all."""
  names = {
    'epsilon': 'epsilon',
    'sticky': 'sticky actions',
    'steps': 'at least',
  }
  found = {
    name: {run.protocol.get(name, '?') for run in runs} for name in names
  }
  texts = [
    f'{names[name]} {values.pop()}'
    + (' agent steps' if name == 'steps' else '')
    for name, values in found.items()
    if len(values) == 1
  ]
  return f'Evaluations: {", ".join(texts)}.' if texts else ''


_KIND = {
  'final': 'last evaluation of each run',
  'best': 'best evaluation of each run, as in the paper',
}


def _score(
  game: str,
  method: str,
  kind: str,
  mean: float,
  low: float = math.nan,
  high: float = math.nan,
) -> dict[str, Any]:
  normalised = {
    f'normalised_{name}': float(normalisation.normalise(mean, game, name))
    for name in (f'dqn_{kind}', 'human')
    if normalisation.has(game, name)
  }
  return {
    'game': game,
    'method': method,
    'score': kind,
    'mean': mean,
    'low': _known(low),
    'high': _known(high),
    **normalised,
    'normalisers': normalisation.VERSION,
  }


def _comparable(runs: list[Run]) -> dict[str, Any]:
  """What makes scores of runs comparable; what differs, side by side."""

  def together(values):
    return ' '.join(dict.fromkeys(str(value) for value in values))

  return {
    'runs': len(runs),
    'seeds': ' '.join(run.seed for run in runs),
    'episodes': sum(int(run.episodes.sum()) for run in runs),
    'iterations': together(run.done for run in runs),
    **{
      name: together(run.protocol[name] for run in runs)
      for name in runs[0].protocol
    },
    'subset_hashes': together(run.about['subset_hash'] for run in runs),
  }


def _known(value: float) -> float | None:
  return None if math.isnan(value) else float(value)


def _estimates(
  by_game: dict[str, np.ndarray], repetitions: int
) -> dict[str, tuple[float, float, float]]:
  """Mean and interval of each game; games with as many runs at once."""
  found: dict[str, tuple[float, float, float]] = {}
  for count in {len(scores) for scores in by_game.values()}:
    games = [game for game, scores in by_game.items() if len(scores) == count]
    estimate = aggregates.game_means(
      np.stack([by_game[game] for game in games], axis=1), repetitions
    )
    for i, game in enumerate(games):
      found[game] = (
        float(estimate.value[i]),
        float(estimate.low[i]),
        float(estimate.high[i]),
      )
  return found


def of_aggregates(compared: Comparison, summaries: list[Summary]) -> Table:
  """All aggregates, of all kinds of scores and normalisers."""
  above = 'Games above online DQN'
  header = ['method', 'score', 'normaliser', 'runs x games']
  header += [*aggregates.METRICS, above]
  rows, records = [], []
  for summary in summaries:
    for method, estimate in summary.metrics.items():
      runs, games = summary.matrices.scores[method].shape
      named = estimate.by_name(aggregates.METRICS)
      cells = [interval_text(*numbers) for numbers in named.values()]
      if method in summary.games_above:
        named |= summary.games_above[method].by_name([above])
        cells.append(f'{named[above][0]:.0f} of {games}')
      about = [method, summary.kind, summary.normaliser, f'{runs} x {games}']
      rows.append([*about, *cells])
      by_game = compared.runs[method]
      used = [run for g in summary.matrices.games for run in by_game[g][:runs]]
      comparable = _comparable(used) | {
        'runs': runs,
        'games': games,
        'names_of_games': ' '.join(summary.matrices.games),
      }
      records += [
        {
          'method': method,
          'score': summary.kind,
          'normaliser': summary.normaliser,
          'normalisers': normalisation.VERSION,
          'metric': metric,
          'value': float(value),
          'low': _known(low),
          'high': _known(high),
          **comparable,
        }
        for metric, (value, low, high) in named.items()
      ]
  caption = (
    'Normalised scores over the games that all methods have (95 % stratified '
    f'bootstrap intervals); normalisers version {normalisation.VERSION}.'
  )
  return Table('aggregates', caption, header, rows, records)


def interval_text(value: float, low: float, high: float) -> str:
  """`1.2 (0.9, 1.5)`; without an interval if there is none."""
  if np.isnan(low):
    return _text(value)
  return f'{_text(value)} ({_text(low)}, {_text(high)})'


def _text(value) -> str:
  """A number with as many digits as a table needs."""
  if isinstance(value, str | int):
    return str(value)
  if abs(value) >= 100:
    return f'{value:.0f}'
  return f'{value:.1f}' if abs(value) >= 10 else f'{value:.2f}'
