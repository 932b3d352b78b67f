"""Drawing from the words of Philox: the definition, in NumPy, and in compiled code."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import batch_kernel, row_ranges

_draw_numbers = batch_kernel.draw_numbers


@numba.njit
def draw_numbers(key, number, total, out):
  _draw_numbers(key, number, total, out)


def lemire(key, number, bounds):
  """Draws one by one: Lemire, 2019, algorithm 5, with the halves of words in order."""
  counter = np.array([0, number, 0, 0], np.uint64)
  words = np.random.Philox(key=key, counter=counter)

  def halves():
    while True:
      word = int(words.random_raw())
      yield word & 0xFFFFFFFF
      yield word >> 32

  random, drawn = halves(), []
  for bound in bounds:
    product = 0
    if bound > 1:
      product = next(random) * bound
      while product % 2**32 < 2**32 % bound:
        product = next(random) * bound
    drawn.append(product >> 32)
  return drawn


# Some bounds reject a quarter or a half of the random numbers.
BOUNDS = st.integers(1, 100) | st.sampled_from(
  [2**31, 2**31 + 1, 2**32 - 1, 2**32, 3 << 30]
)


@settings(deadline=None)
@given(
  key=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2),
  number=st.integers(0, 2**62),
  bounds=st.lists(BOUNDS, max_size=70),
)
def test_draws_have_their_definition(key, number, bounds):
  key = np.array(key, np.uint64)
  random = row_ranges.RandomNumbers(key, number)
  found = random.integers(np.array(bounds, np.int64))
  expected = lemire(key, number, [*bounds, *bounds])
  assert [*found, *random.integers(np.array(bounds, np.int64))] == expected
  for total in bounds[:3]:
    out = np.empty(20, np.int64)
    draw_numbers(key, number, total, out)
    assert out.tolist() == lemire(key, number, [total] * 20)
