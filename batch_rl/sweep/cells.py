"""A cell of a sweep, on the machine that it runs on; and how it stands, from anywhere.

What a cell has come to is in its directory: `sweep-<job>.json` says whether it runs,
where, or how it ended; `progress.json` and `evaluations/` are the run's own. Nothing
else is remembered, so whoever can read the directory can tell.
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from batch_rl.runs import progress, run_record
from batch_rl.sweep import plan, tied
from batch_rl.utils import files, locks

# What `Status.state` may be.
WAITING, RUNNING, STOPPED, FAILED, DONE = STATES = (
  'waiting',
  'running',
  'stopped',
  'failed',
  'done',
)
_MISTAKE = 2  # the exit code after which another try ends the same
_POLL = 0.2  # seconds
_LOCK_WAIT = 600.0  # seconds; a run that is asked to stop saves first
_GRACE = 300.0  # seconds


@dataclasses.dataclass(frozen=True)
class Status:
  """How a cell stands.

  Attributes:
    state: one of `STATES`.
    attempts: times it was started.
    message: why it failed, or ''.
    where: host and process that it runs in, or ''.
    progress: what the run has last written of it; see `progress.Progress`.
    seconds: since that was written.
  """

  state: str
  attempts: int = 0
  message: str = ''
  where: str = ''
  progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0


def status(cell: plan.Cell) -> Status:
  """How a cell stands, from the files in its directory."""
  record = _read(cell)
  state = record.get('state', WAITING)
  if record.get('arguments') != list(cell.arguments) or (
    state == DONE and record.get('basis') != _basis(cell)
  ):
    state = WAITING  # the sweep asks for something else now
  elif state == RUNNING and not _is_held(cell):
    state = STOPPED
  now = progress.read(cell.directory) or {}
  return Status(
    state,
    record.get('attempts', 0),
    record.get('message', '') if state == FAILED else '',
    record.get('where', '') if state == RUNNING else '',
    now,
    max(time.time() - now['time'], 0.0) if now else 0.0,
  )


def run(
  cell: plan.Cell,
  retries: int = 0,
  cpus: float = 1,
  gpus: float = 0,
  stop: threading.Event | None = None,
) -> Status:
  """Runs a cell to its end, unless it is done.

  A run that is killed is started again, and goes on where it was. One that says that
  its settings are wrong is not.

  Args:
    cell: to run.
    retries: times that it is started again.
    cpus: threads that TensorFlow gets.
    gpus: of the machine's; a part of one is shared with other cells.
    stop: asks to save and end, when it is set.

  Returns:
    How it stands then.
  """
  stop = stop or threading.Event()
  os.makedirs(cell.directory, exist_ok=True)
  held = _take(cell, stop)
  try:
    if held is None or status(cell).state == DONE:
      return status(cell)
    for attempt in range(retries + 1):
      _wait_for_run(cell, stop)
      attempts = _read(cell).get('attempts', 0) + 1
      where = f'{os.uname().nodename}, process {os.getpid()}'
      _write(cell, state=RUNNING, attempts=attempts, where=where)
      started = time.time()
      code = _execute(cell, cpus, gpus, stop)
      if code == 0 and _has_finished(cell, started):
        _write(cell, state=DONE, attempts=attempts, basis=_basis(cell))
        break
      if stop.is_set():
        _write(cell, state=STOPPED, attempts=attempts)
        break
      message = _why(cell, code)
      _write(cell, state=FAILED, attempts=attempts, message=message)
      if code == _MISTAKE or attempt == retries:
        break
  finally:
    if held is not None:
      held.close()
  return status(cell)


def note_failure(cell: plan.Cell, message: str) -> None:
  """Says of a cell that its worker is lost, too often to try again."""
  attempts = _read(cell).get('attempts', 0)
  _write(cell, state=FAILED, attempts=attempts, message=message)


def log_path(cell: plan.Cell) -> pathlib.Path:
  """The file with what the cell's program prints."""
  return pathlib.Path(cell.directory, f'sweep-{cell.job}.log')


