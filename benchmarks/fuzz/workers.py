"""Processes that run cases, so that crashes, hangs and memory bombs end only them."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import psutil
import tqdm

from benchmarks.fuzz import outcomes

# Modules by kind; each has a class `Cases(original, scratch)` with `draw(random)`,
# and a function `make(original)`.
MODULES = {
  'shards': 'shards',
  'store': 'stores',
  'checkpoints': 'checkpoints',
  'json': 'json_files',
  'unplugged': 'unplugged',
}
_SECONDS = 120  # Of a case; the slowest take three.
_START_SECONDS = 600
_BYTES = 1 << 30  # Memory of a case.
_POLL = 0.02


class Worker:
  """A process that runs the cases of a kind, and is replaced when it dies.

  Args:
    kind: One of `MODULES`.
    directory: Directory of the kind's files; the first worker makes them.
    index: Number of the worker.
    seed: Seed of all cases.
  """

  def __init__(self, kind: str, directory: str, index: int, seed: int):
    self._arguments = (kind, directory, index, seed)
    self._process: Any = None
    self._connection: Any = None

  def start(self) -> None:
    """Starts the process and waits until it is ready.

    Raises:
      RuntimeError: If it does not start.
    """
    context = multiprocessing.get_context('spawn')
    self._connection, theirs = context.Pipe()
    self._process = context.Process(
      target=_serve, args=(*self._arguments, theirs), daemon=True
    )
    self._process.start()
    theirs.close()
    try:
      if self._connection.poll(_START_SECONDS):
        self._connection.recv()
        return
    except EOFError:
      pass
    self.kill()
    raise self._own_error()

  def run(self, number: int) -> tuple[str, outcomes.Outcome]:
    """Runs a case; returns its description and outcome."""
    if self._process is None:
      self.start()
    description = ''
    try:
      self._connection.send(number)
      description = self._receive()
      return description, self._receive()
    except (_Ended, EOFError, ConnectionError) as error:
      reason = str(error)
      if not isinstance(error, _Ended):
        self._process.join(10)
        code = self._process.exitcode or 0
        if code > 0:
          raise self._own_error() from error
        reason = f'killed by {signal.Signals(-code).name}'
      self.kill()
      self._process = None
      return description, outcomes.Outcome(outcomes.CRASHED, reason)

  def _receive(self) -> Any:
    """Waits for a message; ends a process that hangs or takes too much memory."""
    process = psutil.Process(self._process.pid)
    end, before = time.monotonic() + _SECONDS, _resident(process)
    while not self._connection.poll(_POLL):
      if time.monotonic() > end:
        raise _Ended(f'no end after {_SECONDS} s')
      if _resident(process) > before + _BYTES:
        raise _Ended(f'takes more than {_BYTES / 2**30:.0f} GiB of memory')
    return self._connection.recv()

  def _own_error(self) -> RuntimeError:
    """Returns an error of this benchmark itself, with the end of its log."""
    with open(_log_path(*self._arguments[1:3]), errors='replace') as log:
      return RuntimeError(log.read()[-3000:])

  def close(self) -> None:
    """Ends the process after its case."""
    if self._process is not None:
      with contextlib.suppress(OSError):
        self._connection.send(None)
      self._process.join(10)
      self.kill()

  def kill(self) -> None:
    """Ends the process."""
    if self._process is not None:
      self._process.kill()
      self._process.join()


class _Ended(Exception):  # noqa: N818
  """The case was ended from outside."""


def _resident(process: psutil.Process) -> int:
  try:
    return process.memory_info().rss
  except psutil.Error:  # It has died; the pipe tells.
    return 0


def _log_path(directory: str, index: int) -> str:
  return os.path.join(directory, f'worker-{index}.log')


def _serve(kind, directory, index, seed, connection) -> None:
  """Runs the cases whose numbers arrive, until the connection closes."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends this process.
  sys.argv = ['fuzz']  # Runs record it: the same for all options.
  tqdm.tqdm.set_lock(threading.RLock())  # A killed process leaks other locks.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')
  os.makedirs(directory, exist_ok=True)
  log = os.open(
    _log_path(directory, index), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
  )
  for stream in (1, 2):
    os.dup2(log, stream)
  module = importlib.import_module(f'benchmarks.fuzz.{MODULES[kind]}')
  original = os.path.join(directory, 'original')
  if not os.path.exists(os.path.join(original, 'done')):
    module.make(original)
    os.mkdir(os.path.join(original, 'done'))
  cases = module.Cases(original, os.path.join(directory, f'worker-{index}'))
  connection.send('ready')
  while True:
    try:
      number = connection.recv()
    except EOFError:
      return
    if number is None:
      return
    # Should the parent die, a case that hangs ends anyway.
    signal.alarm(2 * _SECONDS)
    # `random` depends on nothing but the seed, the kind and the number.
    random = np.random.default_rng([seed, list(MODULES).index(kind), number])
    case = cases.draw(random)
    connection.send(case.description)
    connection.send(case.check())
    signal.alarm(0)
