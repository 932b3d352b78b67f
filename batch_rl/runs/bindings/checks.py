"""Checks of bindings that gin has read, before anything is built.

A value out of its range would otherwise end in a traceback after minutes, or train
nothing.
"""

import ast
import re
from collections.abc import Sequence
from typing import Any

from gin import config

from batch_rl.runs.bindings import bound, gin_internals, settings, syntax


def check(bindings: Sequence[bound.Binding]) -> None:
  """Checks the values of parameters, after gin has read them.

  References like @schedule() are left alone; macros count as their values.

  Args:
    bindings: Bindings in the order of reading; the last one of a parameter counts.

  Raises:
    ValueError: If a value is not in the range of its parameter.
  """
  for binding in reversed(bindings):
    if binding.parameter and binding.is_bound:
      _check_value(binding)
    elif not binding.parameter and not binding.file:
      _check_macro(binding)


def _check_value(binding: bound.Binding) -> None:
  setting = settings.find(binding.configurable, binding.parameter)
  value = bound.resolve(binding.value)
  if setting is None or setting.allows(value):
    return
  # Another binding may have given the value since.
  is_own = binding.given == binding.value
  written = binding.location.line_content.partition('=')[2]
  written = syntax.without_comment(written) if is_own else repr(binding.value)
  text = f'{binding.name}={syntax.short(written)}'
  if value is not binding.value:
    text += f', which is {syntax.short(repr(value))},'
  if binding.file:
    text = f'{binding.file}, line {binding.location.line_num}: {text}'
  raise ValueError(
    f'{text} is not allowed: give {setting}{_hint(value, setting)}.'
  )


def _check_macro(macro: bound.Binding) -> None:
  """Refuses an unused macro that is named like a parameter or a class."""
  name = macro.selector
  is_reference = isinstance(macro.given, config.ConfigurableReference)
  is_meant = name in settings.SETTINGS or (
    gin_internals.are_known(name) and not is_reference
  )
  use = rf'%{re.escape(name)}(?![\w./])'
  if is_meant and not re.search(use, repr(gin_internals.bound_values())):
    raise ValueError(
      f'{name}={syntax.short(repr(macro.given))} sets no parameter: write '
      'Class.parameter=value, e.g. FixedReplayRunner.num_iterations=3.'
    )


def _hint(value: Any, setting: settings.Setting) -> str:
  """Returns what to write instead, if a value is nearly right; otherwise ''."""
  candidates: list[Any] = []
  if isinstance(value, str):
    try:
      candidates = [ast.literal_eval(value)]
    except (ValueError, SyntaxError):
      pass
  elif isinstance(value, float) and value.is_integer():
    candidates = [int(value)]
  elif isinstance(value, list):
    candidates = [tuple(value)]
  elif settings.is_integer(value):
    candidates = [(value,), *([bool(value)] if value in (0, 1) else [])]
  for candidate in candidates:
    if candidate is not None and setting.accepts(candidate):
      return f': {candidate!r}'
  return ''
