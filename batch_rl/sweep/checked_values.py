"""Values of a sweep's settings, checked."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from batch_rl.utils import choices, number_ranges


def numbers(name: str, value: Any) -> list[int]:
  """Returns the numbers in `3`, `[1, 2]`, `'1-5'` or `'1,3'`.

  Raises:
    ValueError: If the value is none of these.
  """
  return number_ranges.parse(listed(value), name)


def listed(value: Any) -> str:
  """Returns a value as text, and the values of a list separated by commas."""
  return ','.join(map(str, value)) if isinstance(value, list) else str(value)


def number(
  settings: Mapping[str, Any],
  name: str,
  least: float,
  prefix: str = '',
  kind: type | tuple[type, ...] = (int, float),
) -> float:
  """Returns a number in settings.

  Args:
    settings: Values by name.
    name: Name of the number.
    least: Least value.
    prefix: Words before the name in the error message.
    kind: Type of the number; `int` for integers only.

  Raises:
    ValueError: If the value is no finite number of that type, or too small.
  """
  value = settings[name]
  is_number = isinstance(value, kind) and not isinstance(value, bool)
  if not is_number or not least <= value < math.inf:
    noun = 'an integer' if kind is int else 'a number'
    raise ValueError(
      f'{prefix}{name}={value!r} is not {noun} of at least {least}.'
    )
  return value


def mapping(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
  """Returns a mapping in settings; None is an empty one.

  Raises:
    ValueError: If the value is no mapping.
  """
  if not isinstance(settings[name] or {}, dict):
    raise ValueError(
      f'{name}={settings[name]!r} is not a mapping of `name: value`.'
    )
  return settings[name] or {}


def known_mapping(
  settings: Mapping[str, Any], name: str, keys: Iterable[str]
) -> dict[str, Any]:
  """Returns a mapping in settings that has only these keys.

  Raises:
    ValueError: If the value is no mapping, or a key is unknown.
  """
  found = mapping(settings, name)
  for key in found:
    choices.choose(f'setting of {name}:', key, keys)
  return found


def strings(settings: Mapping[str, Any], name: str) -> list[str]:
  """Returns a list of strings in settings; none, if it is missing.

  Raises:
    ValueError: If a value is no string.
  """
  value = settings.get(name) or []
  value = value if isinstance(value, list) else [value]
  if wrong := [v for v in value if not isinstance(v, str)]:
    raise ValueError(f'{name}: {wrong[0]!r} is not a string: put it in quotes.')
  return value
