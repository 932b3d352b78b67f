"""What the commands of `python -m batch_rl.dataset` share: arguments, tables, errors."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from batch_rl.dataset import run_directories

DIRECTORY = (
  'a run, <root>/<Game>/<run>, or a store; of a game or a root, the runs are '
  'listed'
)


class Parser(argparse.ArgumentParser):
  """Says what is wrong in one line."""

  def error(self, message: str) -> NoReturn:
    """Ends the program."""
    fail(f'{message} (see `{self.prog} --help`)')


def fail(message: object) -> NoReturn:
  """Ends the program with a line and exit code 2."""
  print(f'error: {" ".join(str(message).split())}', file=sys.stderr)
  sys.exit(2)


def add_command(
  commands: Any, name: str, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
  """Adds a command; `run` returns the exit code."""
  command = commands.add_parser(
    name, help=what.split('.')[0], description=what[0].upper() + what[1:]
  )
  command.set_defaults(run=run)
  command.add_argument(
    '--json', action='store_true', help='print one JSON document, nothing else'
  )
  return command


def at_least(least: int) -> Callable[[str], int]:
  """A kind of argument: a number from `least` on."""

  def number(text: str) -> int:
    value = int(text)
    if value < least:
      raise ValueError
    return value

  number.__name__ = f'number (at least {least})'
  return number


def one_run(arguments: argparse.Namespace) -> run_directories.RunDirectory:
  """The run or store that a command is about; of what is above one, lists them."""
  run = run_directories.as_run(arguments.directory)
  if run is None:
    print_runs(arguments)
    fail(f'{arguments.directory} is not a run; choose one.')
  return run


def print_runs(arguments: argparse.Namespace) -> None:
  """Lists the runs in a directory."""
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
  """Prints columns; those in `left` begin at the left."""
  lines = list(lines)
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for line in lines:
    cells = [
      cell.ljust(width) if i in left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    print('  '.join(cells).rstrip())


def number(value: float | None, digits: int = 0) -> str:
  """With commas; '?' for None."""
  return '?' if value is None else f'{value:,.{digits}f}'


def size(count: int | None) -> str:
  """Of bytes, in kB, MB and so on; '?' for None."""
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
