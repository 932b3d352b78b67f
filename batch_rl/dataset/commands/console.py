"""Arguments, tables and errors of all commands of `python -m batch_rl.dataset`."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from batch_rl.dataset import run_directories
from batch_rl.utils import programs

DIRECTORY = (
  'run directory, <root>/<Game>/<run>, or store; for a game or a dataset root, the '
  'command lists the runs'
)


class Parser(argparse.ArgumentParser):
  """Argument parser with one-line errors."""

  def error(self, message: str) -> NoReturn:
    """Ends the program with exit code 2."""
    fail(f'{message} (see `{self.prog} --help`)')


def fail(message: object) -> NoReturn:
  """Ends the program with a one-line error and exit code 2."""
  line = programs.printable(' '.join(str(message).split()))
  print(f'error: {line}', file=sys.stderr)
  sys.exit(2)


def add_command(
  commands: Any,
  name: str,
  run: Callable[[argparse.Namespace], int],
  description: str,
) -> argparse.ArgumentParser:
  """Adds a command with the option `--json`.

  Args:
    commands: Subcommands of the main parser.
    name: Name of the command.
    run: Function of the parsed arguments that returns the exit code.
    description: Help text; its first sentence is the summary.
  """
  command = commands.add_parser(
    name,
    help=description.split('.')[0],
    description=description[0].upper() + description[1:],
  )
  command.set_defaults(run=run)
  command.add_argument(
    '--json',
    action='store_true',
    help='print one JSON document and nothing else',
  )
  return command


def one_run(arguments: argparse.Namespace) -> run_directories.RunDirectory:
  """Returns the run or store in `directory`; fails with a list of runs otherwise."""
  run = run_directories.as_run(arguments.directory)
  if run is None:
    print_runs(arguments)
    fail(f'{arguments.directory} is not a run; choose one.')
  return run


def print_runs(arguments: argparse.Namespace) -> None:
  """Prints the runs in `directory`."""
  runs = run_directories.describe_runs(
    run_directories.find_runs(arguments.directory)
  )
  if arguments.json:
    print_json({'directory': arguments.directory, 'runs': runs})
    return
  head = ['game', 'run', 'shards', 'rows', 'size', 'agent']
  lines = [
    [
      run['game'],
      run['run'],
      number(run['shards']),
      number(run['rows']),
      size(run['bytes']),
      run['agent'] or '?',
    ]
    for run in runs
  ]
  print_table([head, *lines])


def print_table(
  lines: Iterable[Sequence[str]], left: Sequence[int] = ()
) -> None:
  """Prints a table.

  Args:
    lines: Cells of each line, the same number in all.
    left: Indices of the left-aligned columns.
  """
  lines = [[programs.printable(cell) for cell in line] for line in lines]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for line in lines:
    cells = [
      cell.ljust(width) if i in left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    print('  '.join(cells).rstrip())


def number(value: float | None, digits: int = 0) -> str:
  """Formats a number with thousands separators; '?' for None."""
  return '?' if value is None else f'{value:,.{digits}f}'


def size(count: int | None) -> str:
  """Formats a number of bytes as B, kB, MB, GB or TB; '?' for None."""
  if count is None:
    return '?'
  amount = float(count)
  for unit in ('B', 'kB', 'MB', 'GB'):
    if amount < 1000:
      return f'{amount:.3g} {unit}'
    amount /= 1000
  return f'{amount:,.1f} TB'


def print_json(document: Any) -> None:
  """Prints one JSON document."""
  print(json.dumps(document, indent=1))
