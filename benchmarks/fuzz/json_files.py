"""Damaged JSON and YAML, read by the data tools, resume, evaluate, report and sweep."""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import dataclasses
import functools
import json
import math
import os
import shutil
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from batch_rl.dataset import __main__ as data_tools
from batch_rl.dataset import run_directories
from batch_rl.dataset.shards import replay_log, shard_files
from batch_rl.dataset.store import store
from batch_rl.fixed_replay import recorded_run
from batch_rl.report import __main__ as report
from batch_rl.runs import evaluations, games, progress, run_record
from batch_rl.sweep import monitor, plan
from batch_rl.tests.sweep import made_up_sweeps
from batch_rl.utils import files
from benchmarks.fuzz import checkpoints, mutations, outcomes, shards

_MUTATIONS = {
  **mutations.ANY_SIZE,
  # Values that readers do not expect find more than bytes.
  **{f'value changed{" " * i}': mutations.change_value for i in range(12)},
}
_SETTINGS = ('agent', 'gin_config', 'replay_dir')
_OPTIONAL = ('display_name',)  # Older runs lack it.
_SWEEP = {
  'base_dir': 'out',
  'data_dir': 'data',
  'job': 'offline',
  'games': ['Pong'],
  'runs': '1-2',
  'seeds': '1-2',
  'agents': {
    'dqn': 'batch_rl/tests/sweep/configs/cartpole.gin',
    'rem': {'gin_bindings': ['tf.train.AdamOptimizer.epsilon = 1e-3']},
  },
  'gin_bindings': ['FixedReplayRunner.num_iterations = 3'],
  'grid': {'WrappedFixedReplayBuffer.batch_size': [8, 16]},
  'cpus': 1,
  'gpus': 0.5,
  'memory_gb': 4,
  'retries': 2,
  'rates': {'train': 10.0},
  'slurm': {'timeout_min': 60},
}

# A reader returns its outcome for the files below a directory.
_Reader = Callable[[str], outcomes.Outcome]


def make(directory: str) -> None:
  """Makes runs, a store and a sweep."""
  checkpoints.make(directory)
  data = os.path.join(directory, 'Pong', '1')
  data_dir = os.path.join(data, shard_files.REPLAY_LOGS)
  shards.write_run(data_dir)
  store.convert(data_dir, os.path.join(directory, 'store'))
  # Another run for the report.
  intact = os.path.join(directory, 'offline', 'intact')
  shutil.copytree(os.path.join(directory, 'offline', 'run'), intact)
  record_path = os.path.join(intact, run_record.FILE_NAME)
  record = files.read_json(record_path) or {}
  files.write_json(record_path, {**record, 'run_id': 'intact', 'seed': 2})
  for cell in _sweep(directory).cells:
    os.makedirs(cell.directory)
    state = {'arguments': cell.arguments, 'time': '', 'state': 'done'}
    state |= {'attempts': 1, 'inputs': {__file__: files.sha256(__file__)}}
    if cell.name == 'second':
      state |= {'state': 'failed', 'message': 'exit code 2: no such game'}
    files.write_json(os.path.join(cell.directory, 'sweep-offline.json'), state)
    bar = progress.Progress(cell.directory, 4)
    about = {'iteration': 1, 'phase': 'train', 'total': 9, 'unit': 'update'}
    bar.evaluation = 2.5
    bar.write(5, 10.0, about)
  with open(os.path.join(directory, 'sweep.yaml'), 'w') as stream:
    json.dump(_SWEEP, stream)  # which is YAML, too


def _sweep(directory: str) -> plan.Sweep:
  cells = [
    plan.Cell(name, 'offline', os.path.join(directory, 'cells', name), (name,))
    for name in ('first', 'second')
  ]
  return made_up_sweeps.make(*cells, base_dir=directory)


def look(content: bytes) -> Any:
  """Returns what shows that a document is damaged: its keys, types and ranges.

  Nobody can tell a document with another number or text of the same kind from an
  intact one, unless the document has a hash.
  """
  try:
    return _look(json.loads(content))
  except (ValueError, RecursionError):
    return 'not JSON'


def _look(value: Any) -> Any:
  if isinstance(value, dict):
    return {k: _look(v) for k, v in value.items() if k not in _OPTIONAL}
  if isinstance(value, list):
    return sorted({str(_look(inner)) for inner in value})
  if isinstance(value, bool | str | None):
    return type(value).__name__
  try:
    usual = math.isfinite(value) and abs(value) < 1 << 62
  except OverflowError:
    usual = False
  return type(value).__name__, value < 0, usual


