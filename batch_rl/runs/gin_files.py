"""gin files, with includes that work from any directory.

A path is looked up in:

1. the working directory;
2. the folder of the file that includes it;
3. the folders from which Python imports packages. `batch_rl/fixed_replay/configs/dqn.gin`
   is that of the package in use, also where another copy is in the working directory.

gin itself supports 1, and 3 for folders with an `__init__.py`.

`read` parses each line once, before anything slow is imported; `apply` then imports the
modules, which may lie beside the files, and binds the values.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gin
from absl import logging
from gin import config_parser, utils

from batch_rl import dopamine_compat
from batch_rl.runs.bindings import bound, gin_internals, syntax
from batch_rl.utils import choices
from batch_rl.utils.user_code import user_modules

_INCLUDE = re.compile(r"""^\s*include\s+['"](.+?)['"]""", re.MULTILINE)


# gin's statements of a file, or of the bindings of a command line; those of an included
# file are a list in its place.
Source = list[Any]


def read(paths: Sequence[str], bindings: Sequence[str]) -> list[Source]:
  """Finds and parses gin files and bindings, without importing what they name.

  Names of modules that Dopamine has moved are read as the current ones. Modules in the
  current directory and beside the files can be imported from now on.

  Args:
    paths: Paths of local files.
    bindings: Lines of gin, e.g. 'A.b = 1'; they override the files.

  Returns:
    The files, then the bindings.

  Raises:
    ValueError: If a file is missing, or gin cannot read a line.
  """
  user_modules.add_folder(os.getcwd())
  sources = [_read_file(path) for path in paths]
  try:
    return [*sources, _read_text('\n'.join(bindings))]
  except ValueError:
    for binding in bindings:  # names the one that is wrong by itself
      _read_text(binding)
    raise


def apply(
  sources: Iterable[Source], lock: bool = True, check: bool = True
) -> list[bound.Binding]:
  """Imports the modules that files name, and binds and checks the values.

  The class of an agent that a file or binding names as `module.Class` is imported
  first, so that its parameters can be bound.

  Args:
    sources: Files and bindings from `read`.
    lock: Whether gin refuses later changes.
    check: Whether to check the values (see `bound.check`).

  Returns:
    The bindings in the order of reading.

  Raises:
    ValueError: If a name is unknown, or a value is not allowed.
  """
  sources = list(sources)
  try:
    _import_agents(sources)
    applied = [b for source in sources for b in _apply(source)]
  except ModuleNotFoundError as error:
    if user_modules.is_raised_by_user(error):
      raise
    raise ValueError(f'{error}; {user_modules.searched()}') from error
  except ValueError as error:
    if remedy := _remedy(str(error)):
      raise ValueError(f'{error}{remedy}') from error
    raise
  if check:
    bound.check(applied)
  if lock:
    gin.finalize()
  return applied


def _read_file(path: str, folders: tuple[str, ...] = ()) -> Source:
  """Parses a file.

  Args:
    path: Path as it is written.
    folders: Folders of the files that include it, innermost last.
  """
  location = find(path, folders)
  if location is None:
    if os.path.isdir(path):
      raise ValueError(f'{path} is a directory: give a gin file.')
    meant = '' if path.endswith('.gin') else f'{path}.gin'
    if find(ours := f'batch_rl/{path}'):
      meant = ours
    hint = f' (did you mean {meant}?)' if meant else ''
    raise ValueError(f'There is no gin file {path}{hint}.')
  if _is_of_user(location):
    user_modules.add_folder(os.path.dirname(location))
  try:
    text = _text(location)
  except UnicodeDecodeError as error:
    raise ValueError(f'{location} is not in UTF-8: {error}.') from error
  return _read_text(text, location, (*folders, os.path.dirname(location)))


def _text(location: str) -> str:
  # Editors on Windows begin a file with a byte order mark.
  with open(location, encoding='utf-8-sig') as file:
    return file.read()


def _read_text(
  text: str, path: str | None = None, folders: tuple[str, ...] = ()
) -> Source:
  if len(folders) > 50:
    raise ValueError(f'{path} includes itself.')
  statements = syntax.parse(dopamine_compat.current_names(text), path)
  for i, statement in enumerate(statements):
    if isinstance(statement, config_parser.IncludeStatement):
      with utils.try_with_location(statement.location):
        statements[i] = _read_file(statement.filename, folders)
  return statements


