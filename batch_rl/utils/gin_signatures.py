"""Explicit signatures for constructors that forward `**kwargs`.

gin accepts any parameter name for a constructor with `**kwargs`, so a misspelt
binding would fail late or never. `forwards_to` adds the forwarded parameters to
the signature that gin and `help()` read.
"""

import functools
import inspect
from collections.abc import Callable


def forwards_to(base: type, without: tuple[str, ...] = (), **fixed) -> Callable:
  """Returns a class decorator that lists the parameters behind `**kwargs`.

  The decorated class must pass `**kwargs` to `base.__init__`. A class that
  inherits its constructor gets a wrapper around the inherited one.

  Args:
    base: Class whose constructor receives the keyword arguments.
    without: Parameters of `base` that are not forwarded.
    **fixed: Arguments that the class sets itself; they are not parameters of it.
  """

  def decorate(cls: type) -> type:
    construct = cls.__init__
    own = {
      name: parameter
      for name, parameter in inspect.signature(construct).parameters.items()
      if parameter.kind is not parameter.VAR_KEYWORD
    }
    forwarded = {
      name: parameter.replace(kind=parameter.KEYWORD_ONLY)
      for name, parameter in inspect.signature(base.__init__).parameters.items()
      if name not in own
      and name not in (*without, *fixed)
      and parameter.kind
      not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }

    @functools.wraps(construct)
    def __init__(self, *args, **kwargs):  # noqa: N807
      construct(self, *args, **kwargs, **fixed)

    # With `__wrapped__`, gin would read the signature inside the wrapper.
    del __init__.__wrapped__
    __init__.__signature__ = inspect.Signature(
      [*own.values(), *forwarded.values()]
    )
    cls.__init__ = __init__
    return cls

  return decorate


def accepts(function: Callable, name: str) -> bool:
  """Returns whether a function has a parameter of this name.

  Args:
    function: Function or bound constructor, possibly wrapped by gin.
    name: Name of the parameter.
  """
  return name in inspect.signature(function).parameters
