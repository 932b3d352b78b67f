"""Reports on any number of runs: tables, aggregates with intervals, plots, a page.

  python -m batch_rl.report runs/ --out=report

Reads all runs in the directories that it is given, ours and Dopamine's logs. Runs of
one agent are averaged if they differ in nothing but seed and data; what is not
comparable is said to be.
"""

import argparse
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator

import tqdm.auto as tqdm

from batch_rl.atari import roms
from batch_rl.report import (
  aggregates,
  comparison,
  normalisation,
  page,
  plots,
  run_results,
  tables,
)
from batch_rl.report.comparison import Comparison
from batch_rl.utils import files

_PAGE = 'index.html'


def main(arguments: list[str] | None = None) -> int:
  """Makes the report; returns the exit code."""
  options = _parser().parse_args(arguments)
  try:
    write_report(options)
  except ValueError as error:
    print(f'report: error: {error}', file=sys.stderr)
    return 2
  except OSError as error:
    print(f'report: error: {files.reason(error)}', file=sys.stderr)
    return 2
  return 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m batch_rl.report',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    'directories', nargs='+', help='base_dirs, or directories of them'
  )
  parser.add_argument('--out', required=True, help='directory for the report')
  parser.add_argument(
    '--name',
    action='append',
    default=[],
    metavar='DIR=AGENT[/GAME]',
    help='what the runs in DIR are, where they do not say it (Dopamine)',
  )
  parser.add_argument(
    '--iterations',
    type=int,
    metavar='K',
    help='of each run, the first K count: compares runs of different length, and '
    'those under way',
  )
  parser.add_argument(
    '--agents',
    metavar='REGEX',
    default='',
    help='only methods whose name matches',
  )
  parser.add_argument(
    '--games', metavar='A,B', help='only these games', default=''
  )
  parser.add_argument(
    '--normaliser',
    choices=('dqn', 'human'),
    default='dqn',
    help='of the plots; tables have both (default: %(default)s, as in the paper)',
  )
  parser.add_argument(
    '--repetitions',
    type=int,
    default=2000,
    metavar='N',
    help='of the bootstrap (default: %(default)s)',
  )
  return parser


def write_report(options: argparse.Namespace) -> None:
  """Reads, compares, writes.

  Raises:
    ValueError: if there is nothing to report, or an option is wrong.
  """
  _check(options)
  found, unread = _read(options)
  compared = comparison.compare(found, options.iterations)
  compared = compared.only(
    options.agents, _games(options.games, compared.games_with_curves)
  )
  if not compared.runs and not compared.unfinished:
    reasons = ''.join(f'; {path}: {why}' for path, why in unread[:4])
    raise ValueError(f'No run can be reported on{reasons}.')
  with _replaced(options.out) as directory:
    parts = _Report(compared, unread, options)
    parts.write(directory)
  parts.show()
  print(f'report: {os.path.join(options.out, _PAGE)}')


def _check(options: argparse.Namespace) -> None:
  if options.repetitions < 100:
    raise ValueError(
      f'--repetitions={options.repetitions}: intervals need 100 at least.'
    )
  if options.iterations is not None and options.iterations < 1:
    raise ValueError(f'--iterations={options.iterations} is not from 1 on.')
  try:
    re.compile(options.agents)
  except re.error as error:
    raise ValueError(
      f'--agents={options.agents} is not a regular expression: {error}.'
    ) from error
  there = os.path.exists(options.out)
  if there and not os.path.isdir(options.out):
    raise ValueError(f'--out={options.out} is a file; choose a directory.')
  if there and os.listdir(options.out):
    if not os.path.exists(os.path.join(options.out, _PAGE)):
      raise ValueError(
        f'--out={options.out} holds something that is no report; choose another '
        'directory.'
      )


@contextlib.contextmanager
def _replaced(directory: str) -> Iterator[str]:
  """A new directory that takes the place of one when it is complete."""
  new = f'{os.path.normpath(directory)}.partial-{os.getpid()}'
  os.makedirs(os.path.join(new, 'plots'))
  try:
    yield new
    shutil.rmtree(directory, ignore_errors=True)
    os.rename(new, directory)
  finally:
    shutil.rmtree(new, ignore_errors=True)


