"""The CRC-32 for compiled code, beside zlib's."""

import ctypes
import types
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.utils.native import checksums


@pytest.fixture(scope='module', params=['isal', 'zlib'])
def crc32(request):
  with pytest.MonkeyPatch.context() as patch:
    if request.param == 'zlib':
      patch.setattr(checksums, 'isal_zlib', types.SimpleNamespace())
    address = checksums.crc32_address.__wrapped__()
  if not address and not hasattr(zlib, '__file__'):
    pytest.skip('zlib is a part of the program, and isal has no such function.')
  function = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(address)
  return lambda *arguments: function(*arguments) & 0xFFFFFFFF


@settings(max_examples=100)
@given(content=st.binary(max_size=3000), crc=st.integers(0, 2**32 - 1))
def test_crc32(crc32, content, crc):
  array = np.frombuffer(content, np.uint8)
  for start in range(min(9, len(content) + 1)):
    found = crc32(crc, array.ctypes.data + start, len(content) - start)
    assert found == zlib.crc32(content[start:], crc)
