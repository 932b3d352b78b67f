"""Damages files and reads them; prints what was detected, and what was not.

  python -um benchmarks.fuzz [--mutations 300] [--kinds shards,store] [--seed 0]
  python -um benchmarks.fuzz --only store:17 [--seed 0]

Each case damages one file, sometimes several, of a small run, and reads them as the
programs do:

| kind        | damaged files                           | readers                        |
| ----------- | --------------------------------------- | ------------------------------ |
| shards      | arrays and counters                     | reader, packer, sampler, verify |
| store       | all; before opening, and while mapped   | windows, frames, sampler, verify |
| checkpoints | all, offline and online; data of a run  | resume, evaluate               |
| json        | manifests, records, evaluations, sweeps | all programs                   |
| unplugged   | RL Unplugged's, and records inside them | reader with frames, import     |

A case is detected (an error in one line, a problem of `verify`, or a warning and an older
checkpoint), harmless (everything read equals the original), silent (something differs
without an error) or crashed (a traceback, a signal, no end, too much memory). The target
is 0 silent and 0 crashed; the exit code is 1 otherwise. A case depends on its number and
the seed only, so `--only` repeats it alone; files with times in them, such as
`progress.json`, may differ by a few bytes. 300 mutations of all kinds take about 15
minutes on two cores.
"""

import argparse
import collections
import concurrent.futures
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence

import tqdm

from benchmarks import measuring
from benchmarks.fuzz import outcomes, workers

_WORKERS = 2
_COLUMNS = (
  outcomes.DETECTED,
  outcomes.HARMLESS,
  outcomes.SILENT,
  outcomes.CRASHED,
)


class Kind:
  """The cases of one kind, in a few processes.

  Args:
    name: One of `workers.MODULES`.
    directory: Directory of all its files.
    seed: Seed of all cases.
    print_all: Whether to print detected and harmless cases, too.

  Attributes:
    counts: Number of cases of each verdict.
    failures: Descriptions of silent and crashed cases.
  """

  def __init__(
    self, name: str, directory: str, seed: int, print_all: bool = False
  ):
    self.name, self._seed, self._all = name, seed, print_all
    self.counts: collections.Counter[str] = collections.Counter()
    self.failures: list[str] = []
    self._directory = os.path.join(directory, name)
    self._lock = threading.Lock()
    self._workers: list[workers.Worker] = []
    self._stopped = False

  def run(self, numbers: Sequence[int]) -> None:
    """Runs cases and shows the progress; Ctrl-C ends the processes."""
    self._workers = [
      workers.Worker(self.name, self._directory, index, self._seed)
      for index in range(min(_WORKERS, len(numbers)))
    ]
    self._workers[0].start()  # makes the files for the others
    waiting = iter(numbers)
    with (
      tqdm.tqdm(total=len(numbers), desc=self.name, unit='case') as bar,
      concurrent.futures.ThreadPoolExecutor(_WORKERS) as pool,
    ):
      try:
        for future in [
          pool.submit(self._work, worker, waiting, bar)
          for worker in self._workers
        ]:
          future.result()
      except BaseException:
        self._stopped = True
        for worker in self._workers:
          worker.kill()
        raise
    for worker in self._workers:
      worker.close()

  def _work(self, worker, waiting, bar) -> None:
    while not self._stopped:
      with self._lock:
        number = next(waiting, None)
      if number is None:
        return
      description, outcome = worker.run(number)
      if self._stopped:
        return
      line = f'{self.name}:{number} {outcome.verdict}: {description}: '
      line += outcome.message
      with self._lock:
        self.counts[outcome.verdict] += 1
        if outcome.verdict in (outcomes.SILENT, outcomes.CRASHED):
          self.failures.append(line)
          bar.write(line, file=sys.stdout)
        elif self._all:
          bar.write(line, file=sys.stdout)
        bar.set_postfix(self.counts, refresh=False)
        bar.update()

  def row(self) -> list[str]:
    """Returns the cells of its row of the table."""
    counts = [self.counts[verdict] for verdict in _COLUMNS]
    return [self.name, *map(str, (sum(counts), *counts))]


def main() -> int:
  """Prints the failures and a table with a row for each kind."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--mutations', type=int, default=300, help='of each kind')
  parser.add_argument('--kinds', default=','.join(workers.MODULES))
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--only', help='a single case, e.g. store:17')
  parser.add_argument(
    '--all', action='store_true', help='print detected and harmless cases, too'
  )
  arguments = parser.parse_args()
  names, numbers = arguments.kinds.split(','), range(arguments.mutations)
  if arguments.only:
    name, _, number = arguments.only.partition(':')
    names, numbers = [name], range(int(number), int(number) + 1)
  if unknown := [name for name in names if name not in workers.MODULES]:
    parser.error(f'{unknown[0]} is not among {", ".join(workers.MODULES)}')
  kinds = []
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  with tempfile.TemporaryDirectory(prefix='fuzz-') as directory:
    for name in names:
      kinds.append(
        Kind(name, directory, arguments.seed, arguments.all or arguments.only)
      )
      try:
        kinds[-1].run(numbers)
      except KeyboardInterrupt:
        break
  measuring.table(
    ['kind', 'mutations', *_COLUMNS], [kind.row() for kind in kinds]
  )
  for failure in [failure for kind in kinds for failure in kind.failures]:
    print(failure)
  done = sum(sum(kind.counts.values()) for kind in kinds)
  is_complete = done == len(names) * len(numbers)
  return int(any(kind.failures for kind in kinds) or not is_complete)


if __name__ == '__main__':
  sys.exit(main())
