"""Reports on training runs: tables, aggregates with intervals, plots, and a page.

  python -m batch_rl.report runs/ --out=report

Reads all runs in the given directories, including Dopamine's logs. Runs of one agent are
averaged if they differ only in seed and data. Other differences are noted. Published
scores are shown beside runs on the same share of the DQN Replay Dataset.
"""

import argparse
import os
import pathlib
import re
import sys

import matplotlib

from batch_rl.dataset import game_names
from batch_rl.report import (
  aggregates,
  comparison,
  latex,
  methods,
  normalisation,
  notes,
  page,
  plots,
  published,
  run_results,
  tables,
)
from batch_rl.report.comparison import Comparison
from batch_rl.utils import programs, progress_bars, staging_directory

_PAGE = 'index.html'
# Files of a report, which the next one replaces.
_FILES = re.compile(
  r'index\.html|report\.md|methods\.tex'
  r'|(runs|curves|improvements|published|scores_(final|best)'
  r'|aggregates(_(final|best)_(dqn_(final|best)|human|gamer))?)\.(csv|md|tex)'
  r'|plots(/.+\.(png|pdf))?'
)


def main(arguments: list[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""

  def make_report() -> None:
    write_report(_parser().parse_args(arguments))

  return programs.run(make_report, 'report: ')


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m batch_rl.report',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add(
    'directories', nargs='+', help='run directories, or directories above them'
  )
  add('--out', required=True, help='directory for the report')
  add(
    '--name',
    action='append',
    default=[],
    metavar='DIR=AGENT[/GAME]',
    help='agent and game of the runs in DIR, if not recorded (Dopamine)',
  )
  add(
    '--iterations',
    type=int,
    metavar='K',
    help='use the first K iterations of each run, to compare runs of different '
    'length or runs under way',
  )
  add(
    '--agents',
    metavar='REGEX',
    default='',
    help='only methods that match REGEX',
  )
  add('--games', metavar='A,B', default='', help='only these games')
  add(
    '--normaliser',
    choices=('dqn', 'human', 'gamer'),
    default='dqn',
    help='normaliser of the plots and the first sentence; tables also have dqn and human '
    '(default: %(default)s, as in the paper; gamer: as in Decision Transformer)',
  )
  return parser


def write_report(options: argparse.Namespace) -> None:
  """Reads and compares runs, writes the report, and prints its main results.

  Raises:
    ValueError: If there is nothing to report, or an option is wrong.
  """
  _check(options)
  results, unread = _read(options)
  every = comparison.compare(results, options.iterations)
  games = every.methods and _games(options.games, every.games_with_curves)
  in_games = every.only('', games)
  compared = in_games.only(options.agents, [])
  excluded = sorted([*unread, *compared.excluded])
  if in_games.methods and not compared.methods:
    raise ValueError(
      f'--agents={options.agents}: there is no such method, only '
      f'{", ".join(in_games.methods)}.'
    )
  if not compared.methods:
    reasons = '; '.join(f'{path}: {why}' for path, why in excluded[:4])
    raise ValueError(f'There are no runs to report: {reasons}')
  staging = staging_directory.StagingDirectory(options.out, replace=True)
  with staging:
    text = _write_files(compared, excluded, options, staging.create('report'))
    staging.publish()
  text += f'\nreport: {os.path.join(options.out, _PAGE)}'
  print('\n'.join(map(programs.printable, text.split('\n'))))


def _check(options: argparse.Namespace) -> None:
  if options.iterations is not None and options.iterations < 1:
    raise ValueError(f'--iterations={options.iterations} must be at least 1.')
  try:
    re.compile(options.agents)
  except re.error as error:
    raise ValueError(
      f'--agents={options.agents} is not a regular expression: {error}.'
    ) from error
  staging_directory.check_name(options.out)
  if os.path.isfile(options.out):
    raise ValueError(f'--out={options.out} is a file; choose a directory.')
  for path in pathlib.Path(options.out).rglob('*'):
    inside = str(path.relative_to(options.out))
    if not _FILES.fullmatch(inside):
      raise ValueError(
        f'--out={options.out} contains {inside}, which is not of a report: choose '
        'another directory.'
      )


def _write_files(
  compared: Comparison,
  excluded: list[run_results.Excluded],
  options: argparse.Namespace,
  directory: str,
) -> str:
  """Writes all files of the report, the page last; returns the text to print."""
  kinds = comparison.KINDS if compared.runs else ()
  summaries = [
    aggregates.summarise(compared, kind, normaliser)
    for kind in kinds
    for normaliser in dict.fromkeys(
      (f'dqn_{kind}', 'human', options.normaliser.replace('dqn', f'dqn_{kind}'))
    )
  ]
  remarks = notes.notes_on(compared.runs)
  remarks += [
    f'Aggregates by {summary.normaliser}: {note}.'
    for summary in summaries
    for note in summary.notes
  ]
  remarks = list(dict.fromkeys(remarks))
  left_out = [f'{path}: {reason}' for path, reason in excluded]
  summaries = [summary for summary in summaries if summary.metrics]
  shown = [s for s in summaries if s.normaliser.startswith(options.normaliser)]
  final = next((s for s in shown if s.kind == 'final'), None)
  answer, details = methods.answer(compared, final)
  aggregated = [tables.aggregates_table(summary) for summary in summaries]
  scores = [tables.scores_table(compared, kind) for kind in kinds]
  runs = tables.runs_table(compared, excluded)
  others, notes_on_others = published.beside(compared)
  formatted = [*scores, *aggregated, *others]
  for table in (*formatted, runs):
    table.write(directory)
  tables.write_csv(directory, 'aggregates', tables.aggregate_records(summaries))
  tables.write_csv(directory, 'improvements', tables.improvement_records(shown))
  tables.write_csv(directory, 'curves', tables.curve_records(compared))
  for table in formatted:
    latex.write(table, directory)
  normalisers = dict.fromkeys(s.normaliser for s in summaries)
  paragraph = methods.paragraph(compared, normalisers) if compared.runs else ''
  tables.write_text(directory, 'methods.tex', latex.escape(paragraph))
  pictures = _draw(compared, shown, directory)
  curves, further, aggregates_drawn = (
    [pictures.pop(name) for name in list(pictures) if re.match(pattern, name)]
    for pattern in ('curves$|efficiency', 'curves_|diagnostics', '')
  )
  sections: list[page.Section] = [
    ('Learning curves', [*curves]),
    (page.FOLDED, [*further]),
    ('Scores', [*scores]),
    ('Aggregates', [*aggregated, *aggregates_drawn]),
    ('Published scores', [*others, notes_on_others]),
    ('Methods', [paragraph]),
    (page.NOTES, [remarks]),
    ('Left out', [left_out]),
    ('Runs', [runs]),
    ('Reference scores', [[*map(normalisation.describe, normalisers)]]),
  ]
  tables.write_text(directory, _PAGE, page.to_html(answer, details, sections))
  lines = [f'{t.caption}\n{t.render("simple")}\n' for t in formatted]
  lines += [*notes_on_others, *remarks]
  lines += [f'Left out: {line}' for line in left_out]
  return '\n'.join([*lines, f'\n{answer} {details}'])


def _draw(
  compared: Comparison, summaries: list[aggregates.Summary], directory: str
) -> dict[str, page.Picture]:
  """Writes the figures; returns them by name."""
  figures = plots.Plotter(compared).figures(summaries)
  folder = os.path.join(directory, 'plots')
  os.makedirs(folder)
  with matplotlib.rc_context(plots.PARAMETERS):
    return {
      name: page.Picture(plots.write(plot, folder, name), caption)
      for name, caption, plot in figures
    }


def _read(
  options: argparse.Namespace,
) -> tuple[list[run_results.RunResults], list[run_results.Excluded]]:
  """Returns the results of all runs, and the directories without results."""
  names = {}
  for name in options.name:
    match = re.fullmatch(r'(.+)=([^=/]+)(?:/(.+))?', name)
    if not match:
      raise ValueError(f"--name={name} is not 'DIR=AGENT' or 'DIR=AGENT/GAME'.")
    names[pathlib.Path(match[1]).resolve()] = match[2], match[3] or ''
  directories, unread = run_results.find_runs(options.directories)
  results, used = [], set()
  for directory in progress_bars.bar(directories, desc='runs'):
    resolved = pathlib.Path(directory).resolve()
    given = [path for path in names if resolved.is_relative_to(path)]
    used.update(given)
    # The folder nearest to the run.
    named = names[max(given, key=lambda path: len(path.parts))] if given else ()
    try:
      results.append(run_results.read_run(directory, *named))
    except run_results.NoResultsError as error:
      unread.append((directory, error.reason))
  for path in names.keys() - used:
    raise ValueError(f'--name={path}=...: there is no run in this directory.')
  if not results and not unread:
    raise ValueError(
      f'No runs in {", ".join(options.directories)}: a run has a run.json or '
      "Dopamine's logs."
    )
  return results, unread


def _games(text: str, available: list[str]) -> list[str]:
  """Returns the games in the comma-separated text of `--games`."""
  names = filter(None, map(str.strip, text.split(',')))
  chosen = [game_names.canonical(name) for name in names]
  if missing := [game for game in chosen if game not in available]:
    raise ValueError(
      f'--games={text}: there is no run of {missing[0]}, only of '
      f'{", ".join(available)}.'
    )
  return chosen


if __name__ == '__main__':
  sys.exit(main())
