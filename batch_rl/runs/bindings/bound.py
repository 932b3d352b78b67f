"""Bindings that gin has read, with the classes that they are for."""

from typing import Any, NamedTuple

import gin
from gin import config, config_parser

from batch_rl.runs.bindings import gin_internals


class Binding(NamedTuple):
  """A binding or macro.

  Attributes:
    scope: Its gin scope, or ''.
    selector: Full name of the class or function; the name of a macro.
    configurable: The class or function; None for a macro.
    parameter: Name of the parameter; '' for a macro.
    given: Value in the file or on the command line; gin may have another since.
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
  def is_bound(self) -> bool:
    """Whether gin has a value for the parameter."""
    return self.parameter in self._values

  @property
  def value(self) -> Any:
    """Value in gin; references stay references."""
    return self._values[self.parameter]

  @property
  def _values(self):
    key = self.scope, self.selector
    return gin_internals.bound_values().get(key, {})

  def remove(self) -> None:
    """Removes the binding from gin."""
    self._values.pop(self.parameter, None)
    if not self._values:  # else gin would list the class
      gin_internals.bound_values().pop((self.scope, self.selector), None)

  def move(self, selector: str) -> None:
    """Binds the value to the parameter of another class or function."""
    value = self.value
    self.remove()
    with gin.unlock_config():
      gin.bind_parameter((self.scope, selector, self.parameter), value)


def of_statement(
  statement: config_parser.BindingStatement, value: Any
) -> Binding:
  """Binds a value as a statement says, and returns the binding.

  Args:
    statement: Statement of a file or of the command line.
    value: Its value, with gin's references.

  Raises:
    ValueError: If gin does not know the class or the parameter.
  """
  scope, selector, parameter, _, location = statement
  if not parameter:
    name = f'{scope}/{selector}' if scope else selector
    gin.bind_parameter((name, 'gin.macro', 'value'), value)
    return Binding('', name, None, '', value, location)
  gin.bind_parameter((scope, selector, parameter), value)
  known = gin_internals.find(selector)
  return Binding(
    scope, known.selector, known.wrapped, parameter, value, location
  )


def resolve(given: Any) -> Any:
  """Returns the value of a macro or constant; anything else as it is.

  Args:
    given: Value that gin has for a parameter.

  Raises:
    ValueError: If the macro has no value.
  """
  seen = []
  while isinstance(given, config.ConfigurableReference):
    name = '/'.join(given.scopes)
    if gin_internals.is_constant(given):
      return gin_internals.constant(name)
    if not gin_internals.is_macro(given):
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
