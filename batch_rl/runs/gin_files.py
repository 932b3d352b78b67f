"""gin files, with includes that work from any directory.

A path is looked up in:

1. the working directory, then gin's search path;
2. the folder of the file that includes it;
3. the Python package that its folders name: `batch_rl/fixed_replay/configs/dqn.gin`
   is found wherever `batch_rl` is installed.

gin itself supports 1, and 3 for folders with an `__init__.py`.
"""

import contextlib
import glob
import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import TextIO

import gin


def parse(paths: Sequence[str], bindings: Sequence[str]) -> None:
  """Parses gin files and bindings.

  Args:
    paths: Local paths, or URLs for the readers registered with gin.
    bindings: Lines of gin, e.g. 'A.b = 1'; they override the files.

  Raises:
    ValueError: If a file is missing or a name in it is unknown.
  """
  files = _Files()
  reader = (files.open, files.exists)
  # The public `register_file_reader` appends; gin's own reader of resources, which
  # comes earlier, fails on folders without an `__init__.py`.
  readers = gin.config._FILE_READERS
  readers.insert(0, reader)
  try:
    gin.parse_config_files_and_bindings(list(paths), list(bindings))
  finally:
    readers.remove(reader)


class _Files:
  """A gin file reader that knows the folder of the file being parsed."""

  def __init__(self):
    self._folders: list[str] = []  # of the files being parsed, innermost last

  def exists(self, path: str) -> bool:
    """Returns whether `open` can read a path; URLs are for other readers.

    Raises:
      ValueError: If there is no such local file.
    """
    if '://' in path:
      return False
    if self._find(path) is None:
      raise ValueError(_missing_message(path, self._candidates(path)))
    return True

  @contextlib.contextmanager
  def open(self, path: str) -> Iterator[TextIO]:
    """Opens a file while gin parses it."""
    location = self._find(path) or path
    self._folders.append(os.path.dirname(location))
    try:
      with open(location, encoding='utf-8') as file:
        yield file
    finally:
      self._folders.pop()

  def _find(self, path: str) -> str | None:
    return next(filter(_is_readable, self._candidates(path)), None)

  def _candidates(self, path: str) -> Iterator[str]:
    for folder in (*gin.config._LOCATION_PREFIXES, *self._folders[-1:]):
      yield os.path.join(folder, path)
    folder, name = os.path.split(path)
    for location in _package_locations(folder.replace('/', '.')):
      yield os.path.join(location, name)


def _is_readable(path: str) -> bool:
  """Whether a path is a file or a pipe, e.g. of `--gin_files=<(command)`."""
  return os.path.exists(path) and not os.path.isdir(path)


def _package_locations(package: str) -> list[str]:
  """Returns the folders of a package, with or without an `__init__.py`."""
  if not all(part.isidentifier() for part in package.split('.')):
    return []
  try:
    spec = importlib.util.find_spec(package)
  except (ImportError, ValueError):  # its parent is not a package
    return []
  return list((spec and spec.submodule_search_locations) or ())


def _missing_message(path: str, candidates: Iterator[str]) -> str:
  neighbours = {
    os.path.basename(neighbour)
    for candidate in candidates
    if (folder := os.path.dirname(candidate))
    for neighbour in glob.glob(os.path.join(glob.escape(folder), '*.gin'))
  }
  listed = ', '.join(sorted(neighbours))
  return f'There is no gin file {path}' + (
    f'; that folder has {listed}.' if listed else '.'
  )
