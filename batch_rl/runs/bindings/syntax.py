"""Syntax of gin lines, checked before gin reads them.

gin's own messages for the commonest mistakes name objects of Python's parser.
"""

import io
import re
import tokenize
from collections.abc import Sequence

from gin import config_parser

from batch_rl.runs.bindings import settings

_NAME = r'[\w/]+(?:\.\w+)*'
_STATEMENT = re.compile(rf'\s*({_NAME})\s*=(.*)', re.DOTALL)
# Words of other languages, and what gin reads.
_WORDS = {
  'true': 'True',
  'false': 'False',
  'none': 'None',
  'null': 'None',
}
# Characters that begin a value which is not text without quotes.
_OPENING = '\'"([{@%'

REFERENCE = object()  # value of a binding to a reference or macro


class _IgnoredReferences(config_parser.ParserDelegate):
  """Reads references and macros without looking them up."""

  def configurable_reference(self, scoped_configurable_name, evaluate):
    return REFERENCE

  def macro(self, macro_name):
    return REFERENCE


def parse(
  text: str, path: str | None = None
) -> list[config_parser.BindingStatement]:
  """Returns the bindings in lines of gin.

  Args:
    text: Lines of gin.
    path: File of the lines; None for the bindings of a command line.

  Raises:
    ValueError: If gin cannot read a line. The message says what to write.
  """
  statements = []
  try:
    for statement in _parser(text, path):
      if isinstance(statement, config_parser.BindingStatement):
        statements.append(statement)
  except (SyntaxError, tokenize.TokenError, ValueError) as error:
    number, line = _place(error, text)
    where = f'{path}, line {number}: ' if path else ''
    if isinstance(error, IndentationError):
      problem = f'gin cannot read `{short(line)}`: indent all lines alike.'
    else:
      problem = _explain(line, path is None)
    raise ValueError(f'{where}{problem}') from error
  return statements


def parse_bindings(
  bindings: Sequence[str],
) -> list[config_parser.BindingStatement]:
  """Returns the bindings of a command line.

  Raises:
    ValueError: If gin cannot read one. The message says what to write.
  """
  try:
    return parse('\n'.join(bindings))
  except ValueError:
    for binding in bindings:  # names the one that is wrong by itself
      parse(binding)
    raise


def _parser(text, path):
  lines = io.StringIO(text)
  setattr(lines, 'name', path)  # noqa: B010  (for the locations)
  return config_parser.ConfigParser(lines, _IgnoredReferences())


def written_value(statement: config_parser.BindingStatement) -> str:
  """Returns the value of a binding as it is written, at most one line."""
  value = statement.location.line_content.partition('=')[2]
  return short(re.sub(r'\s#.*', '', value).strip())


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


def _explain(line: str, on_command_line: bool) -> str:
  """Returns what is wrong with a line, and what to write."""
  match = _STATEMENT.fullmatch(line)
  if included := re.fullmatch(r'include\s+([^\'"]+)', line):
    return f"gin cannot read `{line}`: write include '{included[1]}'."
  if not match:
    return (
      f'gin cannot read `{short(line)}`: a binding has the form '
      'Name.parameter=value.'
    )
  name, value = match[1], re.sub(r'\s#.*', '', match[2]).strip()
  if on_command_line:

    def corrected(value):
      return f'--gin_bindings="{name}={value}"'
  else:

    def corrected(value):
      return f'{name} = {value}'

  binding = f'{name}={short(value)}'
  if not value:
    return (
      f'{binding} has no value: write one after the sign, or None, or '
      f'{corrected(repr(""))} for an empty text.'
    )
  if value.startswith('='):
    return f'{binding} has two signs =: write {corrected(value.lstrip("= "))}.'
  if value.lower() in _WORDS:
    return (
      f'{binding}: {value} is unknown to gin: write '
      f'{corrected(_WORDS[value.lower()])}.'
    )
  if value.lower().lstrip('+-') in ('nan', 'inf', 'infinity'):
    return f'{binding}: give a finite number.'
  if re.search(r'\w\.\w+\s*=', value):
    return f'{binding} has two bindings: give each its own --gin_bindings.'
  if value[0] == '+':
    return f'{binding}: gin reads no sign +: write {corrected(value[1:])}.'
  allowed = settings.SETTINGS.get(name.split('.')[-1])
  if allowed and allowed not in settings.TEXTS:
    return f'{binding} cannot be read: give {allowed}.'
  if value[0].isdigit() or re.match(r'-?\.?\d', value):
    return (
      f'{binding} is not a number: write e.g. 250000, 0.5 or 1e-4; text '
      'needs quotes.'
    )
  if value[0] in _OPENING or not re.search(r'[^\W\d]', value):
    return (
      f'gin cannot read the value of {binding}: give a number, True, False, None, a '
      "text in quotes, a list like [1, 'a'], a reference @Name or a macro %name."
    )
  text = re.sub(r'["\']', '', value)
  return f'{binding}: text needs quotes: write {corrected(repr(text))}.'


def short(text: str) -> str:
  """Returns the beginning of a long text."""
  return text if len(text) <= 80 else f'{text[:77]}...'
