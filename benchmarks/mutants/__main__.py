"""Share of small faults that the tests notice (mutation testing).

  nice python -um benchmarks.mutants [--mutants 300] [--out results.jsonl]
  nice python -um benchmarks.mutants --paths batch_rl/report --out report.jsonl

Draws lines of the package, or of `--paths`, uniformly over all lines of code that a fault
can be made in,
makes one fault at a time in a copy of a commit, and runs the tests that call the changed
function, up to `--seconds` of their processor time, until one fails. A failing test is
run alone without the fault, too: one that fails there is left out from then on.

Before, all tests run once without faults, to record which functions they call; with
`--paths`, those that import the modules or have their place in `tests/`, which takes
minutes. All of it resumes where it was interrupted; another run with the same output and all mutants
done prints the table only. Children of one process that has imported TensorFlow run the
tests, one at a time.

The share is a lower bound of what the suite notices: some faults change nothing, and a
survivor may be noticed by a test beyond the limit (`left_out` counts them).
"""

import argparse
import collections
import datetime
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time

from benchmarks import measuring
from benchmarks.mutants import calls, choice, edits, runs

FILES_A_RECORD = 6


class Mutants:
  """Faults of a commit, and what the tests find.

  Args:
    arguments: See `main`.
  """

  def __init__(self, arguments: argparse.Namespace):
    self._seconds = arguments.seconds
    self._end = time.time() + 60 * arguments.minutes
    self._out, self._paths = arguments.out, arguments.paths
    revision = ['git', 'rev-parse', '--short=12', arguments.commit]
    self._commit = subprocess.check_output(revision, text=True).strip()
    folder = arguments.work_dir.absolute() / self._commit
    folder.mkdir(parents=True, exist_ok=True)
    self._out.parent.mkdir(parents=True, exist_ok=True)
    self._tree, self._records = folder / 'tree', folder / 'records'
    self._check_out()
    self._chosen = self._draw(arguments.seed, arguments.mutants)
    self._runs = runs.Runs(self._tree, folder)
    self._reliable: set[str] = set()
    self._unreliable: set[str] = set()

  def _check_out(self) -> None:
    if not self._tree.exists():
      clone = ['git', 'clone', '--quiet', '--shared', '--no-checkout', '.']
      subprocess.run([*clone, self._tree], check=True)
    # Also undoes the fault of an interrupted run.
    reset = ['git', '-C', self._tree, 'checkout', '--quiet', '--force']
    subprocess.run([*reset, '--detach', self._commit], check=True)

  def _draw(self, seed, count) -> list[tuple[str, edits.Edit]]:
    """Draws different lines, and a fault of each."""
    lines = []
    for path in sorted(self._tree.glob('batch_rl/**/*.py')):
      name = str(path.relative_to(self._tree))
      if '/tests/' in name or not name.startswith(tuple(self._paths)):
        continue
      source = path.read_bytes()
      by_line = collections.defaultdict(list)
      for edit in edits.edits(source):
        by_line[edit.line].append(edit)
      lines += [
        (name, by_line[line])
        for line in sorted(edits.code_lines(source) & by_line.keys())
      ]
    draws = random.Random(seed)
    print(f'{len(lines):,} lines of code that a fault can be made in')
    chosen = []
    for name, found in draws.sample(lines, min(count, len(lines))):
      source = (self._tree / name).read_bytes()
      valid = [edit for edit in found if edits.compiles(source, edit)]
      if valid:
        chosen.append((name, draws.choice(valid)))
    return chosen

  def record(self) -> None:
    """Records the calls of test files that have no record yet."""
    self._records.mkdir(exist_ok=True)
    done = {path.read_text().strip() for path in self._records.glob('*.done')}
    files = choice.near(self._tree, self._paths)
    todo = [file for file in files if file not in '\n'.join(done).split()]
    start = time.time()
    for first in range(0, len(todo), FILES_A_RECORD):
      some = todo[first : first + FILES_A_RECORD]
      result = self._runs.record(some, self._records, 1800)
      (self._records / f'{time.time_ns()}.done').write_text('\n'.join(some))
      finished = first + len(some)
      left = (time.time() - start) / finished * (len(todo) - finished)
      print(
        f'record: {finished}/{len(todo)} test files, {result["outcome"]}, '
        f'{left / 60:.0f} min left',
        flush=True,
      )

  def run(self) -> list[dict]:
    """Tries the mutants that have no result yet; returns all results."""
    results = self.results()
    if len(results) == len(self._chosen):
      return results
    runs.import_libraries()
    self.record()
    self._choice = choice.Choice(self._tree, self._records)
    print(
      f'{len(self._choice.seconds):,} tests, '
      f'{sum(self._choice.seconds.values()):.0f} s of processor time; '
      f'{len(self._choice.failed)} fail without a fault and are left out: '
      f'{sorted(self._choice.failed)}'
    )
    done, start = {result['index'] for result in results}, time.time()
    todo = [i for i in range(len(self._chosen)) if i not in done]
    for finished, index in enumerate(todo, 1):
      if time.time() > self._end:
        print('The time is over.')
        break
      result = {'index': index} | self._try(index, *self._chosen[index])
      results.append(result)
      with self._out.open('a') as file:
        print(json.dumps(result), file=file)
      taken = time.time() - start
      left = datetime.timedelta(
        seconds=taken / finished * (len(todo) - finished)
      )
      caught = sum(one['outcome'] != 'survived' for one in results)
      print(
        f'{len(results)}/{len(self._chosen)} {result["outcome"]:8} '
        f'{result["seconds"]:5.1f} s  {result["path"]}:{result["line"]} '
        f'{result["kind"]}: {result["old"][:40]!r} -> {result["new"][:40]!r}  '
        f'[{caught / len(results):.0%} noticed, {60 * finished / taken:.1f}/min, '
        f'end {datetime.datetime.now() + left:%H:%M}]',
        flush=True,
      )
    return results

  def results(self) -> list[dict]:
    """Returns the results so far."""
    if not self._out.exists():
      return []
    found = [json.loads(line) for line in self._out.read_text().splitlines()]
    drawn = [(name, edit.line) for name, edit in self._chosen]
    for one in found:
      if (one['path'], one['line']) not in drawn[one['index'] :][:1]:
        sys.exit(
          f'{self._out} has results of another draw: choose another --out.'
        )
    return found

  def _try(self, index: int, name: str, edit: edits.Edit) -> dict:
    """Returns the result of one mutant."""
    path = self._tree / name
    original, status = path.read_bytes(), path.stat()
    compiled = calls.is_compiled(original)
    total = 0.0
    while True:
      tests, left_out = self._choice.tests(
        name, edit, self._seconds, self._unreliable
      )
      limit = 60 + 10 * sum(map(self._choice.seconds.get, tests))
      limit += 300 * compiled
      if not tests:
        found = {'outcome': 'passed', 'seconds': 0.0}
      else:
        # Bytecode is kept by time and size: each mutant has a time of its own.
        path.write_bytes(edit.apply(original))
        os.utime(path, ns=(0, status.st_mtime_ns + (index + 1) * 10**10))
        try:
          found = self._runs.tests(tests, limit, compiled)
        finally:
          path.write_bytes(original)
          os.utime(path, ns=(0, status.st_mtime_ns))
      total += found['seconds']
      if self._is_due_to(found, tests, limit):
        break
    return {
      'path': name,
      'line': edit.line,
      'kind': edit.kind,
      'function': edit.function,
      'old': original[edit.start : edit.end].decode(),
      'new': edit.new.decode(),
      'outcome': _NAMES[found['outcome']],
      'seconds': round(total, 1),
      'tests': len(tests),
      'left_out': left_out,
      'noticed_by': found.get('test', ''),
      'error': found.get('error', found['outcome']),
    }

  def _is_due_to(self, found: dict, tests: list[str], limit: float) -> bool:
    """Whether the result is the mutant's: the tests pass without it.

    Tests that fail without a mutant are left out from now on.
    """
    if found['outcome'] == 'passed':
      return True
    failed = found.get('test', '')
    # Errors of imports are those of a file. A hang or a crash has no name.
    suspects = (
      [test for test in tests if test == failed]
      or [test for test in tests if failed and test.startswith(failed + '::')][
        :1
      ]
      or tests
    )
    if set(suspects) <= self._reliable:
      return True
    again = self._runs.tests(suspects, limit)
    if again['outcome'] == 'passed':
      self._reliable.update(suspects)
      return True
    bad = [test for test in suspects if test == again.get('test')] or suspects
    self._unreliable.update(bad)
    print(f'fails without a fault, left out: {bad}', flush=True)
    return False


