"""Syntax of gin lines, parsed before any class is looked up.

gin's own messages for the commonest mistakes name objects of Python's parser.
"""

import io
import os
import re
import tokenize
from typing import Any, NamedTuple

from gin import config_parser

from batch_rl.runs.bindings import gin_internals, settings

_STATEMENT = re.compile(r'[\w/.]*\.(\w+)\s*=.*', re.DOTALL)


class Reference(NamedTuple):
  """A reference or macro. Its copy is gin's, whose class a later line may import."""

  kind: str  # method of gin's delegate
  arguments: tuple[Any, ...]

  def __deepcopy__(self, memo):
    return getattr(gin_internals.PARSER_DELEGATE, self.kind)(*self.arguments)


class _Delegate(config_parser.ParserDelegate):
  def configurable_reference(self, *arguments):
    return Reference('configurable_reference', arguments)

  def macro(self, *arguments):
    return Reference('macro', arguments)


def parse(text: str, path: str | None = None) -> list[Any]:
  """Returns the statements of gin lines.

  Args:
    text: Lines of gin.
    path: File of the lines; None for the bindings of a command line.

  Returns:
    gin's statements. A deep copy of a value has gin's references, once gin knows
    their classes.

  Raises:
    ValueError: If gin cannot read a line. The message says what to write.
  """
  lines = io.StringIO(text)
  setattr(lines, 'name', path)  # noqa: B010  (for the locations)
  try:
    return list(config_parser.ConfigParser(lines, _Delegate()))
  except (SyntaxError, tokenize.TokenError, ValueError) as error:
    number, line = _place(error, text)
    where = f'{path}, line {number}: ' if path else ''
    is_indent = isinstance(error, IndentationError)
    remedy = 'indent all lines alike' if is_indent else _remedy(line)
    raise ValueError(
      f'{where}gin cannot read `{short(line)}`: {remedy}.'
    ) from error


def _place(error: Exception, text: str) -> tuple[int, str]:
  """Returns number and text of the line of an error."""
  lines = text.split('\n')
  number = getattr(error, 'lineno', None)
  if number is None and isinstance(error, tokenize.TokenError):
    number = error.args[1][0]
  number = min(max(number or 1, 1), len(lines))
  while number > 1 and not lines[number - 1].strip():
    number -= 1  # an open bracket is noticed at the end
  return number, lines[number - 1].strip()


def _remedy(line: str) -> str:
  """Returns what to write instead of a line."""
  match = _STATEMENT.fullmatch(line)
  if match and (setting := settings.SETTINGS.get(match[1])):
    return f'give {setting}'
  return (
    'write Name.parameter=value, with a number, True, False, None, a text in quotes, '
    "a list like [1, 'a'], a reference @Name or a macro %name; or include 'file'"
  )


def format_value(value: Any) -> str:
  """Returns a value in gin syntax; text that begins with @ or % is a reference."""
  value = getattr(value, 'tolist', lambda: value)()  # of NumPy
  if isinstance(value, list):
    return f'[{", ".join(map(format_value, value))}]'
  if isinstance(value, tuple):
    return f'({"".join(f"{format_value(part)}, " for part in value)})'
  if isinstance(value, os.PathLike):
    value = os.fspath(value)
  if isinstance(value, str) and value.startswith(('@', '%')):
    return value
  return repr(value)


def short(text: str) -> str:
  """Returns the beginning of a long text."""
  return text if len(text) <= 80 else f'{text[:77]}...'
