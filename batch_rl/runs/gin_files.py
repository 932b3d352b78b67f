"""gin files, with includes that work from any directory.

A path is looked up in:

1. the working directory, then gin's search path;
2. the folder of the file that includes it;
3. the Python package that its folders name: `batch_rl/fixed_replay/configs/dqn.gin`
   is found wherever `batch_rl` is installed.

gin itself supports 1, and 3 for folders with an `__init__.py`.

The modules that a file imports may lie beside it. The class of an agent that a file or
binding names as `module.Class` is imported first, so that its parameters can be bound.
"""

import contextlib
import glob
import importlib.util
import inspect
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import gin
from gin import config, config_parser

from batch_rl import dopamine_compat
from batch_rl.runs.bindings import checks, syntax
from batch_rl.utils import choices
from batch_rl.utils.user_code import user_modules

_INCLUDE = re.compile(r"""^\s*include\s+['"](.+?)['"]""", re.MULTILINE)
_AGENT_NAME = re.compile(
  r"""^\s*create_\w+_agent\.agent_name\s*=\s*['"](\w+(?:\.\w+)+)['"]""",
  re.MULTILINE,
)


def parse(
  paths: Sequence[str],
  bindings: Sequence[str],
  lock: bool = True,
  check: bool = True,
) -> list[config_parser.BindingStatement]:
  """Parses gin files and bindings, and checks the values of parameters.

  Names of modules that Dopamine has moved are read as the current ones.

  Args:
    paths: Local paths, or URLs for the readers registered with gin.
    bindings: Lines of gin, e.g. 'A.b = 1'; they override the files.
    lock: Whether gin refuses later changes.
    check: Whether to check the values (see `bindings.checks`).

  Returns:
    The bindings in the order of reading.

  Raises:
    ValueError: If a file is missing, a name in it is unknown, or a value is not
      allowed.
  """
  add_folders(paths)
  bindings = list(map(dopamine_compat.current_names, bindings))
  own_statements = syntax.parse_bindings(bindings)
  _import_agents('\n'.join(bindings))
  files = _Files()
  reader = (files.open, files.exists)
  # The public `register_file_reader` appends; gin's own reader of resources, which
  # comes earlier, fails on folders without an `__init__.py`.
  readers = gin.config._FILE_READERS
  readers.insert(0, reader)
  try:
    gin.parse_config_files_and_bindings(
      list(paths), list(bindings), finalize_config=False
    )
  except ModuleNotFoundError as error:
    if user_modules.is_raised_by_user(error):
      raise
    raise ValueError(f'{error}; {user_modules.searched()}') from error
  except ValueError as error:
    if remedy := _remedy(str(error)):
      raise ValueError(f'{error}: {remedy}') from error
    raise
  finally:
    readers.remove(reader)
  statements = [*files.statements, *own_statements]
  if check:
    checks.check(statements)
  if lock:
    gin.finalize()
  return statements


def _remedy(message: str) -> str:
  """Returns what to do after gin's message about an unknown name; '' if unknown."""
  if match := re.match(r"No configurable matching .*?'@?([\w./]+)", message):
    name = match[1].rpartition('/')[2]
    known = {
      known.selector.rpartition('.')[2]
      for known in config._INVERSE_REGISTRY.values()
    }
    return (
      f'gin does not know {name}{choices.hint(name, known)}. If it is yours, import its '
      "module first ('import my_module'), and put @gin.configurable before it."
    )
  pattern = r"Configurable '(.+?)' doesn't have a parameter named '(.+?)'"
  if match := re.match(pattern, message):
    owner, name = match.groups()
    found = config._REGISTRY.get_match(owner.rpartition('/')[2]).wrapped
    parameters = inspect.signature(found).parameters
    if hint := choices.hint(name, parameters):
      return f'{name} is unknown{hint}.'
  return ''


def check_syntax(paths: Iterable[str], bindings: Sequence[str]) -> None:
  """Checks bindings and the user's files as far as possible without imports.

  Raises:
    ValueError: If gin cannot read a line.
  """
  syntax.parse_bindings(bindings)
  for path in user_files(paths):
    with open(path, encoding='utf-8') as file:
      syntax.parse(file.read(), path)


def add_folders(paths: Sequence[str]) -> None:
  """Makes modules in the current directory and beside gin files importable."""
  user_modules.add_folder(os.getcwd())
  files = _Files()
  for path in paths:
    if '://' not in path and (location := files.find(path)):
      _add_folder_of(location)


def user_files(paths: Iterable[str]) -> list[str]:
  """Returns local gin files and those that they include, without the package's."""
  files = _Files()
  found: dict[str, None] = {}

  def visit(path):
    location = None if '://' in path else files.find(path)
    if location is None or location in found or not _is_of_user(location):
      return
    found[location] = None
    with files.enter(location) as text:
      for included in _INCLUDE.findall(text):
        visit(included)

  for path in paths:
    visit(path)
  return list(found)


def config_text() -> str:
  """Returns all bindings, each on one line, for comparison line by line."""
  lines = gin.config_str(max_line_length=10**6).split('\n')
  # gin draws rulers as long as `max_line_length`.
  return '\n'.join(line for line in lines if not line.startswith('# ==='))


class _Files:
  """A gin file reader that knows the folder of the file being parsed.

  Attributes:
    statements: Bindings of the files that are read, those of included files first.
  """

  def __init__(self):
    self.statements: list[config_parser.BindingStatement] = []
    self._folders: list[str] = []  # of the files being parsed, innermost last

  def exists(self, path: str) -> bool:
    """Returns whether `open` can read a path; URLs are for other readers.

    Raises:
      ValueError: If there is no such local file.
    """
    if '://' in path:
      return False
    if self.find(path) is None:
      raise ValueError(_missing_message(path, self._candidates(path)))
    return True

  @contextlib.contextmanager
  def open(self, path: str) -> Iterator[TextIO]:
    """Opens a file while gin parses it."""
    location = self.find(path) or path
    _add_folder_of(location)
    with self.enter(location) as text:
      text = dopamine_compat.current_names(text)
      statements = syntax.parse(text, location)
      _import_agents(text)
      lines = io.StringIO(text)
      setattr(lines, 'name', location)  # noqa: B010  (for gin's messages)
      yield lines
      self.statements += statements  # after those of included files

  @contextlib.contextmanager
  def enter(self, location: str) -> Iterator[str]:
    """Reads a file, and meanwhile finds other files from its folder."""
    self._folders.append(os.path.dirname(location))
    try:
      with open(location, encoding='utf-8') as file:
        yield file.read()
    finally:
      self._folders.pop()

  def find(self, path: str) -> str | None:
    """Returns the location of a file, or None."""
    return next(filter(_is_readable, self._candidates(path)), None)

  def _candidates(self, path: str) -> Iterator[str]:
    for folder in (*gin.config._LOCATION_PREFIXES, *self._folders[-1:]):
      yield os.path.join(folder, path)
    folder, name = os.path.split(path)
    for location in _package_locations(folder.replace('/', '.')):
      yield os.path.join(location, name)


def _add_folder_of(path: str) -> None:
  if _is_of_user(path):
    user_modules.add_folder(os.path.dirname(os.path.abspath(path)))


def _is_of_user(path: str) -> bool:
  """Whether a path is a file, not a pipe, outside the package."""
  return os.path.isfile(path) and user_modules.is_outside_package(path)


def _import_agents(text: str) -> None:
  """Imports the modules of agents that are named in lines of gin."""
  for name in _AGENT_NAME.findall(text):
    user_modules.load(name)


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
