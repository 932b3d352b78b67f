"""Pickle that holds data only: reading it runs nothing that the file asks for.

A pickle names functions to be called when it is read. Here, those that make plain
Python and NumPy data are all there are.
"""

import io
import pickle
from typing import Any

_ALLOWED = frozenset({
  ('builtins', 'bytearray'),
  ('builtins', 'complex'),
  ('builtins', 'frozenset'),
  ('builtins', 'set'),
  ('collections', 'OrderedDict'),
  ('numpy', 'dtype'),
  ('numpy', 'ndarray'),
  # NumPy 2 and 1 have them in different places.
  *(
    (f'numpy.{core}.{module}', name)
    for core in ('_core', 'core')
    for module, name in (
      ('multiarray', '_reconstruct'),
      ('multiarray', 'scalar'),
      ('numeric', '_frombuffer'),
    )
  ),
})  # fmt: skip


class _Unpickler(pickle.Unpickler):
  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in _ALLOWED:
      raise ValueError(f'it asks for {module}.{name}, which is not plain data')
    return super().find_class(module, name)


def loads(content: bytes) -> Any:
  """Reads plain data: numbers, text, lists, dictionaries, sets, arrays.

  Raises:
    ValueError: if it is damaged, or holds anything else.
  """
  try:
    return _Unpickler(io.BytesIO(content)).load()
  except ValueError:
    raise
  except Exception as error:  # what a damaged pickle raises can be anything
    raise ValueError(f'it is damaged ({error})') from error


def dumps(content: Any) -> bytes:
  """Writes plain data.

  Raises:
    ValueError: if `loads` would not read it.
  """
  data = pickle.dumps(content, protocol=4)
  loads(data)
  return data