def _basis(cell):
  """What a cell depends on that its arguments do not say."""
  if cell.job == 'evaluate':  # the training that it is of
    return (progress.read(cell.directory) or {}).get('iteration')
  texts = []
  for path in filter(os.path.isabs, cell.gin_files):  # others are the package's
    with contextlib.suppress(OSError), open(path, 'rb') as file:
      texts.append(hashlib.sha256(file.read()).hexdigest())
  return texts


def _record_path(cell):
  return os.path.join(cell.directory, f'sweep-{cell.job}.json')


def _read(cell) -> dict[str, Any]:
  try:
    return files.read_json(_record_path(cell)) or {}
  except ValueError:  # lost with a machine: the run itself knows where it is
    return {}


def _write(cell, **content):
  now = time.strftime('%Y-%m-%dT%H:%M:%S%z')
  files.write_json(
    _record_path(cell), {'arguments': cell.arguments, 'time': now, **content}
  )


def _lock_path(cell):
  return os.path.join(cell.directory, f'.sweep-{cell.job}.lock')


def _take(cell, stop):
  """The lock of a cell; another worker's that has been killed is given up soon."""
  end = time.monotonic() + _LOCK_WAIT
  while time.monotonic() < end and not stop.is_set():
    if (held := locks.try_lock(_lock_path(cell))) is not None:
      return held
    time.sleep(_POLL)
  return None


def _is_held(cell):
  try:
    held = locks.try_lock(_lock_path(cell))
  except OSError:
    return True
  if held is not None:
    held.close()
  return held is None


def _wait_for_run(cell, stop):
  """Until the process of an earlier attempt has saved and ended."""
  end = time.monotonic() + _LOCK_WAIT
  path = os.path.join(cell.directory, run_record.LOCK)
  while time.monotonic() < end and not stop.is_set():
    if (held := locks.try_lock(path)) is not None:
      held.close()
      return
    time.sleep(_POLL)


def _execute(cell, cpus, gpus, stop) -> int:
  """Runs the program once; returns its exit code, negative for a signal."""
  environment = {**os.environ, 'PYTHONUNBUFFERED': '1'}
  threads = str(max(1, round(cpus)))
  for name in ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS'):
    environment.setdefault(name, threads)
  if 0 < gpus < 1:
    # TensorFlow would take all of the GPU's memory.
    environment.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  with log_path(cell).open('ab') as log:
    process = subprocess.Popen(
      [sys.executable, tied.__file__, str(os.getpid()), *cell.arguments],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      env=environment,
      start_new_session=True,  # Ctrl-C is for the sweep
    )
    try:
      while process.poll() is None and not stop.wait(_POLL):
        pass
    finally:
      if process.poll() is None:
        _end(process)
  return process.returncode


def _end(process):
  process.send_signal(signal.SIGTERM)
  try:
    process.wait(_GRACE)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()


def _has_finished(cell, started) -> bool:
  """Whether a run that ended well has done all; asked to stop, it also ends well.

  What is written of an earlier run, which was shorter, does not count.
  """
  if cell.job == 'evaluate':
    return True
  now = progress.read(cell.directory) or {}
  return now.get('phase') == progress.FINISHED and now['time'] >= started


def _why(cell, code) -> str:
  """The exit code in words, and the last thing that was printed."""
  if code < 0:
    try:
      what = f'killed by {signal.Signals(-code).name}'
    except ValueError:
      what = f'killed by signal {-code}'
  else:
    what = f'exit code {code}' if code else 'stopped from outside'
  with log_path(cell).open('rb') as log:
    log.seek(max(log.seek(0, os.SEEK_END) - 4096, 0))
    lines = log.read().decode(errors='replace').replace('\r', '\n').split('\n')
  last = [line.strip() for line in lines if line.strip()][-1:]
  return ': '.join([what, *last])
