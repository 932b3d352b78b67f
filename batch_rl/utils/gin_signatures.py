"""Constructors that forward `**kwargs` and still say what they take.

gin accepts any parameter name for a constructor with `**kwargs`, so a misspelt
binding would fail deep inside, or never. `forwards_to` writes the forwarded
parameters into the signature, which gin and `help()` read.
"""

import functools
import inspect
from collections.abc import Callable


def forwards_to(base: type, without: tuple[str, ...] = (), **fixed) -> Callable:
  """Class decorator: the constructor's `**kwargs` go to `base.__init__`.

  A class without a constructor of its own gets one that calls the inherited one.

  Args:
    base: whose constructor gets the keyword arguments.
    without: its parameters that are not forwarded.
    **fixed: arguments that the class supplies itself; no longer parameters.
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

    # gin would look through the wrapper, at the signature inside.
    del __init__.__wrapped__
    __init__.__signature__ = inspect.Signature(
      [*own.values(), *forwarded.values()]
    )
    cls.__init__ = __init__
    return cls

  return decorate