def _tool(*line: str, compared: bool = True) -> _Reader:
  """Returns a reader that runs a data tool; `{}` is the directory.

  Args:
    *line: Command line.
    compared: Whether a tool that ends with 0 must print, and make, what it does for the
      intact file.
  """

  def run(directory):
    arguments = [part.format(directory) for part in line]
    outcome, printed, _ = outcomes.run_program(
      line[0], lambda: data_tools.main(arguments)
    )
    made = os.path.join(directory, 'made')
    rows = shards.content(store.Store(made)) if os.path.exists(made) else {}
    return outcome, {'output': printed, **rows} if compared else {}

  @functools.cache
  def expected(directory):
    found = run(directory)[1]
    shutil.rmtree(os.path.join(directory, 'made'), ignore_errors=True)
    return found

  def read(directory):
    outcome, found = run(directory)
    wrong = outcomes.differences(found, expected(directory))
    if outcome.verdict == outcomes.HARMLESS and wrong:
      return outcomes.Outcome(outcomes.SILENT, f'{line[0]}: other {wrong[:4]}')
    return outcome

  read.expect = expected  # type: ignore[attr-defined]
  return read


def _function(
  name: str, function: Callable[[str], Any], compared: bool = True
) -> _Reader:
  """Returns a reader that calls a function and compares its result.

  Args:
    name: Name of the reader.
    function: Function of the directory.
    compared: Whether another result is wrong; if not, only crashes are.
  """
  expected = functools.cache(lambda original: _named(function(original)))

  def read(directory):
    # The intact copy has the same path, so that results have the same paths.
    found = outcomes.read(
      name,
      lambda: _named(function(directory)),
      expected(directory) if compared else {},
    )
    if not compared and found.verdict == outcomes.SILENT:
      return outcomes.Outcome(outcomes.HARMLESS)
    return found

  read.expect = expected  # type: ignore[attr-defined]
  return read


def _named(result: Any) -> dict[str, Any]:
  return result if isinstance(result, dict) else {'result': result}


def _rows(run_dir: str) -> dict[str, Any]:
  return shards.content(store.Store(run_directories.find_data(run_dir)))


def _refuse_log(directory: str) -> dict[str, Any]:
  """Logs to the directory of a run whose rows must be kept."""
  log_dir = os.path.join(directory, 'online', shard_files.REPLAY_LOGS)
  run_json = os.path.join(directory, 'online', 'run', run_record.FILE_NAME)
  log = replay_log.ReplayLog(
    log_dir,
    (4, 1),
    np.float64,
    40,
    stack_size=1,
    metadata={'run_id': files.read_json(run_json)['run_id']},
  )
  try:
    log.add(np.ones((4, 1)), 1, 1.0, False)
  except ValueError:
    return {'log': 'refused'}
  return {'log': 'overwritten'}


def _resume(directory: str) -> dict[str, Any]:
  """Returns the seed and id with which a run resumes."""
  record = run_record.start(
    os.path.join(directory, 'offline', 'run'), **_settings(directory)
  )
  return {name: record.get(name) for name in ('run_id', 'seed', *_SETTINGS)}


def _resume_otherwise(directory: str) -> dict[str, Any]:
  """Resumes a run with other settings, which must be refused."""
  settings = _settings(directory)
  settings['gin_config'] += '\nFixedReplayDQNAgent.gamma = 0.5'
  base_dir = os.path.join(directory, 'offline', 'run')
  try:
    run_record.start(base_dir, 99, **settings)
  except ValueError:
    return {'other settings': 'refused'}
  return {'other settings': 'accepted'}


def _settings(directory: str) -> dict[str, Any]:
  intact = os.path.join(directory, 'offline', 'intact', run_record.FILE_NAME)
  record = files.read_json(intact)
  return {name: record[name] for name in _SETTINGS}


def _evaluate(directory: str) -> outcomes.Outcome:
  base_dir = os.path.join(directory, 'offline', 'run')
  return outcomes.run_program(
    'evaluate', lambda: checkpoints.evaluated(base_dir, 'last') and None
  )[0]


def _report(directory: str) -> dict[str, Any]:
  """Returns the results of both runs in a report; raises what it excludes."""
  found: dict[str, Any] = {}

  def keep(compared, excluded, options, folder):
    del options, folder
    found['excluded'] = excluded
    for runs in (compared.runs, compared.unfinished):
      found[f'table {len(found)}'] = [
        (method, run.game, run.final, run.best) for method, run in runs
      ]
    return ''

  with mock.patch.object(report, '_write_files', keep):
    outcome = outcomes.run_program(
      'report',
      lambda: report.main(
        [
          os.path.join(directory, 'offline'),
          f'--name={os.path.join(directory, "offline")}=DQN/CartPole',
          f'--out={os.path.join(directory, "made")}',
        ]
      ),
    )[0]
  if outcome.verdict == outcomes.CRASHED:
    raise AssertionError(outcome.message)
  if outcome.verdict == outcomes.DETECTED:
    raise AssertionError(f'one damaged run fails all: {outcome.message}')
  if found['excluded']:
    raise ValueError(f'excluded: {found["excluded"]}')
  return found


def _watch(directory: str) -> str:
  """Shows the cells of a sweep."""
  sweep = _sweep(directory)
  watched = monitor.Monitor(sweep)
  return str((watched.table(40), watched.summary(), watched.seconds_left()))


def _plan(directory: str) -> Any:
  """Reads the sweep's file."""
  sweep = plan.read(os.path.join(directory, 'sweep.yaml'), {})
  return [plan.command(cell) for cell in sweep.cells[:100]]


def _join(function: Callable[[str], Any], *parts: str) -> Callable[[str], Any]:
  return lambda directory: function(os.path.join(directory, *parts))


