"""Output directories that appear atomically, when they are complete."""

import contextlib
import os
import shutil

from batch_rl.utils import files, locks

SUFFIXES = UNFINISHED, IMPORT = '.unfinished', '.import'  # of staging folders


class StagingDirectory(contextlib.AbstractContextManager):
  """A locked folder beside a destination, for unfinished output.

  The next process replaces what a killed one has left in it. `publish` moves finished
  output to the destination.

  Args:
    destination: Local directory to create.
    replace: Whether to replace a directory that exists already.
    suffix: End of the staging folder's name.

  Attributes:
    destination: Absolute path of the directory to create, links resolved.
    path: Path of the staging folder, `<destination><suffix>`.

  Raises:
    ValueError: If the destination is remote or not empty, or the staging folder
      cannot be written, has other content, or is used by another process.
  """

  def __init__(
    self, destination: str, replace: bool = False, suffix: str = UNFINISHED
  ):
    self._replace = replace
    (check_name if replace else check_new)(destination)
    self.destination = os.path.realpath(destination)
    self.path = self.destination + suffix
    lock = os.path.join(self.path, '.lock')
    is_empty = os.path.isdir(self.path) and not os.listdir(self.path)
    if os.path.exists(self.path) and not (is_empty or os.path.exists(lock)):
      raise ValueError(
        f'{self.path} is needed to create {destination}, but holds something '
        'else; move it away.'
      )
    self._lock = locks.acquire(lock, destination)
    self._made = ''

  def __exit__(self, kind, error, traceback):
    if kind is not None:
      shutil.rmtree(self._made, ignore_errors=True)
      if os.path.isdir(self.path) and os.listdir(self.path) == ['.lock']:
        self._lock.remove()
    self._lock.close()

  def create(self, name: str) -> str:
    """Creates an empty directory in the folder, removed if the output fails."""
    self._made = os.path.join(self.path, name)
    shutil.rmtree(self._made, ignore_errors=True)
    os.makedirs(self._made)
    return self._made

  def publish(self) -> None:
    """Moves the directory to the destination and removes the staging folder."""
    for directory, _, names in os.walk(self._made):
      for file in names:
        files.sync(os.path.join(directory, file))
      files.sync(directory)
    replaced = os.path.join(self.path, 'replaced')
    shutil.rmtree(replaced, ignore_errors=True)  # of a killed process
    if self._replace and os.path.isdir(self.destination):
      os.rename(self.destination, replaced)
    try:
      check_new(self.destination)
      os.rename(self._made, self.destination)
    except (OSError, ValueError):
      if os.path.isdir(replaced):
        os.rename(replaced, self.destination)
      raise
    files.sync(os.path.dirname(self.destination))
    self.remove()

  def remove(self) -> None:
    """Removes the folder, its lock last: a folder without one counts as foreign."""
    for entry in os.scandir(self.path):
      if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry)
      elif entry.name != '.lock':
        os.remove(entry)
    self._lock.remove()


def check_name(destination: str) -> None:
  """Checks that a destination has a name, is local, and can be replaced.

  Raises:
    ValueError: If the destination is an empty name, remote, or a mount point.
  """
  if not destination:
    raise ValueError('The destination is an empty name; give a directory.')
  files.check_local(destination)
  if os.path.ismount(destination):
    raise ValueError(f'{destination} is a mount point; give a folder in it.')


def check_new(destination: str) -> None:
  """Checks that a destination is local, and either missing or empty.

  Raises:
    ValueError: If the destination is an empty name, remote, or has content.
  """
  check_name(destination)
  if not os.path.lexists(destination):
    return
  if not os.path.isdir(destination) or os.listdir(destination):
    raise ValueError(f'{destination} exists already; choose a new directory.')