def binding_statements(
  statements: Iterable[Any],
) -> Iterator[config_parser.BindingStatement]:
  """Yields the bindings of sources and of the files that they include."""
  for statement in statements:
    if isinstance(statement, list):
      yield from binding_statements(statement)
    elif isinstance(statement, config_parser.BindingStatement):
      yield statement


def _import_agents(sources: Iterable[Source]) -> None:
  found = [*binding_statements(sources)]
  macros = {s.selector: s.value for s in found if not s.arg_name}
  for _, selector, parameter, value, _ in found:
    if isinstance(value, syntax.Reference):
      value = macros.get(value.arguments[0])
    if (
      parameter == 'agent_name'
      and re.fullmatch(r'create_\w+_agent', selector)
      and isinstance(value, str)
      and user_modules.is_dotted(value)
    ):
      user_modules.load(value)


def _apply(source: Source) -> list[bound.Binding]:
  """Imports and binds as gin does with a file."""
  bindings = []
  with gin_internals.parse_scope() as context:
    for statement in source:
      if isinstance(statement, list):
        bindings += _apply(statement)
        continue
      with utils.try_with_location(statement.location):
        if isinstance(statement, config_parser.ImportStatement):
          context.process_import(statement)
        elif isinstance(statement, config_parser.BindingStatement):
          bindings.append(bound.of_statement(statement))
  return bindings


def _remedy(message: str) -> str:
  """Returns what to do after gin's message about an unknown name; '' if unknown."""
  if match := re.match(
    r"Configurable '([\w./]+)' doesn't have a parameter named '(\w+)'", message
  ):
    known = gin_internals.find(match[1])
    return bound.parameter_hint(match[2], bound.parameters(known.wrapped))
  match = re.match(r"No configurable matching .*?'@?([\w./]+)", message)
  if match is None:
    return ''
  name = match[1].rpartition('/')[2]
  known = {known.rpartition('.')[2] for known in gin_internals.all_known()}
  if name in ('FixedReplayRunner', 'LoggedRunner'):
    return (
      ': FixedReplayRunner is of offline runs, LoggedRunner of online runs.'
    )
  return (
    f': gin does not know {name}{choices.hint(name, known)}. If it is yours, import its '
    "module first ('import my_module'), and put @gin.configurable before it."
  )


def user_files(paths: Iterable[str], bindings: str = '') -> list[str]:
  """Returns local gin files and those that they include, without the package's.

  Args:
    paths: Paths of gin files.
    bindings: Lines of gin, which may include files, too.
  """
  found: list[str] = []
  locations = [find(path) for path in (*paths, *_INCLUDE.findall(bindings))]
  for location in locations:  # It grows.
    if location and location not in found and _is_of_user(location):
      found.append(location)
      folders = (os.path.dirname(location),)
      included = _INCLUDE.findall(_text(location))
      locations += [find(path, folders) for path in included]
  return found


def config_text() -> str:
  """Returns all bindings, each on one line, for comparison line by line."""
  lines = gin.config_str(max_line_length=10**6).split('\n')
  # gin draws rulers as long as `max_line_length`.
  return '\n'.join(line for line in lines if not line.startswith('# ==='))


def find(path: str, folders: tuple[str, ...] = ()) -> str | None:
  """Returns the location of a file or pipe, or None.

  Args:
    path: Path as it is written.
    folders: Folders of the files that include it, innermost last.
  """
  parents = _package_parents(path)
  first = parents if path.startswith('batch_rl/') else ()
  for folder in (*first, '', *folders[-1:], *sys.path, *parents):
    location = os.path.join(folder, path)
    # A pipe is e.g. `--gin_files=<(command)`.
    if os.path.exists(location) and not os.path.isdir(location):
      has_copy = first and os.path.exists(path)
      if has_copy and not os.path.samefile(path, location):
        logging.warning('%s is read; for your copy give ./%s.', location, path)
      return location
  return None


def _package_parents(path: str) -> list[str]:
  """Returns the folders of the package that a path begins with, if it is one.

  An import hook, as of an editable installation, may find it outside `sys.path`.
  """
  package = path.split('/')[0]
  spec = importlib.util.find_spec(package) if package.isidentifier() else None
  found = (spec and spec.submodule_search_locations) or ()
  return [os.path.dirname(location) for location in found]


def _is_of_user(path: str) -> bool:
  """Returns whether a path is a file, not a pipe, outside the package."""
  return os.path.isfile(path) and user_modules.is_outside_package(path)
