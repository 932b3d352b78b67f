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
import contextlib
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence

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


def run(
  name: str, directory: str, seed: int, numbers: Sequence[int]
) -> Iterator[tuple[int, str, outcomes.Outcome]]:
  """Runs cases of a kind in a few processes, which end with this generator.

  Args:
    name: One of `workers.MODULES`.
    directory: Directory of all files of the kind.
    seed: Seed of all cases.
    numbers: Numbers of the cases.

  Yields:
    Number, description and outcome of each case, in order.
  """
  started = [
    workers.Worker(name, directory, index, seed)
    for index in range(min(_WORKERS, len(numbers)))
  ]
  idle: queue.SimpleQueue[workers.Worker] = queue.SimpleQueue()
  for worker in started:
    idle.put(worker)

  def run_one(number):
    worker = idle.get()
    try:
      return number, *worker.run(number)
    finally:
      idle.put(worker)

  pool = concurrent.futures.ThreadPoolExecutor(_WORKERS)
  try:
    started[0].start()  # makes the files for the others
    yield from pool.map(run_one, numbers)
    for worker in started:
      worker.close()
  finally:  # an error or Ctrl-C does not wait for the cases under way
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in started:
      worker.kill()


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
  counts: dict[str, collections.Counter[str]] = {}
  failures = []
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  with (
    tempfile.TemporaryDirectory(prefix='fuzz-') as directory,
    contextlib.suppress(KeyboardInterrupt),  # a table of the cases so far
  ):
    for name in names:
      counts[name] = collections.Counter()
      folder = os.path.join(directory, name)
      with (
        contextlib.closing(run(name, folder, arguments.seed, numbers)) as cases,
        tqdm.tqdm(cases, name, len(numbers), unit='case') as bar,
      ):
        for number, description, outcome in bar:
          counts[name][outcome.verdict] += 1
          bar.set_postfix(counts[name], refresh=False)
          line = f'{name}:{number} {outcome.verdict}: {description}: '
          line += outcome.message
          failed = outcome.verdict in (outcomes.SILENT, outcomes.CRASHED)
          if failed:
            failures.append(line)
          if failed or arguments.all or arguments.only:
            bar.write(line, file=sys.stdout)
  rows = []
  for name, found in counts.items():
    cells = found.total(), *(found[verdict] for verdict in _COLUMNS)
    rows.append([name, *map(str, cells)])
  measuring.table(['kind', 'mutations', *_COLUMNS], rows)
  for failure in failures:
    print(failure)
  done = sum(found.total() for found in counts.values())
  return int(bool(failures) or done < len(names) * len(numbers))


if __name__ == '__main__':
  sys.exit(main())