@dataclasses.dataclass(frozen=True)
class _Subject:
  """A file and its readers.

  Attributes:
    path: Path of the file.
    readers: Readers of the file.
    share: Share of the cases.
    hashed: Whether the document has a hash, so that any change can be seen.
  """

  path: str
  readers: tuple[_Reader, ...]
  share: int = 1
  hashed: bool = False


_RUN = os.path.join('offline', 'run')
_SHARDS = os.path.join('Pong', '1')
_STORE = (
  _tool('verify', '{}/store', compared=False),
  _tool('inspect', '{}/store', '--json'),
  _tool('subset', '{}/store', 'random_trajectories(0.5)'),
  _function('rows', _join(_rows, 'store')),
)
_SWEEPS = (_function('monitor', _watch, compared=False),)
_REPORT = _function('report', _report)
_SUBJECTS = (
  _Subject(
    os.path.join(_SHARDS, shard_files.REPLAY_LOGS, 'manifest.json'),
    (
      _tool('verify', '{}/Pong/1', compared=False),
      # A list of runs has a ? for what it cannot tell.
      _tool('inspect', '{}/Pong', compared=False),
      _tool('inspect', '{}/Pong/1'),
      _tool('subset', '{}/Pong/1', 'random_trajectories(0.5)', '--json'),
      _tool('convert', '{}/Pong/1', '{}/made'),
      _function('rows', _join(_rows, _SHARDS)),
      _function(
        'game', _join(games.logged_game, _SHARDS, shard_files.REPLAY_LOGS)
      ),
    ),
    3,
  ),
  _Subject(
    os.path.join('online', shard_files.REPLAY_LOGS, 'manifest.json'),
    (
      _tool('verify', '{}/online', compared=False),
      _function('log', _refuse_log),
    ),
  ),
  _Subject(os.path.join('store', 'store.json'), _STORE, hashed=True),
  _Subject(os.path.join('store', 'shard-1.json'), _STORE, hashed=True),
  _Subject(os.path.join('store', 'manifest.json'), _STORE),
  _Subject(
    os.path.join(_RUN, run_record.FILE_NAME),
    (
      _function('resume', _resume),
      _function('resume with other settings', _resume_otherwise),
      _REPORT,
      _evaluate,
    ),
    3,
  ),
  _Subject(
    os.path.join(_RUN, evaluations.DIRECTORY, '1.json'),
    (_function('best', _join(recorded_run.best_iteration, _RUN)), _REPORT),
    2,
  ),
  _Subject(
    os.path.join(_RUN, progress.FILE_NAME),
    (
      _function(
        'progress',
        _join(lambda path: progress.Progress(path, 3).finish(), _RUN),
      ),
    ),
  ),
  _Subject(os.path.join('cells', 'first', progress.FILE_NAME), _SWEEPS),
  _Subject(os.path.join('cells', 'first', 'sweep-offline.json'), _SWEEPS),
  _Subject(os.path.join('cells', 'second', 'sweep-offline.json'), _SWEEPS),
  _Subject('sweep.yaml', (_function('plan', _plan, compared=False),), 2),
)


class Cases:
  """Cases with damaged JSON or YAML.

  Args:
    original: Directory that `make` filled.
    scratch: Directory for damaged copies.
  """

  def __init__(self, original: str, scratch: str):
    self._original, self._scratch = original, scratch
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(original, scratch)
    for subject in _SUBJECTS:
      for reader in subject.readers:
        if hasattr(reader, 'expect'):
          reader.expect(scratch)

  def draw(self, random: np.random.Generator) -> outcomes.Case:
    """Returns a random case."""
    subject = mutations.choose(
      random, [s for s in _SUBJECTS for _ in range(s.share)]
    )
    with open(os.path.join(self._original, subject.path), 'rb') as stream:
      content = stream.read()
    mutation, damaged = mutations.mutate(content, random, _MUTATIONS)
    visible = subject.hashed or look(content) != look(damaged)
    change = mutations.describe_change(content, damaged)
    return outcomes.Case(
      f'{subject.path}: {mutation.strip()} {change}',
      functools.partial(self._check, subject, damaged, visible),
    )

  def _check(self, subject, damaged, visible) -> outcomes.Outcome:
    found = []
    top = subject.path.split(os.sep)[0]
    for reader in subject.readers:
      self._restore(top)
      with open(os.path.join(self._scratch, subject.path), 'wb') as stream:
        stream.write(damaged)
      found.append(reader(self._scratch))
    self._restore(top)
    worst = outcomes.worst(found)
    if worst.verdict == outcomes.SILENT and not visible:
      return outcomes.Outcome(outcomes.HARMLESS, 'another valid document')
    return worst

  def _restore(self, top: str) -> None:
    """Restores what is at the top of the directory, and removes what was made."""
    for name in (top, 'made'):
      shutil.rmtree(os.path.join(self._scratch, name), ignore_errors=True)
    path = os.path.join(self._original, top)
    copy = shutil.copytree if os.path.isdir(path) else shutil.copyfile
    copy(path, os.path.join(self._scratch, top))
