"""Compiled code: the same draws and batches as in NumPy."""

import concurrent.futures

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset import store
from batch_rl.dataset.sampling import batch_kernel, row_ranges
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.tests.dataset.store.stores import SAMPLE
from batch_rl.tests.known_runs import assert_same


@numba.njit
def draw_numbers(*arguments):
  batch_kernel.draw_numbers(*arguments)


def lemire(key, number, total, count):
  """Draws one by one: Lemire, 2019, algorithm 5, with the halves of words in order."""
  counter = np.array([0, number, 0, 0], np.uint64)
  words = np.random.Philox(key=key, counter=counter)

  def halves():
    while True:
      word = int(words.random_raw())
      yield word & 0xFFFFFFFF
      yield word >> 32

  random, drawn = halves(), []
  for _ in range(count):
    product = next(random) * total
    while product % 2**32 < 2**32 % total:
      product = next(random) * total
    drawn.append(product >> 32)
  return drawn


# Some bounds reject a quarter or a half of the random numbers.
LARGE = st.sampled_from([2**31, 2**31 + 1, 2**32 - 1, 2**32, 3 << 30])
BOUNDS = st.integers(1, 100) | LARGE


@settings(max_examples=100)
@given(
  key=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2),
  number=st.integers(0, 2**62),
  total=BOUNDS,
  count=st.integers(0, 70),
)
def test_draws_have_their_definition(key, number, total, count):
  key = np.array(key, np.uint64)
  expected = lemire(key, number, total, count)
  found = row_ranges.draw_numbers(key, number, total, count)
  assert found.tolist() == expected and found.dtype == np.int64
  out = np.empty(count, np.int64)
  draw_numbers(key, number, total, out)
  assert out.tolist() == expected


@pytest.fixture(scope='module')
def sample(tmp_path_factory):
  """Directory of a store of one shard of Pong."""
  directory = tmp_path_factory.mktemp('sample') / 'store'
  store.Store(SAMPLE, [10], str(directory)).wait()
  return str(directory)


@pytest.fixture(params=['mapped', 'in memory'])
def opened(sample, request):
  return store.Store(SAMPLE, [10], sample, preload=request.param == 'in memory')


# Mapped blocks of many rows need a larger buffer; long windows have several blocks.
@pytest.mark.parametrize(('horizon', 'count'), [(1, 2000), (20, 100)])
def test_batches_are_the_same_without(opened, horizon, count):
  sampler = sampler_lib.Sampler(opened, 4, horizon)
  assert sampler.wait_until_compiled()
  rows = sampler.draw(0, count)
  # A new thread has a small buffer.
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    [batch] = pool.submit(sampler._compiled.make, rows, 1, 'windows').result()
  assert_same(batch, *sampler.reference(rows))
  assert batch.windows.ctypes.data % 64 == 0


def test_rows_outside_the_run_are_errors(opened):
  sampler = sampler_lib.Sampler(opened, 4)
  assert sampler.wait_until_compiled()
  for row in (-1, opened.rows):
    assert sampler._compiled.make(np.array([5, row]), 1, 'windows') is None
    with pytest.raises(ValueError, match=f'no row {row}: the run has'):
      sampler.read(np.array([5, row]))
