"""JSON of unknown origin: parsed, and compared with the structure that is expected.

A schema is one of

| schema                           | value                                          |
| -------------------------------- | ---------------------------------------------- |
| `object`                         | anything                                       |
| `str`, `bool`, `list`, `dict`    | a value of that type                           |
| `int`                            | an integer of any size                         |
| `range(1, 10)`                   | an integer in that range                       |
| `float`                          | a finite number                                |
| `numbers.Real`                   | a number, possibly NaN or infinite             |
| `[schema]`                       | a list of such values                          |
| `{key: schema, ...}`             | an object; it may lack keys, and have others   |
| `{key: Required(schema), ...}`   | an object with that key                        |
| `{str: schema}`                  | an object with any keys                        |

In an object, null counts as a missing value.
"""

import json
import numbers
import reprlib
import sys
from typing import Any, NamedTuple

_NAMES = {
  str: 'text',
  bool: 'true or false',
  list: 'a list',
  dict: 'an object',
  int: 'an integer',
  float: 'a finite number',
  numbers.Real: 'a number',
}


class Required(NamedTuple):
  """Schema of an entry that an object must have."""

  schema: Any


def parse(content: bytes, schema: Any = object) -> Any:
  """Returns the value of a JSON text.

  Args:
    content: Text in UTF-8.
    schema: Structure of the value; see the module.

  Raises:
    ValueError: If the text is not JSON, is nested too deeply, has a key twice, or is
      of another structure. The message is a clause such as 'seed is "x", not ...'.
  """
  try:
    value = json.loads(content.decode(), object_pairs_hook=_object)
  except (json.JSONDecodeError, UnicodeDecodeError) as error:
    reason = f'it is not JSON: {error}' if content.strip() else 'it is empty'
    raise ValueError(reason) from error
  except RecursionError as error:
    raise ValueError('it is nested too deeply') from error
  check(value, schema)
  return value


def check(value: Any, schema: Any, name: str = '') -> None:
  """Compares a parsed value with a schema.

  Args:
    value: Parsed JSON.
    schema: Structure of the value; see the module.
    name: Name of the value in messages, e.g. `shards[2].rows`.

  Raises:
    ValueError: If the value is of another structure.
  """
  is_nested = isinstance(schema, dict | list)
  _check_simple(value, type(schema) if is_nested else schema, name)
  if isinstance(schema, dict):
    any_key = str in schema
    kinds: Any = dict.fromkeys(value, schema[str]) if any_key else schema
    for key, kind in kinds.items():
      inner = f'{name}[{reprlib.repr(key)}]' if any_key else f'{name}.{key}'
      inner = inner.removeprefix('.')
      required = isinstance(kind, Required)
      if value.get(key) is not None:
        check(value[key], kind.schema if required else kind, inner)
      elif required:
        raise ValueError(f'it has no {inner}')
  elif isinstance(schema, list):
    for i, item in enumerate(value):
      check(item, schema[0], f'{name}[{i}]')


def _check_simple(value: Any, schema: Any, name: str) -> None:
  expected = _NAMES.get(schema, '')
  if isinstance(schema, range):
    matches = type(value) is int and value in schema
    expected = f'an integer from {schema[0]} to {schema[-1]}'
  elif schema is int:
    matches = type(value) is int
  elif schema is numbers.Real and type(value) is float:
    matches = True
  elif schema in (float, numbers.Real):
    # NaN and integers without a float are outside.
    limit = sys.float_info.max
    matches = type(value) in (int, float) and -limit <= value <= limit
  else:
    matches = isinstance(value, schema)
  if not matches:
    raise ValueError(f'{name or "it"} is {reprlib.repr(value)}, not {expected}')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Returns an object; of equal keys, `json` would keep the last one."""
  content: dict[str, Any] = {}
  for key, value in pairs:
    if key in content:
      raise ValueError(f'it has the key {reprlib.repr(key)} twice')
    content[key] = value
  return content
