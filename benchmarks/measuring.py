"""Times, tables and figures of fresh processes, for the benchmarks.

`in_new_process` runs one of the functions of `benchmarks/processes.py`; `apart` keeps
a process that is called in turn with others.
"""

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

WARM_UP = 3  # rounds


def interleave(
  functions: Mapping[str, Callable[..., Any]],
  rounds: int,
  in_a_row: int = 1,
  arguments: Callable[[], Iterable] = list,
) -> dict[str, np.ndarray]:
  """Calls functions in turn, so that what disturbs one disturbs all.

  Args:
    functions: by name.
    rounds: how many turns each gets.
    in_a_row: calls in each turn.
    arguments: makes what all are called with in a round.

  Returns:
    Seconds of each call: `{name: (rounds * in_a_row,)}`.
  """
  taken: dict[str, list[float]] = {name: [] for name in functions}
  for _ in range(rounds + WARM_UP):
    same = list(arguments())
    for name, function in functions.items():
      for _ in range(in_a_row):
        start = time.perf_counter()
        function(*same)
        taken[name].append(time.perf_counter() - start)
  return {name: np.array(t[WARM_UP * in_a_row :]) for name, t in taken.items()}


@contextlib.contextmanager
def apart(
  start: Callable[..., Callable[[], Any]], *arguments: Any, **environment: str
) -> Iterator[Callable[[], Any]]:
  """Something to be called in a process of its own, for settings of a whole process.

  Args:
    start: makes it, there.
    *arguments: of `start`.
    **environment: variables of that process.

  Yields:
    A function that calls it there, and returns what it returns.
  """
  pool = concurrent.futures.ProcessPoolExecutor(
    1,
    multiprocessing.get_context('spawn'),
    _start_apart,
    (start, arguments, environment),
  )
  with pool:
    yield lambda: pool.submit(_call_apart).result()


def _start_apart(start, arguments, environment) -> None:
  global _function
  os.environ.update(environment)
  logging.set_verbosity(logging.ERROR)
  _function = start(*arguments)


def _call_apart() -> Any:
  return _function()


def ms(seconds: np.ndarray) -> str:
  """Median and, in brackets, 10th percentile of times, in ms."""
  low, middle = np.quantile(seconds, (0.1, 0.5)) * 1e3
  digits = 2 if middle < 100 else 0
  return f'{middle:.{digits}f} ({low:.{digits}f})'


def times(slow: np.ndarray | float, fast: np.ndarray | float) -> str:
  """How many times as fast, by medians."""
  ratio = np.median(slow) / np.median(fast)
  return f'{ratio:,.0f} x' if ratio > 100 else f'{ratio:.2g} x'


def row(
  what: str, dopamine: str = '', ours: str = '', ratio='', target=''
) -> None:
  """Prints a line of the table that `bench` and `data_path` share."""
  print(
    f'| {what:<56} | {dopamine:>15} | {ours:>15} | {ratio:>7} | {target:<16} |',
    flush=True,
  )


def header(left: str = 'Dopamine', right: str = 'batch_rl') -> None:
  """Prints the head of such a table."""
  row('', left, right, 'ratio', 'target')
  row('---', '---', '---', '---', '---')


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
  """Prints a Markdown table."""
  lines = [head, ['---'] * len(head), *rows]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for line in lines:
    first, *rest = zip(line, widths, strict=True)
    cells = [first[0].ljust(first[1])] + [text.rjust(w) for text, w in rest]
    print(f'| {" | ".join(cells)} |', flush=True)
  print(flush=True)


def in_new_process(function: Callable[..., dict], *arguments) -> dict:
  """Runs a function of `benchmarks.processes` in a Python of its own.

  Returns:
    What it returns. If that has a `clock`, it becomes `from_start`, the seconds
    from the start of the process until then.
  """
  command = [sys.executable, '-m', 'benchmarks.processes', function.__name__]
  started = time.time()
  done = subprocess.run(
    [*command, *map(str, arguments)], stdout=subprocess.PIPE, check=True
  )
  result = json.loads(done.stdout)
  if 'clock' in result:
    result['from_start'] = result['clock'] - started
  return result
