"""Runs of pytest in children of a process that has TensorFlow imported already."""

import json
import os
import pathlib
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence

import pytest

from benchmarks.mutants import calls

# Programs of the tests inherit them. The processors are shared.
_ENVIRONMENT = {
  'OPENBLAS_NUM_THREADS': '1',
  'TF_NUM_INTRAOP_THREADS': '1',
  'TF_NUM_INTEROP_THREADS': '2',
}


def import_libraries() -> None:
  """Imports what most tests import, but nothing of the package or of Dopamine.

  The package changes how these are imported, in the same way if they are imported
  already.
  """
  os.environ.update(_ENVIRONMENT)
  only_now = {
    'TF_USE_LEGACY_KERAS': '1',
    'TF_CPU_ALLOCATOR_USE_BFC': 'true',
    'TF_CPP_MIN_LOG_LEVEL': '3',
  }
  os.environ.update(only_now)
  # TensorFlow imports these, unused, if it can.
  unused = ('jax', 'pandas')
  sys.modules.update(dict.fromkeys(unused))
  try:
    import hypothesis  # noqa: F401
    import numba  # noqa: F401
    import tensorflow  # noqa: F401
  finally:
    for name in unused:
      sys.modules.pop(name)
    for name in only_now:
      del os.environ[name]


class _Plugin:
  """Runs chosen tests in the given order and stops at the first failure.

  Args:
    report: File that gets the first failure: `{'test': ..., 'error': ...}`.
    tests: Names of the tests; None: all.
  """

  def __init__(self, report: pathlib.Path, tests: Sequence[str] | None = None):
    self._report = report
    self._order = tests and {test: i for i, test in enumerate(tests)}

  @pytest.hookimpl(trylast=True)
  def pytest_collection_modifyitems(self, items):
    if self._order:
      items[:] = [item for item in items if item.nodeid in self._order]
      items.sort(key=lambda item: self._order[item.nodeid])

  def pytest_runtest_logreport(self, report):
    self._note(report)

  def pytest_collectreport(self, report):
    self._note(report)

  def _note(self, report):
    if report.failed and not self._report.exists():
      crash = getattr(report.longrepr, 'reprcrash', None)
      error = getattr(crash, 'message', str(report.longrepr)[-400:])
      self._report.write_text(
        json.dumps({'test': report.nodeid, 'error': error[:400]})
      )


class _Recorder:
  """Names the current test for `calls`, and writes each test's time and result.

  What a fixture of a module or of the session calls counts for all its tests.

  Args:
    recorded: The record of calls.
    path: File that gets a line of JSON for each test.
  """

  def __init__(self, recorded, path: pathlib.Path):
    self._calls = recorded
    self._file = path.open('a')
    self._failed: set[str] = set()

  @pytest.hookimpl(wrapper=True)
  def pytest_runtest_protocol(self, item):
    self._calls.test = item.nodeid
    before = _processor_time()
    result = yield
    shared = {
      _label(one[-1])
      for one in item._fixtureinfo.name2fixturedefs.values()
      if one[-1].scope != 'function'
    }
    row = {
      'test': item.nodeid,
      'seconds': round(_processor_time() - before, 3),
      'failed': item.nodeid in self._failed,
      'fixtures': sorted(shared),
    }
    print(json.dumps(row), file=self._file, flush=True)
    return result

  @pytest.hookimpl(wrapper=True)
  def pytest_fixture_setup(self, fixturedef):
    if fixturedef.scope == 'function':
      return (yield)
    name = 'PYTEST_CURRENT_TEST'
    test, for_programs = self._calls.test, os.environ.get(name, '')
    self._calls.test = _label(fixturedef)
    os.environ[name] = f'{self._calls.test} (setup)'
    try:
      return (yield)
    finally:
      self._calls.test, os.environ[name] = test, for_programs

  def pytest_runtest_logreport(self, report):
    if report.failed:
      self._failed.add(report.nodeid)


def _label(fixturedef) -> str:
  return f'{fixturedef.baseid}@{fixturedef.argname}'


