"""Explicit signatures for constructors that forward `**kwargs`.

gin accepts any parameter name for a constructor with `**kwargs`, so a misspelt
binding would fail late or never. Here such constructors get the signature that gin
and `help()` read: their own parameters and the forwarded ones.

Subclasses of `ForwardedParameters` need no decorator. `forwards_to` is for other
classes, and for those that withhold an argument.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gin

# Attribute of a constructor: its signature before the forwarded parameters.
_OWN_SIGNATURE = '_own_signature'
_OWN_PARAMETERS = '_own_parameters'  # of a decorated constructor
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ForwardedParameters:
  """Base of classes whose constructors pass `**kwargs` to the next class.

  A subclass gets the parameters of all constructors that its keyword arguments
  reach. A mixin keeps `**kwargs`, since the class after it is not known yet.
  """

  def __init_subclass__(cls: type[Any], **kwargs: Any):
    super().__init_subclass__(**kwargs)
    signatures = list(_reached_signatures(cls.__mro__))
    if _forwards(signatures[-1]):  # up to `object`: a mixin
      return
    signature = _join(signatures)
    construct: Any = vars(cls).get('__init__')
    if construct is None:
      inherited = inspect.signature(cls.__init__).parameters
      if inherited.keys() == signature.parameters.keys():
        return

      def __init__(self, *args, **kwargs):  # noqa: N807
        super(cls, self).__init__(*args, **kwargs)

      __init__.__qualname__ = f'{cls.__qualname__}.__init__'
      cls.__init__ = construct = __init__
    setattr(construct, _OWN_SIGNATURE, _own_signature(construct))
    construct.__signature__ = signature


def forwards_to(base: type[Any], without: tuple[str, ...] = ()) -> Callable:
  """Returns a class decorator that lists the parameters behind `**kwargs`.

  The decorated class must pass `**kwargs` to `base.__init__`. A class that
  inherits its constructor gets a wrapper around the inherited one.

  Args:
    base: Class whose constructor receives the keyword arguments.
    without: Parameters of `base` that are not forwarded.
  """

  def decorate(cls: type[Any]) -> type[Any]:
    construct = cls.__init__
    own = _own_signature(construct).parameters
    signature = _join(map(inspect.signature, (construct, base.__init__)))

    @functools.wraps(construct, updated=())
    def __init__(self: Any, *args: Any, **kwargs: Any):  # noqa: N807
      construct(self, *args, **kwargs)

    # With `__wrapped__`, gin would read the signature inside the wrapper.
    vars(__init__).pop('__wrapped__')
    vars(__init__)[_OWN_PARAMETERS] = own
    dropped = {*without} - {*own}
    shown = [p for n, p in signature.parameters.items() if n not in dropped]
    vars(__init__)['__signature__'] = inspect.Signature(shown)
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
  following = _reached_signatures(bases[bases.index(cls) + 1 :])
  return any(name in signature.parameters for signature in following)


def configured_value(cls: type, name: str) -> Any:
  """Returns the value that a constructor's parameter has under gin's bindings.

  gin binds it for the class or for a base class.

  Args:
    cls: Class whose signature has the parameter.
    name: Name of the parameter.

  Raises:
    ValueError: If the class has no such parameter.
  """
  for base in cls.__mro__:
    if name in (bindings := _bindings(base) or {}):
      return copy.deepcopy(bindings[name])  # gin makes the value of a reference
    if construct := vars(base).get('__init__'):
      own = getattr(construct, _OWN_PARAMETERS, None)
      own = own or _own_signature(construct).parameters
      if name in own and own[name].default is not inspect.Parameter.empty:
        return own[name].default
  raise ValueError(f'{cls.__name__} has no parameter {name} with a value.')


def _bindings(cls: type) -> dict[str, Any] | None:
  """Returns gin's bindings for a class; None for one that is not configurable.

  References stay references: objects of other parameters are not made.
  """
  try:
    return gin.get_bindings(cls, resolve_references=False)
  except ValueError:
    return None


def make_configurable(cls: type) -> None:
  """Makes a class known to gin, unless `@gin.configurable` has.

  A notebook's cell may have defined another one of the name before.
  """
  if _bindings(cls) is None:
    with gin.unlock_config(), gin.config.interactive_mode():
      gin.configurable(cls)


def _own_signature(construct: Callable) -> inspect.Signature:
  """Returns the signature without the forwarded parameters, if any were added."""
  own = getattr(construct, _OWN_SIGNATURE, None)
  return own or inspect.signature(construct)


def _reached_signatures(
  bases: Iterable[type[Any]],
) -> Iterator[inspect.Signature]:
  """Yields the signatures of constructors up to the first without `**kwargs`."""
  for base in bases:
    if '__init__' in vars(base):
      signature = _own_signature(base.__init__)
      yield signature
      if not _forwards(signature):
        return


def _forwards(signature: inspect.Signature) -> bool:
  kinds = [parameter.kind for parameter in signature.parameters.values()]
  return inspect.Parameter.VAR_KEYWORD in kinds


def _join(signatures: Iterable[inspect.Signature]) -> inspect.Signature:
  """Returns one signature for constructors that call each other in this order."""
  joined: dict[str, inspect.Parameter] = {}
  by_position = True  # while `*args` lead to the next constructor
  for signature in signatures:
    parameters = signature.parameters.values()
    for parameter in parameters:
      name, kind = parameter.name, parameter.kind
      if name == 'self' and joined or kind in _VARIADIC:
        continue
      if kind is not parameter.KEYWORD_ONLY:
        by_position = by_position and name not in joined
        if parameter.default is parameter.empty:
          by_position = by_position and all(
            before.kind is before.KEYWORD_ONLY or before.default is before.empty
            for before in joined.values()
          )
        kind = kind if by_position else parameter.KEYWORD_ONLY
      joined.setdefault(name, parameter.replace(kind=kind))
    kinds = [parameter.kind for parameter in parameters]
    by_position = by_position and inspect.Parameter.VAR_POSITIONAL in kinds
  return inspect.Signature(sorted(joined.values(), key=lambda p: p.kind))
