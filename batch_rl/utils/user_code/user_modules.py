"""Modules of the user: where they are found, and what is found in them.

They lie beside a gin file or in the current directory. A run records their folders, so
that another program finds them from any directory.
"""

import functools
import importlib
import importlib.util
import os
import pathlib
import re
import site
import sys
import sysconfig
import traceback
import types
from typing import Any

import batch_rl
from batch_rl.utils import choices, files

_PACKAGE = os.path.dirname(os.path.abspath(batch_rl.__file__))


def add_folder(folder: str) -> None:
  """Makes the modules of a folder importable; installed packages come first."""
  folder = os.path.abspath(folder)
  if folder not in map(os.path.abspath, sys.path):
    sys.path.append(folder)
  importlib.invalidate_caches()  # for modules that are newer than a search


def is_dotted(name: str | None) -> bool:
  """Returns whether a name is of the form `module.Class`."""
  return re.fullmatch(r'[^\W\d]\w*(\.[^\W\d]\w*)+', name or '') is not None


def searched() -> str:
  """Returns where modules are searched, for a message."""
  folders = [
    folder
    for folder in dict.fromkeys(map(os.path.abspath, sys.path))
    if os.path.isdir(folder)
    and not f'{folder}{os.sep}'.startswith(_installed())
  ]
  return f'it is neither in {", ".join(folders)} nor an installed package.'


def find(name: str) -> str | None:
  """Returns the file or folder of the top-level module of a dotted name.

  It imports nothing.

  Returns:
    The path; None for a module of this package or an installed one.

  Raises:
    ValueError: If there is no such module.
  """
  top = name.split('.')[0]
  if _is_main(top):
    return None
  try:
    spec = importlib.util.find_spec(top)
  except (ImportError, ValueError):
    spec = None
  if spec is None:
    raise ValueError(_missing(name, top))
  folders = list(spec.submodule_search_locations or ())
  path = folders[0] if folders else spec.origin or ''
  source = os.path.join(path, '__init__.py') if folders else path
  return path if is_user_file(source) else None


def load(name: str) -> Any:
  """Imports `module.Class` and returns the class, or another object.

  Raises:
    ValueError: If there is no such module, or it has no such object.
  """
  module_name, _, attribute = name.rpartition('.')
  if _is_main(module_name):
    return attribute_of(sys.modules['__main__'], attribute)
  try:
    module = importlib.import_module(module_name)
  except ModuleNotFoundError as error:
    if not f'{module_name}.'.startswith(f'{error.name}.'):
      raise  # an import inside the module
    raise ValueError(_missing(name, str(error.name))) from error
  return attribute_of(module, attribute)


def dotted_name(obj: Any) -> str:
  """Returns the name of a class or function as `module.name`."""
  module = obj.__module__
  if module == '__main__' and is_dotted(f'{stem(main_module())}.{module}'):
    module = stem(main_module())  # elsewhere, its file is a module
  return f'{module}.{obj.__qualname__}'


def _is_main(module: str) -> bool:
  """Returns whether a module is the main program or notebook, which runs only once."""
  return module in ('__main__', stem(main_module()))


def loaded_folders() -> list[str]:
  """Returns the folders from which modules of the user have been imported."""
  folders: dict[str, None] = {}
  for name, path in _loaded_files().items():
    file = pathlib.Path(os.path.abspath(path).removesuffix('/__init__.py'))
    depth, inside = name.count('.'), f'/{name.replace(".", "/")}'
    # The path of a module of a package ends with the names of both.
    if not depth or str(file.with_suffix('')).endswith(inside):
      folders[str(file.parents[depth])] = None
  return list(folders)


def loaded_code() -> dict[str, str]:
  """Returns 12 digits of each imported user module's SHA-256, by its name."""
  paths = _loaded_files().items()
  return {n: files.sha256(p)[:12] for n, p in paths if os.path.exists(p)}


def _loaded_files() -> dict[str, str]:
  """Returns the files of the user's imported modules, by name."""
  paths = {n: getattr(m, '__file__', '') for n, m in [*sys.modules.items()]}
  paths.pop('__mp_main__', None)  # multiprocessing's name of `__main__`
  return {n: path for n, path in paths.items() if path and is_user_file(path)}


def is_user_file(path: str) -> bool:
  """Returns whether a file is neither of this package nor of an installed one."""
  name = os.path.basename(path)
  if not name.endswith('.py') or name.startswith('__autograph_generated_file'):
    return False
  path = os.path.abspath(path)
  return not path.startswith(_installed())


def is_raised_by_user(error: BaseException) -> bool:
  """Returns whether an error comes from the user's code, not from a check of ours.

  The user's code is in its traceback, and the error was not raised by this package.
  TensorFlow has the names of the files that it compiles in the message instead.
  """
  if isinstance(error, SyntaxError) and is_user_file(error.filename or ''):
    return True
  stack = traceback.extract_tb(error.__traceback__)
  frames = [frame.filename for frame in stack]
  named = re.findall(r'File "([^"]+)", line', str(error))
  is_user = any(map(is_user_file, frames + named))
  # TensorFlow leaves out its own frames, so the last one may be a call of ours.
  is_call = not (stack[-1].line or '').startswith('raise')
  return is_user and (is_call or is_outside_package(frames[-1]))


def is_outside_package(path: str) -> bool:
  """Returns whether a file is not one of this package."""
  return not os.path.abspath(path).startswith(_PACKAGE + os.sep)


@functools.cache
def _installed() -> tuple[str, ...]:
  """Returns the folders of this package, the standard library and packages."""
  keys = 'stdlib', 'platstdlib', 'purelib', 'platlib'
  folders = {str(sysconfig.get_path(key)) for key in keys}
  folders |= {*site.getsitepackages(), site.getusersitepackages(), _PACKAGE}
  folders |= {os.path.realpath(folder) for folder in folders}
  return tuple(folder + os.sep for folder in folders)


def attribute_of(module: types.ModuleType, name: str) -> Any:
  """Returns a module's class or function.

  Raises:
    ValueError: If it has no such name.
  """
  if hasattr(module, name):
    return getattr(module, name)
  own = [
    key
    for key, value in vars(module).items()
    if getattr(value, '__module__', None) == module.__name__
  ]
  path = getattr(module, '__file__', None) or f'The folder {module.__name__}'
  raise ValueError(
    f'{path} has no {name}{choices.hint(name, own)}. If another module is meant, give '
    'it a name that no package has.'
  )


def main_module() -> str:
  """Returns the name of the main program's module, or the path of its file."""
  main = sys.modules['__main__']
  if spec := getattr(main, '__spec__', None):
    return spec.name
  path = getattr(main, '__file__', None)
  return os.path.abspath(path) if path else '<interpreter>'


def stem(path: str) -> str:
  """Returns the name of a Python file without its ending."""
  return os.path.basename(path).removesuffix('.py')


def _missing(name: str, module: str) -> str:
  return f'There is no module {module!r} for {name}: {searched()}'
