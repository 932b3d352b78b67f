"""Names chosen from a list, with a hint for a misspelt one."""

import difflib
from collections.abc import Iterable


def choose(kind: str, name: str | None, choices: Iterable[str]) -> str:
  """Returns the name if it is among the choices.

  Raises:
    ValueError: If it is not; the message lists the choices.
  """
  choices = list(choices)
  if name is not None and name in choices:
    return name
  raise ValueError(f'{unknown(kind, name, choices)}.')


def unknown(kind: str, name: str | None, choices: Iterable[str]) -> str:
  """Returns the words for an unknown name, with the nearest and all choices."""
  choices = sorted(choices)
  near = hint(str(name), choices)
  return f'Unknown {kind} {name!r}{near}; choose {", ".join(choices)}'


def short(name: str, names: Iterable[str]) -> str:
  """Returns the last part of a dotted name; all of it if others end with that, too."""
  last = name.rpartition('.')[2]
  same = [other for other in names if other.rpartition('.')[2] == last]
  return last if len(same) == 1 else name


def hint(name: str, choices: Iterable[str]) -> str:
  """Returns ` (did you mean ...?)` with the nearest choice in any case, or ''."""
  by_key = {choice.lower(): choice for choice in choices}
  near = difflib.get_close_matches(name.lower(), by_key, 1)
  return f' (did you mean {by_key[near[0]]}?)' if near else ''
