"""Pickles of plain data, safe to read from untrusted files.

A pickle names functions that are called when it is read, and NumPy's array
constructors trust their arguments. This reader allows only the constructors of
plain Python data, and its own array constructors validate their arguments.
"""

import collections
import io
import math
import pickle
from typing import Any

import numpy as np

# Booleans, integers, floats, complex numbers, bytes and text: no pointers.
_KINDS = frozenset('biufcSU')


class _Array:
  """Placeholder for `numpy.ndarray`, so that no pickle can call it."""


def _dtype(code: Any, *_: Any) -> np.dtype:
  dtype = np.dtype(code) if isinstance(code, str) else None
  if dtype is None or dtype.kind not in _KINDS or dtype.subdtype:
    name = repr(code) if isinstance(code, str) else type(code).__name__
    raise ValueError(f'it has an array of {name}, which is not plain data')
  return dtype


def _reconstruct(kind: Any, *_: Any) -> np.ndarray:
  if kind is not _Array:
    raise ValueError('it has an array of a foreign class')
  return np.empty(0)


def _scalar(dtype: Any, data: Any) -> Any:
  array = np.empty(0)
  array.__setstate__(_array_state((1, (), dtype, False, data)))
  return array[()]


def _array_state(state: Any) -> tuple:
  version, shape, dtype, is_fortran, data = state
  if not (
    isinstance(dtype, np.dtype)
    and isinstance(data, bytes)
    and isinstance(shape, tuple)
    and all(isinstance(n, int) and n >= 0 for n in shape)
    and math.prod(shape) * dtype.itemsize == len(data)
  ):
    raise ValueError('it has a damaged array')
  return version, shape, dtype, bool(is_fortran), data


_ALLOWED = {
  ('builtins', 'complex'): complex,
  ('builtins', 'frozenset'): frozenset,
  ('builtins', 'set'): set,
  ('collections', 'OrderedDict'): collections.OrderedDict,
  ('numpy', 'dtype'): _dtype,
  ('numpy', 'ndarray'): _Array,
  # NumPy 1 and 2 keep these functions in different modules.
  **{
    (f'numpy.{core}.multiarray', name): ours
    for core in ('_core', 'core')
    for name, ours in (('_reconstruct', _reconstruct), ('scalar', _scalar))
  },
}


# The pure Python unpickler: the C one does not let `load_build` be overridden.
_PurePython: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _Unpickler(_PurePython):
  dispatch = dict(_PurePython.dispatch)

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in _ALLOWED:
      raise ValueError(f'it refers to {module}.{name}, which is not plain data')
    return _ALLOWED[module, name]

  def load_build(self) -> None:
    """Restores the pickled state of an array or a dtype."""
    state = self.stack.pop()
    built = self.stack[-1]
    if type(built) is np.ndarray:
      built.__setstate__(_array_state(state))
    elif not isinstance(built, np.dtype):
      raise ValueError(f'it sets the state of a {type(built).__name__}')
    # The dtype's code holds everything but the byte order.
    elif state[1] == '>':
      raise ValueError('it has an array of big-endian numbers')

  dispatch[pickle.BUILD[0]] = load_build
  # It would reserve as many bytes as the content claims.
  del dispatch[pickle.BYTEARRAY8[0]]


def loads(content: bytes) -> Any:
  """Reads plain data: numbers, text, lists, dictionaries, sets and arrays.

  Raises:
    ValueError: If the content is damaged or holds anything else.
  """
  try:
    return _Unpickler(io.BytesIO(content)).load()
  except (ValueError, MemoryError):
    raise
  except Exception as error:  # A damaged pickle can raise any exception.
    reason = f'{type(error).__name__}: {error}'
    raise ValueError(f'it is damaged ({reason})') from error


def dumps(content: Any) -> bytes:
  """Writes plain data.

  Raises:
    ValueError: If it is anything else, which `loads` would refuse.
  """
  try:
    data = pickle.dumps(content, protocol=4)
  except (TypeError, AttributeError, pickle.PickleError) as error:
    raise ValueError(str(error)) from error
  loads(data)
  return data
