"""Safe pickles hold plain data only, and run no code."""

import collections
import functools
import io
import os
import pathlib
import pickle
import random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_rl.utils import safe_pickle


# Protocol 3 is the first of Python 3, and so of Dopamine. Its checkpoints have 4, the
# default; its logs 5, which has other arrays, but logs have none.
@pytest.mark.parametrize('protocol', [3, 4, 5])
def test_arrays_and_plain_classes_round_trip(protocol, monkeypatch):
  for array in (
    np.arange(6.0).reshape(2, 3),
    np.float32(1.5),
    np.zeros((2, 84, 84, 4), np.uint8)[:, ::2],
    np.arange(6, dtype='i2').reshape(2, 3).T,
    np.array(True),
  ):
    read = safe_pickle.loads(pickle.dumps(array, min(protocol, 4)))
    np.testing.assert_array_equal(read, array)
  content = [{'a': None, 'b': [True, 2**70, b'bytes'], 'é': {}}, {1, 2}, 1 + 2j]
  content += [frozenset([3]), collections.OrderedDict([('a', 1)])]
  content.append([np.float64(1.5), np.float32(2), np.int64(3), np.bool_(True)])
  content.append(random.getstate())
  assert safe_pickle.loads(pickle.dumps(content, protocol)) == content
  for unreadable in pathlib.PurePosixPath('x'), lambda: 0, (i for i in ''):
    with pytest.raises(ValueError, match='pathlib|lambda|generator'):
      safe_pickle.dumps({'a': unreadable})
  fail = mock.Mock(side_effect=MemoryError)
  monkeypatch.setattr(safe_pickle._Unpickler, 'load', fail)
  with pytest.raises(MemoryError):  # no damage
    safe_pickle.loads(b'')


class Exploit:
  def __init__(self, function, *arguments):
    self._call = function, arguments

  def __reduce__(self):
    return self._call


@pytest.mark.parametrize('protocol', [0, 2, 4, 5])
def test_no_code_is_run(tmp_path, protocol):
  path = tmp_path / 'proof'
  exploit = Exploit(os.mkdir, str(path))
  for content in (exploit, {'logs': [np.zeros(3), exploit]}):
    with pytest.raises(ValueError, match='not plain data'):
      safe_pickle.loads(pickle.dumps(content, protocol))
  assert not path.exists()


def test_dotted_names_are_refused():
  """In protocol 4, a name may be a path of attributes."""
  stream = io.BytesIO()
  pickler = pickle._Pickler(stream, 4)
  pickler.write(pickle.PROTO + b'\x04')
  pickler.save('numpy')
  pickler.save('dtype.__class__')
  pickler.write(pickle.STACK_GLOBAL + pickle.STOP)
  with pytest.raises(ValueError, match='numpy.dtype.__class__'):
    safe_pickle.loads(stream.getvalue())


class Forged:
  """A dtype whose bytes NumPy would take for pointers."""

  def __reduce__(self):
    state = (3, '|', None, ('f',), {'f': (np.dtype('O'), 0)}, 8, 1, 0)
    return np.dtype, ('V8', False, True), state


# A message must not show it: 2 ** 60 references.
NESTED = functools.reduce(lambda inner, _: (inner, inner), range(60), ())


@pytest.mark.parametrize(
  'content',
  [
    Forged(),
    Exploit(np.dtype, NESTED),
    np.array([None]),
    np.zeros(2, [('a', int)]),
    np.arange(3, dtype='>i4'),
    Exploit(np._core.multiarray.scalar, np.dtype('f8'), b'1234'),
    Exploit(np._core.multiarray._reconstruct, np.ndarray, (0,), b'b', 7),
    Exploit(np.ndarray, (10**9,)),
    Exploit(bytearray, 1 << 60),
  ],
)
def test_forged_arrays_are_refused(content):
  with pytest.raises(ValueError):
    result = safe_pickle.loads(pickle.dumps(content, 4))
    assert isinstance(result, np.ndarray) and not result.size, result
    raise ValueError('an empty array is harmless')


@given(st.data())
def test_damage_raises_value_error_or_is_harmless(data):
  content = bytearray(safe_pickle.dumps({'a': [1.5, 'b'], 'c': np.arange(3)}))
  at = data.draw(st.integers(0, len(content) - 1))
  content[at] = data.draw(st.integers(0, 255))
  try:
    safe_pickle.loads(bytes(content[: data.draw(st.integers(1, len(content)))]))
  except ValueError:
    pass
