"""Locks between processes, as local lock files."""

import contextlib
import fcntl
import os
from typing import Any


class Lock(contextlib.AbstractContextManager):
  """A lock that this process holds until it is closed, or the process ends."""

  def __init__(self, file: Any):
    self._file, self._process = file, os.getpid()

  def __exit__(self, *_: Any) -> None:
    self.close()

  def close(self) -> None:
    """Releases the lock; idempotent."""
    if not self._file.closed and os.getpid() == self._process:
      # Closing is not enough: forked processes share the open file.
      fcntl.flock(self._file, fcntl.LOCK_UN)
    self._file.close()

  def remove(self) -> None:
    """Releases the lock, and removes its file and then its folder, if empty."""
    with contextlib.suppress(FileNotFoundError):
      os.remove(self._file.name)
    self.close()  # NFS keeps an open file in the folder under another name.
    with contextlib.suppress(OSError):
      os.rmdir(os.path.dirname(self._file.name))


def try_lock(path: str) -> Lock | None:
  """Acquires an advisory lock without waiting.

  Args:
    path: Local lock file, created if missing; it records the lock's holder.

  Returns:
    The lock, to be kept while it is needed; None if another process holds it.

  Raises:
    OSError: If the file cannot be created, or the file system has no locks.
  """
  while True:
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
    with contextlib.suppress(FileNotFoundError):
      if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
        break
    file.close()  # The holder removed it before it released the lock.
  file.truncate(0)
  file.write(f'process {os.getpid()} on {os.uname().nodename}\n')
  file.flush()
  return Lock(file)


def is_locked(path: str) -> bool:
  """Returns whether a process holds a lock. A file that cannot be read counts as locked."""
  try:
    with open(path, encoding='utf-8') as file:
      fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except FileNotFoundError:
    return False
  except OSError:
    return True
  return False


def acquire(path: str, directory: str) -> Lock:
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