_NAMES = {
  'passed': 'survived',
  'failed': 'caught',
  'crashed': 'caught',
  'none left': 'caught',
  'timeout': 'timeout',
}


def interval(part: int, whole: int) -> tuple[float, float]:
  """Returns Wilson's 95 % interval of a share."""
  z, share = 1.96, part / whole
  centre = share + z * z / (2 * whole)
  half = z * math.sqrt(share * (1 - share) / whole + (z / (2 * whole)) ** 2)
  return tuple((centre + sign * half) / (1 + z * z / whole) for sign in (-1, 1))


def summarise(results: list[dict]) -> None:
  """Prints the survivors and the shares by kind of fault."""
  kinds = collections.defaultdict(collections.Counter)
  for result in results:
    kinds[result['kind']][result['outcome']] += 1
  for result in sorted(results, key=lambda one: (one['path'], one['line'])):
    if result['outcome'] == 'survived':
      print(
        f'survived: {result["path"]}:{result["line"]} {result["kind"]}: '
        f'{result["old"][:60]!r} -> {result["new"][:60]!r} '
        f'({result["tests"]} tests, {result["left_out"]} left out)'
      )
  total = sum(kinds.values(), collections.Counter())
  measuring.table(
    ['fault', 'mutants', 'caught', 'timeout', 'survived', 'noticed'],
    [
      [
        kind,
        str(counts.total()),
        *(str(counts[name]) for name in ('caught', 'timeout', 'survived')),
        f'{1 - counts["survived"] / counts.total():.0%}',
      ]
      for kind, counts in [*sorted(kinds.items()), ('all', total)]
    ],
  )
  noticed = total.total() - total['survived']
  low, high = interval(noticed, total.total())
  print(
    f'{noticed} of {total.total()} noticed: {noticed / total.total():.1%} '
    f'(95 % interval {low:.1%} to {high:.1%})'
  )


def main() -> None:
  """Runs the mutants that are left, and prints the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__.splitlines()[0],
    formatter_class=argparse.ArgumentDefaultsHelpFormatter,
  )
  parser.add_argument('--mutants', type=int, default=300)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--commit', default='HEAD')
  parser.add_argument(
    '--paths',
    nargs='+',
    default=['batch_rl'],
    help='modules or folders to draw lines from',
  )
  parser.add_argument(
    '--out', type=pathlib.Path, default='.mutants/results.jsonl'
  )
  parser.add_argument(
    '--seconds', type=float, default=20, help='of tests for each mutant'
  )
  parser.add_argument(
    '--minutes',
    type=float,
    default=math.inf,
    help='after which no mutant is started',
  )
  parser.add_argument(
    '--work_dir',
    type=pathlib.Path,
    default='.mutants',
    help='for the copy of the commit and the record',
  )
  parser.add_argument(
    '--record_only', action='store_true', help='record calls, try no mutant'
  )
  arguments = parser.parse_args()
  mutants = Mutants(arguments)
  if arguments.record_only:
    runs.import_libraries()
    mutants.record()
  else:
    summarise(mutants.run())


if __name__ == '__main__':
  sys.exit(main())
