import numpy as np
import pytest
import xxhash

from batch_rl.utils import row_hashes


@pytest.mark.parametrize('dtype', ['u1', '>i4', 'f8'])
def test_each_row_has_the_hash_of_its_bytes(dtype):
  rows = np.arange(24).astype(dtype).reshape(4, 3, 2)[::-1]  # not contiguous
  expected = [xxhash.xxh64_intdigest(row.tobytes()) for row in rows]
  assert row_hashes.hash_rows(rows).tolist() == expected