def _processor_time() -> float:
  return sum(os.times()[:4])


class Runs:
  """Starts runs of pytest.

  Args:
    tree: Root of the repository.
    folder: Folder for temporary files.
  """

  def __init__(self, tree: pathlib.Path, folder: pathlib.Path):
    self._tree, self._folder = tree, folder

  def record(self, files: Sequence[str], records: pathlib.Path, limit: float):
    """Runs test files and records their calls; returns as `run`."""
    site = self._folder / 'site'
    site.mkdir(exist_ok=True)
    shutil.copy(calls.__file__, site / 'sitecustomize.py')
    records.mkdir(exist_ok=True)
    environment = {
      calls.FOLDER: str(records),
      'PYTHONPATH': f'{site}{os.pathsep}{self._tree}',
    }

    def plugins():
      path = records / f'{os.getpid()}.tests'
      return [_Recorder(calls.start(str(records)), path)]

    return self._run(files, plugins, environment, limit, ())

  def tests(
    self, tests: Sequence[str], limit: float, fresh_cache: bool = False
  ) -> dict:
    """Runs tests up to the first failure.

    Args:
      tests: Names of the tests.
      limit: Seconds of wall time, after which the run ends.
      fresh_cache: Lets Numba compile everything again.

    Returns:
      `outcome`: 'passed', 'failed', 'timeout' or 'crashed'. `test` and `error`: the
      first failure. `seconds`: duration.
    """
    environment = {'PYTHONPATH': str(self._tree)}
    cache = self._folder / 'numba'
    if fresh_cache:
      shutil.rmtree(cache, ignore_errors=True)
      environment['NUMBA_CACHE_DIR'] = str(cache)
    report = self._folder / 'failure.json'
    report.unlink(missing_ok=True)
    files = list(dict.fromkeys(test.partition('::')[0] for test in tests))
    result = self._run(
      files, lambda: [_Plugin(report, tests)], environment, limit, ('-x',)
    )
    found = json.loads(report.read_text()) if report.exists() else {}
    if found and result['outcome'] in ('crashed', 'timeout'):
      result['outcome'] = 'failed'  # It hung after the report.
    return result | found

  def _run(
    self,
    files: Sequence[str],
    plugins: Callable[[], list],
    environment: dict[str, str],
    limit: float,
    options: Sequence[str],
  ) -> dict:
    start = time.monotonic()
    process = os.fork()
    if not process:
      try:
        self._child(files, plugins, environment, options)
      finally:
        os._exit(70)
    descriptor = os.pidfd_open(process)
    ended = select.select([descriptor], [], [], limit)[0]
    os.close(descriptor)
    # Also ends programs that tests have left behind.
    try:
      os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
      pass
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    outcome = 'timeout' if not ended else _OUTCOMES.get(status, 'crashed')
    return {'outcome': outcome, 'seconds': round(time.monotonic() - start, 1)}

  def _child(self, files, plugins, environment, options) -> None:
    os.setsid()
    output = os.open(
      self._folder / 'output.txt', os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    )
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(self._tree)
    os.environ.update(environment)
    if 'NUMBA_CACHE_DIR' in environment:
      import numba

      numba.config.CACHE_DIR = environment['NUMBA_CACHE_DIR']
    # This program's own modules are another tree's.
    for name in list(sys.modules):
      if name.partition('.')[0] == 'benchmarks':
        del sys.modules[name]
    sys.path[:] = [str(self._tree), *_without_working_folder(sys.path)]
    status = pytest.main(
      [
        '-q',
        '--tb=short',
        '-p',
        'no:cacheprovider',
        '-p',
        'no:xdist',
        f'--basetemp={self._folder / "tmp"}',
        *options,
        *files,
      ],
      plugins(),
    )
    sys.stdout.flush()
    os._exit(int(status))


_OUTCOMES = {0: 'passed', 1: 'failed', 2: 'failed', 5: 'none left'}


def _without_working_folder(path: Sequence[str]) -> list[str]:
  here = str(pathlib.Path(__file__).parents[2])
  return [one for one in path if one not in ('', here)]
