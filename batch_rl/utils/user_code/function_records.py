"""Functions of a run in its record, by name and arguments, and back.

A function is recorded as the module and name under which it can be imported; one of
the main program, as its file and name.
"""

import ast
import functools
import importlib.util
import json
import os
import re
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from batch_rl.utils.user_code import user_modules

# A text that is no path: with one slash at most, and no ending of a file after it.
_NAME = re.compile(r'[^/]*|\w[\w.+-]*/[\w+-]+')


def describe(function: Callable) -> dict[str, Any]:
  """Returns name and arguments of a function, from which `load` gets it.

  Args:
    function: Function, possibly in a `functools.partial`.

  Returns:
    `{'name': 'module:function', 'args': [...], 'kwargs': {...}}`. For a function of
    the main program, its file is the module. An argument that JSON cannot hold is
    `{'repr': text}`.
  """
  args: list[Any] = []
  kwargs: dict[str, Any] = {}
  while isinstance(function, functools.partial):
    args = [*function.args, *args]
    kwargs = {**function.keywords, **kwargs}
    function = function.func
  module = getattr(function, '__module__', None)
  module = user_modules.main_module() if module == '__main__' else module
  name = getattr(function, '__qualname__', f'<{type(function).__name__}>')
  return {
    'name': f'{module}:{name}',
    'args': [_as_json(value) for value in args],
    'kwargs': {key: _as_json(value) for key, value in kwargs.items()},
  }


def arguments(description: Mapping[str, Any]) -> dict[str, str]:
  """Returns arguments of a function as text, by their places and names.

  Paths are left out, since data may move, and addresses of objects. A text such as
  `cartpole/swingup` is a name.
  """
  by_name = description.get('kwargs') or {}
  given = [*enumerate(description.get('args') or ()), *sorted(by_name.items())]
  texts = {str(k): re.sub(' at 0x[0-9a-fA-F]+', '', str(v)) for k, v in given}
  return {
    name: text
    for name, text in texts.items()
    if _NAME.fullmatch(text) and name[-4:] != '_dir'
  }


def load(description: Mapping[str, Any]) -> functools.partial:
  """Returns the function that `describe` has described.

  Raises:
    ValueError: If it cannot be imported, or an argument was not recorded.
  """
  module_name, _, name = description['name'].rpartition(':')
  if '<' in f'{module_name}{name}' or '.' in name:
    raise ValueError(
      f'The function {name} of {module_name} cannot be imported: define it at the '
      'top level of a module (functools.partial keeps its arguments), and set its '
      "name in run.json to '<module>:<function>'."
    )
  args = description.get('args') or ()
  kwargs = description.get('kwargs') or {}
  for value in (*args, *kwargs.values()):
    if isinstance(value, dict) and value.keys() == {'repr'}:
      raise ValueError(
        f'The argument {value["repr"]} of {name} is not recorded: use numbers, strings, '
        'lists and mappings of strings, or a function without arguments.'
      )
  if os.path.isabs(module_name):
    function = user_modules.attribute_of(_load_script(module_name), name)
  else:
    function = user_modules.load(f'{module_name}.{name}')
  return functools.partial(function, *args, **kwargs)


@functools.cache
def _load_script(path: str) -> types.ModuleType:
  """Imports a program without running it.

  Raises:
    ValueError: If the file is missing, or runs when it is imported.
  """
  check_script(path)
  spec = importlib.util.spec_from_file_location(user_modules.stem(path), path)
  if spec is None or spec.loader is None:
    raise ValueError(f'{path} cannot be imported: rename it to end in .py.')
  module = importlib.util.module_from_spec(spec)
  sys.modules.setdefault(spec.name, module)
  spec.loader.exec_module(module)
  return module


def check_script(path: str) -> None:
  """Checks that a program does not run when it is imported.

  Raises:
    ValueError: If it does, or the file is missing.
  """
  try:
    with open(path, 'rb') as file:  # `ast` finds the encoding
      tree = ast.parse(file.read(), path)
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  guarded = any(
    isinstance(statement, ast.If) and '__name__' in ast.dump(statement.test)
    for statement in tree.body
  )
  if not guarded:
    raise ValueError(
      f"{path} has no line `if __name__ == '__main__':`, so importing it would "
      'run it: put what it runs below such a line.'
    )


def _as_json(value: Any) -> Any:
  value = os.fspath(value) if isinstance(value, os.PathLike) else value
  try:
    json.dumps(value)
  except (TypeError, ValueError):
    return {'repr': repr(value)}
  return {'repr': repr(value)} if _has_other_keys(value) else value


def _has_other_keys(value: Any) -> bool:
  """Returns whether a value has keys that are no text, as JSON makes of them."""
  if isinstance(value, dict):
    is_text = all(isinstance(key, str) for key in value)
    return not is_text or _has_other_keys([*value.values()])
  return isinstance(value, list | tuple) and any(map(_has_other_keys, value))
