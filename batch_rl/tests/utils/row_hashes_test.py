"""Hashes of rows against the library, and a published value."""

import numpy as np
import pytest
import xxhash

from batch_rl.utils import row_hashes


@pytest.mark.parametrize('dtype', ['u1', '>i4', 'f8'])
def test_each_row_has_the_hash_of_its_bytes(dtype):
  rows = np.arange(24).astype(dtype).reshape(4, 3, 2)[::-1]  # not contiguous
  expected = [xxhash.xxh64_intdigest(row.tobytes()) for row in rows]
  assert row_hashes.hash_rows(rows).tolist() == expected
  # A value that the specification publishes.
  (found,) = row_hashes.hash_rows(np.frombuffer(b'abc', np.uint8)[None])
  assert found == 0x44BC2CF5AD770999
