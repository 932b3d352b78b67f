"""Runs one cell of a sweep on this machine, and reads its status from anywhere.

The status of a cell is in its directory: `sweep-<job>.json` has its state, process and
error; the run itself writes `progress.json` and `evaluations/`. There is no other
state, so any machine that can read the directory knows the status.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from batch_rl.runs import checkpoints, gin_files, progress, run_record
from batch_rl.sweep import plan, stop_with_parent
from batch_rl.utils import files, locks, machine, programs

# Values of `Status.state`. A cell that has changed was done with other code of the user,
# or with other settings, and has no checkpoints to continue from.
STATES = 'waiting', 'running', 'stopped', 'failed', 'changed', 'done'
WAITING, RUNNING, STOPPED, FAILED, CHANGED, DONE = STATES
# Arguments without effect on results: where the files of a cell are.
_PLACES = ('--base_dir=', '--gin_bindings=FixedReplayBuffer.cache_dir = ')
_RECORD = {
  'state': str,
  'arguments': [str],
  'attempts': range(2**31),
  'message': str,
  'where': str,
  'inputs': {str: object},
}
_POLL = 0.2  # Seconds.
_LOCK_WAIT = 600.0  # Seconds; a stopping run saves first.
_GRACE = 300.0  # Seconds from SIGTERM to SIGKILL.


@dataclasses.dataclass(frozen=True)
class Status:
  """Status of a cell.

  Attributes:
    state: One of `STATES`.
    attempts: Number of times that the cell was started.
    message: Reason of a failure, what to do about a change, or ''.
    where: Host and process of a running cell, or ''.
    progress: Last progress that the run wrote, see `progress.Progress`; an evaluation
      writes none.
  """

  state: str
  attempts: int = 0
  message: str = ''
  where: str = ''
  progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def status(cell: plan.Cell) -> Status:
  """Returns the status of a cell, from the files in its directory."""
  record = _read_record(cell)
  state = record.get('state', WAITING)
  message = where = ''
  if state == DONE:
    state, message = _since_done(cell, record)
  elif record.get('arguments') != list(cell.arguments):
    state = WAITING  # The sweep has changed since then.
  elif state == RUNNING and not locks.is_locked(_lock_path(cell)):
    state = STOPPED
  elif state == RUNNING:
    where = record.get('where', '')
  elif state == FAILED:
    message = record.get('message', '')
  # The training of an evaluated run wrote this file.
  latest = None if cell.job == 'evaluate' else progress.read(cell.directory)
  return Status(state, record.get('attempts', 0), message, where, latest or {})


def run(
  cell: plan.Cell,
  retries: int = 0,
  cpus: float = 1,
  gpus: float = 0,
  stop: threading.Event | None = None,
) -> Status:
  """Runs a cell to its end, unless it is done.

  A killed run is started again and resumes. A run that ends with a user error is not
  started again. A run that is done is left as it is, even if its code has changed.

  Args:
    cell: Cell to run.
    retries: Number of times to start it again.
    cpus: Number of threads for TensorFlow.
    gpus: Number of GPUs. A fraction is shared with other cells.
    stop: Event that asks the run to save and end.

  Returns:
    The final status.
  """
  stop = stop or threading.Event()
  os.makedirs(cell.directory, exist_ok=True)
  with _wait_for_lock(_lock_path(cell), stop) as lock:
    if lock is None or status(cell).state in (CHANGED, DONE):
      return status(cell)
    earlier = _read_record(cell).get('attempts', 0)
    for attempts in range(earlier + 1, earlier + retries + 2):
      if cell.job != 'evaluate':
        # The process of an earlier attempt may still have to save.
        saving = os.path.join(cell.directory, run_record.LOCK)
        with _wait_for_lock(saving, stop):
          pass
      where = f'{os.uname().nodename}, process {os.getpid()}'
      _write_record(cell, state=RUNNING, attempts=attempts, where=where)
      inputs = _inputs(cell)
      code = _execute(cell, cpus, gpus, stop)
      if code == 0:
        _write_record(cell, state=DONE, attempts=attempts, inputs=inputs)
        break
      if stop.is_set():
        _write_record(cell, state=STOPPED, attempts=attempts)
        break
      message = _describe_exit(cell, code)
      _write_record(cell, state=FAILED, attempts=attempts, message=message)
      if code == programs.USER_ERROR:  # A retry would fail again.
        break
  return status(cell)


def check_log(cell: plan.Cell) -> None:
  """Checks that the replay log of a cell that has begun is where the cell expects it.

  Its directory depends on whether the sweep's file has other agents.

  Raises:
    ValueError: If the log is where the cell's record says, and not there.
  """
  flag = '--replay_log_dir='
  before, now = (
    [a.removeprefix(flag) for a in arguments if a.startswith(flag)]
    for arguments in (_read_record(cell).get('arguments', ()), cell.arguments)
  )
  if any(map(os.path.isdir, before)) and not any(map(os.path.isdir, now)):
    raise ValueError(
      f'{cell.name} has its log in {before[0]}, not in {now[0]}, since the agents of the '
      'file have changed: move the folder, or choose another base_dir.'
    )


def record_failure(cell: plan.Cell, message: str) -> None:
  """Records a cell as failed, because its worker was lost too often."""
  attempts = _read_record(cell).get('attempts', 0)
  _write_record(cell, state=FAILED, attempts=attempts, message=message)


def record_path(cell: plan.Cell) -> str:
  """Returns the path of the cell's record."""
  return os.path.join(cell.directory, f'sweep-{cell.job}.json')


def log_path(cell: plan.Cell) -> pathlib.Path:
  """Returns the path of the cell's log, the output of its program."""
  return pathlib.Path(cell.directory, f'sweep-{cell.job}.log')