class _Report:
  """All parts of a report.

  Args:
    compared: the runs.
    unread: directories with nothing to report.
    options: of the command line.
  """

  def __init__(
    self,
    compared: Comparison,
    unread: list[run_results.Excluded],
    options: argparse.Namespace,
  ):
    self._compared, self._options = compared, options
    self._excluded = sorted([*unread, *compared.excluded])
    summaries = [
      aggregates.summarise(compared, kind, normaliser, options.repetitions)
      for kind in comparison.KINDS
      for normaliser in (f'dqn_{kind}', 'human')
      if compared.runs
    ]
    self._summaries = [summary for summary in summaries if summary.metrics]
    notes = [
      *comparison.notes_on(compared.runs),
      *(
        f'Aggregates by {summary.normaliser}: {note}.'
        for summary in summaries
        for note in summary.matrices.notes
      ),
    ]
    self._notes = list(dict.fromkeys(notes))
    self._scores = [
      tables.of_scores(compared, kind, options.repetitions)
      for kind in comparison.KINDS
      if compared.runs
    ]
    self._aggregates = [
      tables.of_aggregates(compared, self._summaries)
      for _ in self._summaries[:1]
    ]
    self._runs = tables.of_runs(compared, self._excluded)

  @property
  def _left_out(self) -> list[str]:
    return [f'{path}: {why}' for path, why in self._excluded]

  def write(self, directory: str) -> None:
    """Writes all files; the page is the last."""
    curves = tables.of_curves(self._compared)
    written = [*self._aggregates, *self._scores, self._runs, curves]
    for table in written:
      table.write(directory)
    self._write_markdown(directory, [t for t in written if t.header])
    pictures = self._draw(os.path.join(directory, 'plots'))
    is_curve = {name: name.startswith('curves') for name in pictures}
    others = [pictures[name] for name in pictures if not is_curve[name]]
    sections = [
      ('Read this first', [page.listing(self._notes)] if self._notes else []),
      ('Aggregates', [*map(page.table, self._aggregates), *others]),
      ('Scores', [*map(page.table, self._scores)]),
      (
        'Learning curves',
        [pictures[name] for name in pictures if is_curve[name]],
      ),
      ('Runs', [page.table(self._runs)]),
      ('Left out', [page.listing(self._left_out)] if self._excluded else []),
    ]
    text = page.render(
      'Offline reinforcement learning: report', self._about(), sections
    )
    files.write_bytes(os.path.join(directory, _PAGE), text.encode())

  def show(self) -> None:
    """Prints what is most important."""
    for table in (*self._scores, *self._aggregates):
      print(f'{table.caption}\n{table.render("simple")}\n')
    for line in (*self._notes, *(f'Left out: {x}' for x in self._left_out)):
      print(line)

  def _about(self) -> list[str]:
    counts = sum(
      len(runs)
      for by_game in self._compared.runs.values()
      for runs in by_game.values()
    )
    normalisers = dict.fromkeys(s.normaliser for s in self._summaries)
    return [
      f'{counts} runs count.',
      *map(normalisation.describe, normalisers),
      f'Intervals: 95 %, {self._options.repetitions} bootstrap samples, stratified '
      'by game (rliable).',
    ]

  def _draw(self, directory: str) -> dict[str, str]:
    """Writes the figures; `{name: HTML}`."""
    wanted = self._options.normaliser
    shown = [s for s in self._summaries if s.normaliser.startswith(wanted)]
    todo = plots.all_of(self._compared, shown, self._options.repetitions)
    return {
      name: page.picture(plots.write(draw(), directory, name), caption)
      for name, caption, draw in tqdm.tqdm(
        list(todo), desc='plots', disable=None, leave=False
      )
    }

  def _write_markdown(self, directory: str, shown: list[tables.Table]) -> None:
    lists = {'Read this first': self._notes, 'Left out': self._left_out}
    parts = ['# Report', '\n'.join(f'- {line}' for line in self._about())]
    parts += [
      f'## {heading}\n\n' + '\n'.join(f'- {line}' for line in lines)
      for heading, lines in lists.items()
      if lines
    ]
    for table in shown:
      text = table.render('github')
      parts.append(f'## {table.name}\n\n{table.caption}\n\n{text}')
    path = os.path.join(directory, 'report.md')
    files.write_bytes(path, ('\n\n'.join(parts) + '\n').encode())


def _read(options) -> tuple[list[run_results.Run], list[run_results.Excluded]]:
  names = {}
  for name in options.name:
    match = re.fullmatch(r'(.+)=([^=/]+)(?:/([^/]+))?', name)
    if not match:
      raise ValueError(f"--name={name} is not 'DIR=AGENT' or 'DIR=AGENT/GAME'.")
    names[os.path.realpath(match[1])] = match[2], match[3] or ''
  directories, unread = run_results.find(options.directories)
  for path in names:
    if not any(_is_inside(directory, path) for directory in directories):
      raise ValueError(f'--name: there is no run in {path}.')
  found = []
  for directory in tqdm.tqdm(
    directories, desc='runs', disable=None, leave=False
  ):
    given = [names[path] for path in names if _is_inside(directory, path)]
    try:
      found.append(run_results.read(directory, *(given[-1] if given else ())))
    except run_results.NoResults as error:
      unread.append((directory, str(error)))
  if not found and not unread:
    raise ValueError(
      f'No runs in {", ".join(options.directories)}: a run has a run.json, or '
      'logs of Dopamine.'
    )
  return found, unread


def _is_inside(path: str, directory: str) -> bool:
  path = os.path.realpath(path)
  return os.path.commonpath([path, directory]) == directory


def _games(text: str, there: list[str]) -> list[str]:
  wanted = []
  for game in filter(None, map(str.strip, text.split(','))):
    with contextlib.suppress(ValueError):
      game = roms.canonical_name(game)
    if game not in there:
      raise ValueError(
        f'--games={text}: there is no run of {game}, but of {", ".join(there)}.'
      )
    wanted.append(game)
  return wanted


if __name__ == '__main__':
  sys.exit(main())
