"""Drawing in compiled code, beside NumPy."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import batch_kernel

_draw_numbers = batch_kernel.draw_numbers


@numba.njit
def draw_numbers(key, number, total, out):
  _draw_numbers(key, number, total, out)


@settings(deadline=None)
@given(
  key=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2),
  number=st.integers(0, 2**62),
  total=st.integers(1, 100)
  | st.integers(1, 2**62)
  | st.sampled_from([2**31, 2**32 - 1, 2**32, 2**32 + 1, 3 << 30, 3 << 60]),
  count=st.integers(0, 70),
)
def test_numbers_are_those_of_numpy(key, number, total, count):
  """Some totals reject a quarter of the random words."""
  key = np.array(key, np.uint64)
  out = np.empty(count, np.int64)
  draw_numbers(key, number, total, out)
  generator = np.random.Philox(
    key=key, counter=np.array([0, number, 0, 0], np.uint64)
  )
  expected = np.random.Generator(generator).integers(total, size=count)
  np.testing.assert_array_equal(out, expected)
