"""Parser and output of all commands of `python -m batch_rl.dataset`."""

import argparse
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import tabulate

from batch_rl.dataset import run_directories
from batch_rl.utils import programs


class Parser(argparse.ArgumentParser):
  """Argument parser whose errors are those of `programs.run`."""

  def error(self, message: str) -> NoReturn:
    """Raises a ValueError."""
    raise ValueError(f'{message} (see `{self.prog} --help`)')


def add_command(
  commands: Any, run: Callable[[argparse.Namespace], int], name: str
) -> argparse.ArgumentParser:
  """Adds a command with the option `--json`.

  Args:
    commands: Subcommands of the main parser.
    run: Function of the parsed arguments that returns the exit code. Its docstring is
      the help text.
    name: Name of the command.
  """
  text = inspect.cleandoc(run.__doc__ or '')
  command = commands.add_parser(
    name, help=text.partition('\n')[0], description=text
  )
  command.set_defaults(function=run)
  command.add_argument(
    '--json',
    action='store_true',
    help='print one JSON document and nothing else',
  )
  return command


def show(
  arguments: argparse.Namespace, document: Any, lines: Iterable[str]
) -> None:
  """Prints a document with `--json`, and lines of text otherwise."""
  if arguments.json:
    lines = [json.dumps(document, indent=1)]
  for line in lines:
    print(line)


def one_run(
  arguments: argparse.Namespace, remedy: str = 'choose one'
) -> run_directories.RunDirectory:
  """Returns the run or store in `directory`; lists the runs below otherwise.

  Raises:
    ValueError: If the directory is not a run.
  """
  run = run_directories.as_run(arguments.directory)
  if run is None:
    list_runs(arguments)
    raise ValueError(f'{arguments.directory} is not a run; {remedy}.')
  return run


def list_runs(arguments: argparse.Namespace) -> None:
  """Prints the runs in `directory`."""
  found = run_directories.find_runs(arguments.directory)
  runs = run_directories.describe_runs(found)
  lines = [['game', 'run', 'shards', 'rows', 'size', 'agent']]
  for run in runs:
    counts = [number(run['shards']), number(run['rows']), size(run['bytes'])]
    lines.append([run['game'], run['run'], *counts, run['agent'] or '?'])
  document = {'directory': arguments.directory, 'runs': runs}
  show(arguments, document, table(lines))


def table(
  lines: Iterable[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
  """Returns the lines of a table.

  Args:
    lines: Cells of each line, the same number in all.
    left: Indices of the left-aligned columns.
  """
  cells = [[programs.printable(cell) for cell in line] for line in lines]
  aligned = ['left' if i in left else 'right' for i in range(len(cells[0]))]
  text = tabulate.tabulate(
    cells, tablefmt='plain', colalign=aligned, disable_numparse=True
  )
  return [line.rstrip() for line in text.splitlines()]


def number(value: float | None, digits: int = 0) -> str:
  """Formats a number with thousands separators; '?' for None."""
  return '?' if value is None else f'{value:,.{digits}f}'


def size(count: int | None) -> str:
  """Formats a number of bytes as B, kB, MB, GB or TB; '?' for None."""
  if count is None:
    return '?'
  amount = float(count)
  for unit in ('B', 'kB', 'MB', 'GB'):
    if amount < 999.5:  # From there on, three digits are 1e+03.
      return f'{amount:.3g} {unit}'
    amount /= 1000
  return f'{amount:,.1f} TB'
