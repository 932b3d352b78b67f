"""Directories that appear when they are whole, or not at all."""

import os
import shutil

from batch_rl.utils import files, locks


class StagingDirectory:
  """A folder beside a destination, for what is being made.

  It is locked while it is in use, and what a killed process left in it is there
  for the next one. `publish` makes what is in it the destination.

  Args:
    destination: the directory to make; local.

  Attributes:
    destination: as given.
    path: of the folder.

  Raises:
    ValueError: if the destination is remote or holds something, the folder is
      not ours, another process is at it, or it cannot be made.
  """

  def __init__(self, destination: str):
    check_new(destination)
    self.destination = os.path.abspath(destination)
    self.path = self.destination + '.unfinished'
    lock = os.path.join(self.path, '.lock')
    if os.path.exists(self.path) and not os.path.exists(lock):
      raise ValueError(
        f'{self.path} is where {destination} would be made, and holds something '
        'else; move it.'
      )
    try:
      os.makedirs(self.path, exist_ok=True)
      self._lock = locks.try_lock(lock)
    except OSError as error:
      raise ValueError(
        f'{self.path} cannot be made: {error.strerror}.'
      ) from error
    self._fresh: list[str] = []
    if self._lock is None:
      raise ValueError(
        f'{destination} is being made by {locks.lock_holder(lock)}.'
      )

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    if kind is not None:
      for path in self._fresh:
        shutil.rmtree(path, ignore_errors=True)
      if os.path.isdir(self.path) and os.listdir(self.path) == ['.lock']:
        shutil.rmtree(self.path)
    self._lock.close()

  def join(self, *names: str) -> str:
    """The path of something in the folder."""
    return os.path.join(self.path, *names)

  def fresh(self, name: str) -> str:
    """A new, empty directory in the folder, removed again on an error."""
    path = self.join(name)
    self._fresh.append(path)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path

  def publish(self, name: str) -> None:
    """Makes a directory in the folder the destination, and removes the folder."""
    made = self.join(name)
    for directory, _, names in os.walk(made):
      for file in names:
        files.sync_directory(os.path.join(directory, file))
      files.sync_directory(directory)
    check_new(self.destination)
    os.rename(made, self.destination)
    files.sync_directory(os.path.dirname(self.destination))
    shutil.rmtree(self.path)


def check_new(destination: str) -> None:
  """Refuses a destination that is remote, or holds something.

  Raises:
    ValueError: if it does.
  """
  files.check_local(destination)
  if not os.path.lexists(destination):
    return
  if not os.path.isdir(destination) or os.listdir(destination):
    raise ValueError(f'{destination} exists already; choose a new directory.')
