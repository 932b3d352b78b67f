"""Bindings that gin has read, and the check of their values."""

import collections
import copy
import inspect
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import gin
from gin import config, config_parser

from batch_rl.runs.bindings import gin_internals, settings, syntax
from batch_rl.utils import choices


class Binding(NamedTuple):
  """A binding or macro.

  Attributes:
    scope: Its gin scope, or ''.
    selector: Full name of the class or function; the name of a macro.
    configurable: The class or function; None for a macro.
    parameter: Name of the parameter; '' for a macro.
    given: Value in the file or on the command line; gin's current one may differ.
    location: File and line; the `filename` is None on the command line.
  """

  scope: str
  selector: str
  configurable: Any
  parameter: str
  given: Any
  location: config_parser.Location

  @property
  def file(self) -> str | None:
    """Path of the gin file; None for a binding on the command line."""
    return self.location.filename

  @property
  def name(self) -> str:
    """Short name of the class or function, with the parameter and the scope."""
    name = self.selector
    if self.parameter:
      name = f'{gin_internals.short_name(name)}.{self.parameter}'
    return f'{self.scope}/{name}' if self.scope else name

  @property
  def values(self) -> dict[str, Any]:
    """Values that gin has for the class or function; references stay references."""
    return gin_internals.bound_values().get((self.scope, self.selector), {})

  def remove(self) -> None:
    """Removes the binding from gin."""
    self.values.pop(self.parameter, None)
    if not self.values:  # else gin would list the class
      gin_internals.bound_values().pop((self.scope, self.selector), None)

  def move(self, selector: str) -> None:
    """Binds the value to the parameter of another class or function.

    Raises:
      ValueError: If the value is not in the range of that parameter.
    """
    value = self.values[self.parameter]
    self.remove()
    with gin.unlock_config():
      gin.bind_parameter((self.scope, selector, self.parameter), value)
    owner = gin_internals.find(selector).wrapped
    moved = self._replace(selector=selector, configurable=owner)
    _check_value(moved, self.name)


def of_statement(statement: config_parser.BindingStatement) -> Binding:
  """Binds a value as a statement says, and returns the binding.

  Raises:
    ValueError: If gin does not know the class or the parameter.
  """
  scope, selector, parameter, parsed, location = statement
  value = copy.deepcopy(parsed)  # gin knows the references by now
  if not parameter:
    name = f'{scope}/{selector}' if scope else selector
    gin.bind_parameter((name, 'gin.macro', 'value'), value)
    return Binding('', name, None, '', value, location)
  gin.bind_parameter((scope, selector, parameter), value)
  known = gin_internals.find(selector)
  return Binding(
    scope, known.selector, known.wrapped, parameter, value, location
  )


def redirect(
  bindings: Iterable[Binding], former: Collection[str], current: Sequence[str]
) -> None:
  """Binds parameters of other names to a class; the last binding of each counts.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    former: Full names that stand for the class.
    current: Full names of the class and of its base classes, the class first. A binding
      of a base class is replaced there. Else the first that has the parameter gets it.
  """
  by_parameter = collections.defaultdict(list)
  for binding in bindings:
    if binding.parameter and binding.selector in (*former, *current):
      by_parameter[binding.scope, binding.parameter].append(binding)
  for (_, parameter), same in by_parameter.items():
    selectors = [binding.selector for binding in same]
    if selectors[-1] in former:
      owners = [c for c in current if c in selectors] or [
        c
        for c in current
        if parameter in parameters(gin_internals.find(c).wrapped)
      ]
      same[-1].move((owners or current)[0])
    for binding in same:
      if binding.selector in former:
        binding.remove()


def parameter_hint(parameter: str, known: Iterable[str]) -> str:
  """Returns ` (did you mean ...?)` for a parameter that a class lacks, or ''.

  It names the same parameter of another class or function in the configuration, e.g. of
  the optimiser or the memory; else the most similar parameter of the class.

  Args:
    parameter: Name of the parameter.
    known: Names of the parameters that the class has.
  """
  used = {selector for _, selector in gin_internals.bound_values()}
  for values in gin_internals.bound_values().values():
    used |= {
      value.configurable.selector
      for value in values.values()
      if isinstance(value, config.ConfigurableReference)
    }
  owners = [
    gin_internals.short_name(selector)
    for selector, configurable in gin_internals.all_known().items()
    if selector in used and parameter in parameters(configurable)
  ]
  if owners:
    names = ' or '.join(f'{owner}.{parameter}' for owner in owners)
    return f' (did you mean {names}?)'
  return choices.hint(parameter, known)


def parameters(configurable: Any) -> Iterable[str]:
  """Returns the names of the parameters of a class or function."""
  try:
    return inspect.signature(configurable).parameters
  except ValueError:  # built-in
    return ()


def resolve(given: Any, within: Sequence[str] = ()) -> Any:
  """Returns a value with those of its macros and constants, also in tuples and lists.

  Other references stay.

  Args:
    given: Value that gin has for a parameter.
    within: Names of macros whose value it is in.

  Raises:
    ValueError: If a macro has no value.
  """
  seen = [*within]
  while isinstance(given, config.ConfigurableReference):
    name = '/'.join(given.scopes)
    if given.configurable.selector == 'gin.constant':
      return given.scoped_configurable_fn()
    if given.configurable.selector != 'gin.macro':
      return given
    if name in seen:
      raise ValueError(f'The gin macro %{name} is defined by itself.')
    seen.append(name)
    try:
      given = gin.query_parameter(f'%{name}')
    except ValueError as error:
      raise ValueError(
        f'%{name} is neither a constant nor a macro with a value: add {name}=VALUE.'
      ) from error
  if type(given) in (list, tuple):
    return type(given)(resolve(value, seen) for value in given)
  return given


def query(parameter: str) -> Any:
  """Returns the value bound to a gin parameter, also by a macro, or None.

  Raises:
    ValueError: If a macro has no value.
  """
  try:
    given = gin.query_parameter(parameter)
  except ValueError:
    return None
  return resolve(given)


def check(bindings: Sequence[Binding]) -> None:
  """Checks the values of parameters, after gin has read them.

  A value out of its range would otherwise end in a traceback after minutes, or train
  nothing. References like @schedule() are left alone; macros count as their values.

  Args:
    bindings: Bindings in the order of reading; the last one of a parameter counts.

  Raises:
    ValueError: If a value is not in the range of its parameter.
  """
  for binding in reversed(bindings):
    if binding.parameter in binding.values:
      _check_value(binding)
    elif not binding.parameter and not binding.file:
      _check_macro(binding)


def _check_value(binding: Binding, name: str | None = None) -> None:
  """Checks a value; the message has the name that the user wrote, if given."""
  setting = settings.find(binding.configurable, binding.parameter)
  bound = binding.values[binding.parameter]
  value = resolve(bound)
  if setting is None or setting.allows(value):
    return
  text = f'{name or binding.name}={syntax.short(repr(bound))}'
  if value != bound:
    text += f', which is {syntax.short(repr(value))},'
  if binding.file:
    text = f'{binding.file}, line {binding.location.line_num}: {text}'
  raise ValueError(f'{text} is not allowed: give {setting}.')


def _check_macro(macro: Binding) -> None:
  """Refuses an unused macro of the command line; files may have some for others."""
  use = rf'%{re.escape(macro.name)}(?![\w./])'
  if not re.search(use, repr(gin_internals.bound_values())):
    raise ValueError(
      f'{macro.name}={syntax.short(repr(macro.given))} sets no parameter, and no value is '
      f'%{macro.name}: write Class.parameter=value, e.g. FixedReplayRunner.num_iterations=3.'
    )
