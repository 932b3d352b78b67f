"""Command lines, timing, tables, CSV files, and measurements in separate processes.

`in_new_process` runs a function of `benchmarks/processes.py` in a fresh process;
`apart` keeps a process for repeated calls.
"""

import argparse
import atexit
import concurrent.futures
import contextlib
import csv
import functools
import gc
import io
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tabulate
import tqdm
from absl import logging

from batch_rl.utils import files

# Sizes are constants of the modules, so they need it when they are imported, in new
# processes, too.
QUICK = '--quick' in sys.argv
WARM_UP = 1 if QUICK else 3  # rounds
PAUSE = 0.05  # seconds before each measurement
UNAVAILABLE = 69  # exit code if a peer or a library is missing: EX_UNAVAILABLE


def parser(doc: str) -> argparse.ArgumentParser:
  """Returns the parser of a benchmark's command line.

  Args:
    doc: Docstring of its module.
  """
  end_soon()
  made = argparse.ArgumentParser(description=doc.splitlines()[0])
  made.add_argument(
    '--quick',
    action='store_true',
    help='smallest sizes, one round: shows only that it works',
  )
  return made


def end_soon() -> None:
  """Keeps Python from looking for garbage at the end of the process, for a second."""
  atexit.register(gc.freeze)


def add_parts(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
  """Adds `--parts`, which chooses parts of a long benchmark; all by default."""
  names = [*names]
  parser.add_argument(
    '--parts', nargs='+', choices=names, default=names, help='default: all'
  )


def add_work_dir(parser: argparse.ArgumentParser, default: str) -> None:
  """Adds `--work_dir`, whose subdirectory `quick` is that of `--quick`.

  The smallest form has other sizes, so no other one may continue it.
  """
  parser.add_argument(
    '--work_dir',
    type=lambda path: pathlib.Path(path, 'quick' if QUICK else ''),
    default=default,
  )


def add_out(
  parser: argparse.ArgumentParser, kept: object, default: str
) -> None:
  """Adds `--out`, and `--update` to replace results that git tracks.

  Args:
    parser: Parser of a benchmark.
    kept: Tracked file or directory.
    default: What happens without both flags.
  """
  place = parser.add_mutually_exclusive_group()
  place.add_argument(
    '--out', type=pathlib.Path, help=f'where results go; default: {default}'
  )
  place.add_argument(
    '--update',
    action='store_const',
    const=pathlib.Path(str(kept)),
    dest='out',
    help='replace the results that git tracks',
  )


def continue_record(
  options: argparse.Namespace, kept: pathlib.Path
) -> pathlib.Path:
  """Returns the directory of `--out`; a new one starts as a copy of `kept`."""
  out = options.out or options.work_dir / 'results'
  if not out.exists() or not any(out.iterdir()):
    partial = out.with_name(f'{out.name}.tmp')
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(kept, partial)
    partial.replace(out)
  return out


def leave_out(reason: str) -> NoReturn:
  """Ends a benchmark whose peer or library is missing."""
  print(f'left out: {reason}', file=sys.stderr)
  sys.exit(UNAVAILABLE)


def interleave(
  functions: Mapping[Any, Callable[[], Any]], rounds: int
) -> dict[Any, np.ndarray]:
  """Measures functions in turn, so that disturbances affect all alike.

  Args:
    functions: Functions to call, by name.
    rounds: Number of rounds; one with `--quick`.

  Returns:
    Seconds of each call: `{name: (rounds,)}`.
  """
  costs = {name: functools.partial(cost, f) for name, f in functions.items()}
  taken = take_turns(costs, rounds)
  return {name: np.array(found)[:, 0] for name, found in taken.items()}


def take_turns(
  functions: Mapping[Any, Callable[[], Any]],
  rounds: int,
  warm_up: int = WARM_UP,
) -> dict[Any, list[Any]]:
  """Calls functions in turn; see `interleave`.

  Args:
    functions: Functions to call, by name.
    rounds: Number of rounds that count; one with `--quick`.
    warm_up: Number of rounds before them.

  Returns:
    Results of the calls: `{name: [result of each round]}`.
  """
  results: dict[Any, list[Any]] = {name: [] for name in functions}
  rounds = 1 if QUICK else rounds
  for _ in tqdm.trange(rounds + warm_up, unit='round', leave=False):
    for name, function in functions.items():
      results[name].append(function())
  return {name: found[warm_up:] for name, found in results.items()}


class Cost(NamedTuple):
  """Cost of a call, or of each unit of its work.

  Attributes:
    seconds: Wall time.
    processor: Processor time in seconds, of all threads of the process.
  """

  seconds: float
  processor: float


def cost(function: Callable[[], Any], units: int | None = 1) -> Cost:
  """Measures a call.

  A pause before lets the threads of others fill up what they prepare ahead.

  Args:
    function: Function to call.
    units: Number of units of its work; None for the number that it returns.
  """
  time.sleep(PAUSE)
  seconds, processor = time.perf_counter(), time.process_time()
  returned = function()
  units = returned if units is None else units
  seconds = time.perf_counter() - seconds
  return Cost(seconds / units, (time.process_time() - processor) / units)


@contextlib.contextmanager
def apart(
  start: Callable[..., Callable[[], Any]], *arguments: Any, **environment: str
) -> Iterator[Callable[[], Any]]:
  """Keeps a function in a separate process, for process-wide settings.

  Args:
    start: Makes the function, in that process.
    *arguments: Arguments of `start`.
    **environment: Environment variables of the process.

  Yields:
    A function that calls the other one in its process and returns the result.
  """
  pool = concurrent.futures.ProcessPoolExecutor(
    1,
    multiprocessing.get_context('spawn'),
    _start_apart,
    (start, arguments, environment),
  )
  with pool:
    pool.submit(int)  # starts it, beside others
    yield lambda: pool.submit(_call_apart).result()


def _start_apart(start, arguments, environment) -> None:
  global _function
  end_soon()
  os.environ.update(environment)
  logging.set_verbosity(logging.ERROR)
  _function = start(*arguments)


def _call_apart() -> Any:
  return _function()


def ms(seconds: np.ndarray) -> str:
  """Formats the median and, in brackets, the 10th percentile in ms."""
  low, middle = np.quantile(seconds, (0.1, 0.5)) * 1e3
  digits = 2 if middle < 100 else 0
  return f'{middle:.{digits}f} ({low:.{digits}f})'


def times(slow: np.ndarray | float, fast: np.ndarray | float) -> str:
  """Formats the ratio of medians."""
  ratio = np.median(slow) / np.median(fast)
  return f'{ratio:,.0f} x' if ratio > 100 else f'{ratio:.2g} x'


def row(
  what: str, dopamine: str = '', ours: str = '', ratio='', target=''
) -> None:
  """Prints a row of a table that compares with Dopamine."""
  print(
    f'| {what:<56} | {dopamine:>15} | {ours:>15} | {ratio:>7} | {target:<16} |',
    flush=True,
  )


def header() -> None:
  """Prints the head of that table."""
  row('', 'Dopamine', 'batch_rl', 'ratio', 'target')
  row('---', '---', '---', '---', '---')


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
  """Prints a Markdown table."""
  sides = 'left', *['right'] * (len(head) - 1)
  text = tabulate.tabulate(
    rows, head, 'github', disable_numparse=True, colalign=sides
  )
  print(f'{text}\n', flush=True)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a Markdown table."""
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines) + '\n'


def write_csv(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
  """Writes rows with the columns of the first one to a CSV file."""
  rows = list(rows)
  text = io.StringIO()
  writer = csv.DictWriter(text, rows[0].keys(), lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  files.write_bytes(str(path), text.getvalue().encode())


def in_new_process(function: Callable[..., dict], *arguments) -> dict:
  """Runs a function of `benchmarks.processes` in a new process; returns its result."""
  command = [sys.executable, '-m', 'benchmarks.processes', function.__name__]
  done = subprocess.run(
    [*command, *map(str, arguments)], stdout=subprocess.PIPE, check=True
  )
  return json.loads(done.stdout)
