"""Checks of bindings that gin has read, before anything is built.

A value out of its range would otherwise end in a traceback after minutes, or train
nothing.
"""

import ast
import re
from collections.abc import Iterable
from typing import Any

from gin import config, config_parser

from batch_rl.runs.bindings import bound, settings, syntax


def check(statements: Iterable[config_parser.BindingStatement]) -> None:
  """Checks the values of parameters, after gin has read them.

  References like @schedule() are left alone; macros count as their values.

  Args:
    statements: Bindings in the order of reading; the last one of a parameter counts.

  Raises:
    ValueError: If a value is not in the range of its parameter.
  """
  for statement in reversed(list(statements)):
    scope, selector, parameter, literal, location = statement
    if not parameter:
      _check_macro(statement)
      continue
    known = config._REGISTRY.get_match(selector)
    values = config._CONFIG.get((scope, known.selector), {}) if known else {}
    if parameter not in values:
      continue  # cleared since
    given = values[parameter]
    value = bound.resolve(given)
    allowed = settings.find(known.wrapped, parameter)
    if allowed is None:
      continue
    is_reference = isinstance(value, config.ConfigurableReference)
    if (
      (allowed.none if value is None else allowed.accepts(value))
      or is_reference
      and allowed is not settings.OPTIMIZER
    ):
      continue
    name = '/'.join(filter(None, (scope, selector)))
    written = syntax.written_value(statement)
    if literal is not syntax.REFERENCE and literal != given:
      written = syntax.short(repr(given))  # another statement has bound it
    text = f'{name}.{parameter}={written}'
    if value is not given:
      text += f', which is {syntax.short(repr(value))},'
    if location.filename:
      text = f'{location.filename}, line {location.line_num}: {text}'
    raise ValueError(
      f'{text} is not allowed: give {allowed}{_hint(value, allowed)}.'
    )


def _check_macro(statement):
  """Refuses an unused macro that is named like a parameter or a class."""
  name = '/'.join(filter(None, statement[:2]))
  meant = name in settings.SETTINGS or (
    statement.value is not syntax.REFERENCE
    and config._REGISTRY.matching_selectors(name)
  )
  # Files may define macros for others that include them.
  if not meant or statement.location.filename is not None:
    return
  if not re.search(rf'%{re.escape(name)}(?![\w./])', repr(config._CONFIG)):
    written = syntax.written_value(statement)
    raise ValueError(
      f'{name}={written} sets no parameter: write Class.parameter=value, e.g. '
      'FixedReplayRunner.num_iterations=3.'
    )


def _hint(value: Any, allowed: settings.Setting) -> str:
  """Returns what to write instead, if a value is nearly right; otherwise ''."""
  candidates: list[Any] = []
  if isinstance(value, str):
    try:
      candidates.append(ast.literal_eval(value))
    except (ValueError, SyntaxError):
      pass
  elif isinstance(value, float) and value.is_integer():
    candidates.append(int(value))
  elif isinstance(value, list):
    candidates.append(tuple(value))
  elif settings.is_integer(value):
    candidates += [(value,), *([bool(value)] if value in (0, 1) else [])]
  for candidate in candidates:
    if candidate is not None and allowed.accepts(candidate):
      return f': {candidate!r}'
  return ''
