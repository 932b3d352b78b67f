"""Bindings of gin files, with the classes that they are for."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import gin
from gin import config, config_parser


class Binding(NamedTuple):
  """A binding in a file.

  Attributes:
    scope: Its gin scope, or ''.
    selector: Full name of the class or function.
    configurable: The class or function.
    parameter: Name of the parameter.
    file: Path of the gin file; None for a binding on the command line.
  """

  scope: str
  selector: str
  configurable: Any
  parameter: str
  file: str | None

  def value(self) -> Any:
    """Returns the value in gin; references stay references."""
    return config._CONFIG[self.scope, self.selector][self.parameter]

  def remove(self) -> None:
    """Removes the binding from gin."""
    values = config._CONFIG.get((self.scope, self.selector), {})
    values.pop(self.parameter, None)
    if not values:  # else gin would list the class
      config._CONFIG.pop((self.scope, self.selector), None)

  def move(self, selector: str) -> None:
    """Binds the value to the parameter of another class or function."""
    name = '/'.join(filter(None, (self.scope, selector)))
    with gin.unlock_config():
      gin.bind_parameter(f'{name}.{self.parameter}', self.value())


def find(
  statements: Iterable[config_parser.BindingStatement],
) -> Iterator[Binding]:
  """Yields the bindings of parameters, without macros.

  Args:
    statements: Bindings in the order of reading, after gin has read them.
  """
  for scope, selector, parameter, _, location in statements:
    known = config._REGISTRY.get_match(selector) if parameter else None
    if known:
      yield Binding(
        scope, known.selector, known.wrapped, parameter, location.filename
      )


def resolve(given: Any) -> Any:
  """Returns the value of a macro or constant; anything else as it is.

  Args:
    given: Value that gin has for a parameter.

  Raises:
    ValueError: If the macro has no value.
  """
  seen = []
  while isinstance(given, config.ConfigurableReference) and given.evaluate:
    name = '/'.join(given.scopes)
    if given.configurable.wrapped is config._retrieve_constant:
      return config._CONSTANTS[name]
    if given.configurable.wrapped is not config.macro:
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
