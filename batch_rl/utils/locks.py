"""Locks between processes, on local files."""

import fcntl
import os
from typing import Any


def try_lock(path: str) -> Any:
  """Takes a lock that other processes respect, without waiting for it.

  The system releases it when the file is closed or the process ends.

  Args:
    path: a local file, made if it does not exist; says who holds the lock.

  Returns:
    The open file to keep, or None if another process has the lock.

  Raises:
    OSError: if the file cannot be made, or the file system has no locks.
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


def lock_holder(path: str) -> str:
  """Who holds a lock that `try_lock` did not get."""
  try:
    with open(path, encoding='utf-8') as file:
      return file.read().strip() or 'another process'
  except OSError:
    return 'another process'