def _inputs(cell) -> dict[str, Any]:
  """Returns the inputs of a cell that its arguments do not contain.

  Returns:
    Hashes by path of the user's gin files, and of modules that have changed since the
    run imported them; for an evaluation, that of the last checkpoint at the end of an
    iteration.
  """
  if cell.job == 'evaluate':
    # A checkpoint may be removed at this moment.
    with contextlib.suppress(OSError, ValueError):
      found = checkpoints.find(cell.directory)
      *_, last = [None, *(c for c in found if not c.position.steps)]
      return {'checkpoint': last and last.digest()}
    return {}
  paths = gin_files.user_files(cell.gin_files, '\n'.join(cell.gin_bindings))
  paths = [*map(os.path.abspath, paths), *_changed_modules(cell)]
  return {path: _hash(path) for path in paths}


def _changed_modules(cell) -> list[str]:
  """Returns paths of the user's modules that are not as the run has imported them.

  Modules that are not found in the folders of the run's record do not count.
  """
  try:
    record = run_record.read(cell.directory) or {}
  except ValueError:  # It is damaged.
    return []
  changed = []
  for name, digest in (record.get('code') or {}).items():
    inside = name.replace('.', os.sep)
    paths = [
      os.path.join(folder, inside + ending)
      for folder in record.get('modules') or ()
      for ending in ('.py', f'{os.sep}__init__.py')
    ]
    if digest not in [str(_hash(path))[:12] for path in paths]:
      changed += [*filter(os.path.exists, paths)][:1]
  return changed


def _since_done(cell, record: Mapping[str, Any]) -> tuple[str, str]:
  """Returns state and message of a cell that was done, from its record."""
  inputs, then = record.get('inputs', {}), record.get('arguments', [])
  before, now = (
    [argument for argument in arguments if not argument.startswith(_PLACES)]
    for arguments in (then, cell.arguments)
  )
  if cell.job == 'evaluate':
    is_same = before == now and inputs == _inputs(cell)
    return (DONE if is_same else WAITING), ''
  changed = [path for path, was in inputs.items() if _hash(path) != was]
  changed += [path for path in _changed_modules(cell) if path not in inputs]
  if then != list(cell.arguments):
    # If the sweep has moved, its code is elsewhere.
    changed = list(filter(os.path.exists, changed))
  if before == now and not changed:
    return DONE, ''
  code = [path for path in changed if path.endswith('.py')]
  remedy = f'delete {cell.directory} to train again'
  if not checkpoints.find(cell.directory):  # It would train from the beginning.
    what = [*code, *changed, 'its command'][0]
    return CHANGED, (
      f'{what} has changed since it was trained, and its checkpoints are gone: '
      f'restore what changed, or {remedy}.'
    )
  if not code:  # The program compares the settings of gin files.
    return WAITING, ''
  return CHANGED, (
    f'{code[0]} has changed since it was trained: {remedy}, or only '
    f'{record_path(cell)} to keep the run.'
  )


def _hash(path) -> str | None:
  try:
    return files.sha256(path)
  except (OSError, ValueError):  # A null byte in a damaged record.
    return None


def _read_record(cell) -> dict[str, Any]:
  # A crash may have damaged it. The run resumes without it.
  with contextlib.suppress(ValueError):
    record = files.read_json(record_path(cell), _RECORD) or {}
    if record.get('state') in STATES:
      return {key: value for key, value in record.items() if value is not None}
  return {}


def _write_record(cell, **content):
  now = time.strftime('%Y-%m-%dT%H:%M:%S%z')
  files.write_json(
    record_path(cell), {'arguments': cell.arguments, 'time': now, **content}
  )


def _lock_path(cell):
  return os.path.join(cell.directory, f'.sweep-{cell.job}.lock')


@contextlib.contextmanager
def _wait_for_lock(path, stop):
  """Holds the lock; yields None after `_LOCK_WAIT` or if `stop` is set."""
  end = time.monotonic() + _LOCK_WAIT
  while time.monotonic() < end and not stop.is_set():
    if (lock := locks.try_lock(path)) is not None:
      with lock:
        yield lock
      return
    time.sleep(_POLL)
  yield None


def _execute(cell, cpus, gpus, stop) -> int:
  """Runs the program once; returns its exit code, negative for a signal."""
  environment = machine.thread_limits(round(cpus)) | os.environ
  environment['PYTHONUNBUFFERED'] = '1'
  if not gpus:  # Ray hides none.
    environment.setdefault('CUDA_VISIBLE_DEVICES', '-1')
  elif gpus < 1:
    # By default, TensorFlow reserves all memory of the GPU.
    environment.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  program = [sys.executable, stop_with_parent.__file__, str(os.getpid())]
  with log_path(cell).open('ab') as log:
    process = subprocess.Popen(
      [*program, *cell.arguments],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      env=environment,
      start_new_session=True,  # The sweep handles Ctrl-C.
    )
    try:
      while process.poll() is None and not stop.wait(_POLL):
        pass
    finally:
      process.terminate()  # Nothing, if it has ended.
      try:
        process.wait(_GRACE)
      except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
  return process.returncode


def _describe_exit(cell, code) -> str:
  """Returns the exit code in words and the last line of the log, without gin's."""
  reason = f'exit code {code}'
  if code < 0:
    reason = f'killed by signal {-code} ({signal.strsignal(-code)})'
  with log_path(cell).open('rb') as log:
    log.seek(max(log.seek(0, os.SEEK_END) - 4096, 0))
    lines = log.read().decode(errors='replace').replace('\r', '\n').split('\n')
  last = [
    line.strip()
    for line in lines
    # gin adds where an error was raised to its message.
    if line.strip() and not line.startswith('  In call to configurable ')
  ][-1:]
  return ': '.join([reason, *last])
