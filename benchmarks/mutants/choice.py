"""Which tests can see a fault: those that call the function it is in."""

import ast
import collections
import functools
import json
import pathlib
from collections.abc import Iterable

from benchmarks.mutants import calls, edits


class Choice:
  """Tests by the functions that they call, from a recorded run of all tests.

  Args:
    tree: Root of the repository.
    records: Folder of the records: `*.calls` and `*.tests`.
  """

  def __init__(self, tree: pathlib.Path, records: pathlib.Path):
    self._tree = tree
    self.seconds: dict[str, float] = {}  # of processor time, by test
    self.failed: set[str] = set()
    self._callers: dict[str, set[str]] = collections.defaultdict(set)
    self._read(records)

  def _read(self, records) -> None:
    users = collections.defaultdict(set)  # tests, by shared fixture
    for path in sorted(records.glob('*.tests')):
      for line in path.read_text().splitlines():
        row = json.loads(line)
        self.seconds[row['test']] = row['seconds']
        if row['failed']:
          self.failed.add(row['test'])
        for fixture in row['fixtures']:
          users[fixture].add(row['test'])
    for path in records.glob('*.calls'):
      for line in path.read_text().splitlines():
        test, _, function = line.partition('\t')
        self._callers[function] |= users.get(test, {test})

  def tests(
    self, path: str, edit: edits.Edit, seconds: float, without: Iterable[str]
  ) -> tuple[list[str], int]:
    """Returns the tests for a fault, the most likely first.

    These are the tests that call the function. If there are none, or the fault is
    outside functions: those that call any function of the module; else of the modules
    that import it. Of a compiled module, they are the tests in its own test file and in
    those that import it; else as above. Tests of the module's own test file come
    first, then those of test files that import it, then the others; cheap files first.

    Args:
      path: Module, relative to the root.
      edit: Fault.
      seconds: Limit of the tests' processor time.
      without: Tests that are left out.

    Returns:
      Tests, and how many more there are beyond the limit.
    """
    found = self._callers.get(f'{_module(path)}:{edit.function}', set())
    if not found and is_compiled(self._tree / path):
      # Calls of compiled functions are not recorded.
      found = {
        test
        for test in self.seconds
        if self._distance(path, test.partition('::')[0]) < 2
      }
    modules, seen = {_module(path)}, set()
    while not found and modules:
      found = {
        test
        for function, tests in self._callers.items()
        if function.partition(':')[0] in modules
        for test in tests
      }
      seen |= modules
      modules = {
        importer
        for importer, imported in self._imports.items()
        if imported & modules
      } - seen
    found = found - set(without) - self.failed
    by_file = collections.defaultdict(list)
    for test in sorted(found & set(self.seconds), key=self.seconds.get):
      by_file[test.partition('::')[0]].append(test)

    def order(item):
      file, tests = item
      mean = sum(map(self.seconds.get, tests)) / len(tests)
      return self._distance(path, file), mean

    chosen, total = [], 0.0
    for _, tests in sorted(by_file.items(), key=order):
      for test in tests:
        if total + self.seconds[test] <= seconds:
          total += self.seconds[test]
          chosen.append(test)
    return chosen, len(found) - len(chosen)

  def _distance(self, path: str, file: str) -> int:
    own = path.replace('batch_rl/', 'batch_rl/tests/', 1)[:-3] + '_test.py'
    if file == own:
      return 0
    return 2 - (_module(path) in self._imports.get(_module(file), ()))

  @functools.cached_property
  def _imports(self) -> dict[str, set[str]]:
    """Imported names of each module, with those of their packages' members."""
    found = {}
    for path in self._tree.glob('batch_rl/**/*.py'):
      found[_module(str(path.relative_to(self._tree)))] = _imported(path)
    return found


def near(tree: pathlib.Path, paths: Iterable[str]) -> list[str]:
  """Returns the test files of modules: in the same folders of tests, or importers.

  Args:
    tree: Root of the repository.
    paths: Modules or folders, relative to the root.
  """
  modules = {
    _module(str(path.relative_to(tree)))
    for name in paths
    for path in [tree / name, *(tree / name).glob('**/*.py')]
  }
  mirrored = tuple(
    name.removesuffix('.py').replace('batch_rl', 'batch_rl/tests', 1)
    for name in paths
  )
  return [
    str(path.relative_to(tree))
    for path in sorted(tree.glob('batch_rl/tests/**/*_test.py'))
    if str(path.relative_to(tree)).startswith(mirrored)
    or _imported(path) & modules
  ]


def _imported(path: pathlib.Path) -> set[str]:
  """Returns the names that a file imports, with members of packages."""
  names = set()
  for node in ast.walk(ast.parse(path.read_bytes())):
    if isinstance(node, ast.Import):
      names.update(one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
      names.add(node.module)
      names.update(f'{node.module}.{one.name}' for one in node.names)
  return names


def _module(path: str) -> str:
  return path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')


def is_compiled(path: pathlib.Path) -> bool:
  """Whether Numba compiles functions of a module."""
  return calls.is_compiled(path.read_bytes())
