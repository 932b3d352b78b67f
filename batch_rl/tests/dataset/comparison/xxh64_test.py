"""The hash against published values, and against a transcription of its description."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_rl.dataset.comparison import xxh64
from batch_rl.tests.dataset.comparison.slow_hashes import slow_xxh64


def hash_of(content):
  rows = np.frombuffer(content, np.uint8).reshape(1, -1)
  return int(xxh64.hash_rows(rows)[0])


@pytest.mark.parametrize(
  'content, expected',
  [
    (b'', 0xEF46DB3751D8E999),
    (b'a', 0xD24EC4F1A98C6E5B),
    (b'abc', 0x44BC2CF5AD770999),
  ],
)
def test_published_values(content, expected):
  assert hash_of(content) == slow_xxh64(content) == expected


@given(st.binary(max_size=200))
def test_any_bytes(content):
  assert hash_of(content) == slow_xxh64(content)


@pytest.mark.parametrize('dtype', ['u1', '>i4', 'f4', 'f8'])
@pytest.mark.parametrize('shape', [(0, 3), (5,), (4, 3), (3, 84, 84)])
def test_each_row_has_the_hash_of_its_bytes(shape, dtype):
  count = int(np.prod(shape))
  rows = np.arange(count).astype(dtype).reshape(shape)
  expected = [slow_xxh64(rows[i : i + 1].tobytes()) for i in range(len(rows))]
  assert xxh64.hash_rows(rows).tolist() == expected
  backwards = rows[::-1]  # Not contiguous.
  assert xxh64.hash_rows(backwards).tolist() == expected[::-1]
