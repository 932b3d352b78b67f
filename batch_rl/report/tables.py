"""Tables of a report: runs, scores and aggregates, as Markdown, LaTeX, HTML and CSV."""

import dataclasses
import html
import os
import re
from collections.abc import Iterable
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
  'final': 'last evaluation of each run',
  'best': 'best evaluation of each run, as in the paper',
}


@dataclasses.dataclass(frozen=True)
class Table:
  """A formatted table and its data.

  Attributes:
    name: Name of the files.
    caption: Caption, one or two sentences.
    text: Formatted cells; without columns if the table is data only.
    records: Rows of the CSV file, `{column: value}`. A missing value or None is empty.
  """

  name: str
  caption: str
  text: pd.DataFrame
  records: list[dict[str, Any]]

  def render(self, form: str) -> str:
    """Returns the table as 'simple', 'github', 'latex_booktabs' or 'html'."""
    text = self.text
    if form == 'github':
      text = text.map(markdown).rename(columns=markdown)
    return tabulate.tabulate(
      text.values.tolist(),
      list(text),
      form,
      disable_numparse=True,
      colalign=['left' if is_text else 'right' for is_text in _are_text(text)],
    )

  def write(self, directory: str) -> None:
    """Writes `<name>.csv` and, of a formatted table, `<name>.md` and `<name>.tex`."""
    # As objects, since integers beside missing values would become floats.
    data = pd.DataFrame(self.records, dtype=object)
    contents = {'csv': data.to_csv(index=False)}
    if len(self.text.columns):
      caption = ''.join(
        tabulate.LATEX_ESCAPE_RULES.get(c, c) for c in self.caption
      )
      contents['md'] = f'{markdown(self.caption)}\n\n{self.render("github")}\n'
      contents['tex'] = (
        f'\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n'
        f'{self.render("latex_booktabs")}\n\\end{{table}}\n'
      )
    for ending, content in contents.items():
      path = os.path.join(directory, f'{self.name}.{ending}')
      files.write_bytes(path, encode(content))


def _are_text(cells: pd.DataFrame) -> list[bool]:
  """Returns which columns are text: the first one, and those without numbers."""
  is_number = cells.map(lambda cell: bool(re.match(r'-?\d', cell)))
  return [i == 0 or not has for i, has in enumerate(is_number.any())]


def markdown(text: str) -> str:
  """Escapes names in a line or a cell: no HTML, links, borders or line breaks."""
  line = programs.printable(' '.join(text.split()))
  escaped = html.escape(line, quote=False)
  return escaped.replace('|', r'\|').replace('](', r'\](')


def encode(text: str) -> bytes:
  """Encodes text as UTF-8. Bytes of a path that are not UTF-8 become escapes."""
  return text.encode(errors='backslashreplace')


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
    }
    for method, run in compared.runs
  ]
  shown = ['method', 'game', 'data', 'seed', 'final', 'best', 'iterations']
  shown += ['episodes_of_final', 'epsilon', 'sticky', *_HASHES]
  text = pd.DataFrame(records, columns=shown, dtype=object).map(format_number)
  for name in _HASHES:
    text[name] = text[name].str[:8]
  records += [
    {'directory': directory, 'left_out': reason}
    for directory, reason in excluded
  ]
  caption = (
    'Runs that count: mean returns of the final and the best evaluation.'
  )
  return Table('runs', caption, text, records)


def curves_table(compared: Comparison) -> Table:
  """Returns the data of every evaluation, including runs under way.

  A column for each of the diagnostics follows.
  """
  records = [
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
  caption = 'Mean returns of all evaluations.'
  return Table('curves', caption, pd.DataFrame(), records)


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
  cells = {
    (row['game'], row['method']): _interval_text(
      row['mean'], row['low'], row['high']
    )
    for row in records
  }
  columns = dict.fromkeys([*references, *(name for name, _ in compared.runs)])
  text = pd.Series(cells).unstack().reindex(index=games, columns=[*columns])
  if text.shape[1] > len(games):  # Rows are the longer axis.
    text = text.T
  text = text.fillna('').rename_axis('game')
  caption = (
    f'Returns, {_KINDS[kind]}: mean over runs (95 % bootstrap interval).'
  )
  return Table(f'scores_{kind}', caption, text.reset_index(), records)


def aggregates_table(summaries: list[Summary]) -> Table:
  """Returns the table of aggregates for all kinds of scores and normalisers."""
  rows, records = [], []
  for summary in summaries:
    games = summary.games
    for method, estimate in summary.metrics.items():
      count = len(summary.scores[method])
      intervals = estimate.by_name(_AGGREGATES[: len(estimate.value)])
      row = {
        'method': method,
        'score': summary.kind,
        'normaliser': summary.normaliser,
      }
      cells = {name: _interval_text(*i) for name, i in intervals.items()}
      if above := intervals.get(aggregates.GAMES_ABOVE):
        cells[aggregates.GAMES_ABOVE] = f'{above[0]:.0f} of {len(games)}'
      rows.append(row | {'runs x games': f'{count} x {len(games)}'} | cells)
      for metric, (value, low, high) in intervals.items():
        records.append(
          {
            **row,
            'metric': metric,
            'value': value,
            'low': low,
            'high': high,
            'runs': count,
            'games': len(games),
            'names_of_games': ' '.join(games),
          }
        )
  header = ['method', 'score', 'normaliser', 'runs x games', *_AGGREGATES]
  text = pd.DataFrame(rows, columns=header, dtype=object).fillna('')
  caption = (
    'Normalised scores over the games that all methods have (95 % stratified '
    'bootstrap intervals).'
  )
  return Table('aggregates', caption, text, records)


def _score_record(
  game: str, method: str, kind: str, interval: tuple
) -> dict[str, Any]:
  mean, low, high = interval
  normalised = {
    f'normalised_{name}': float(normalisation.normalise(mean, game, name))
    for name in (f'dqn_{kind}', 'human', 'gamer')
    if normalisation.can_normalise(game, name)
  }
  return {
    'game': game,
    'method': method,
    'score': kind,
    'mean': mean,
    'low': low,
    'high': high,
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


def _interval_text(value: float, low: float | None, high: float | None) -> str:
  """Returns `1.2 (0.9, 1.5)`, or `1.2` without an interval."""
  if low is None:
    return format_number(value)
  ends = f'{format_number(low)}, {format_number(high)}'
  return f'{format_number(value)} ({ends})'


def format_number(value) -> str:
  """Returns a float in three digits, or text and integers unchanged."""
  if isinstance(value, str | int):
    return str(value)
  if abs(value) >= 100:
    return f'{value:.0f}'
  return f'{value:.1f}' if abs(value) >= 10 else f'{value:.2f}'
