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


def next_accepts(instance: object, cls: type, name: str) -> bool:
  """Returns whether the constructors after a class take an argument.

  A constructor with `**kwargs` forwards it, so the next one decides.

  Args:
    instance: Object under construction.
    cls: Class among its bases; the search starts with the next one.
    name: Name of the argument.
  """
  bases = type(instance).__mro__
  for base in bases[bases.index(cls) + 1 :]:
    if '__init__' in vars(base):
      parameters = inspect.signature(base.__init__).parameters
      if name in parameters:
        return True
      if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return False
  return False
