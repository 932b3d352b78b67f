"""Locks between processes, as local lock files."""

import fcntl
import os
from typing import Any


def try_lock(path: str) -> Any:
  """Acquires an advisory lock without waiting.

  The system releases the lock when the file is closed or the process ends.

  Args:
    path: Local lock file, created if missing; it records the lock's holder.

  Returns:
    The open file, to be kept while the lock is needed; None if another process
    holds the lock.

  Raises:
    OSError: If the file cannot be created, or the file system has no locks.
  """
  file = open(path, 'a+', encoding='utf-8')
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError as error:
    file.close()
    if isinstance(error, BlockingIOError):
      return None
    raise OSError(
      error.errno,
      f'{path} cannot be locked ({error.strerror}): choose a directory on another '
      'file system, or mount this one with locks (Lustre: -o flock)',
    ) from error
  file.truncate(0)
  file.write(f'process {os.getpid()} on {os.uname().nodename}\n')
  file.flush()
  return file


def acquire(path: str, directory: str) -> Any:
  """Acquires a lock to write to a directory; see `try_lock`.

  Args:
    path: Lock file, whose folder is created if missing.
    directory: Directory to write, for the message.

  Raises:
    ValueError: If another process holds it, or the folder cannot be written.
  """
  folder = os.path.dirname(path)
  try:
    os.makedirs(folder, exist_ok=True)
    lock = try_lock(path)
  except OSError as error:
    raise ValueError(
      f'{folder} cannot be written: {error.strerror}; choose another directory.'
    ) from error
  if lock is None:
    raise ValueError(f'{directory} is being written by {lock_holder(path)}.')
  return lock


def lock_holder(path: str) -> str:
  """Returns the holder of a lock that `try_lock` could not acquire."""
  try:
    with open(path, encoding='utf-8') as file:
      return file.read().strip() or 'another process'
  except OSError:
    return 'another process'
