import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl.dataset.sampling import returns_to_go

LENGTHS = st.integers(1, 10) | st.integers(60, 70) | st.just(200)


@hypothesis.given(
  lengths=st.lists(LENGTHS, min_size=1, max_size=6),
  gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
  whole=st.booleans(),
)
def test_sums_are_those_of_a_loop(lengths, gamma, whole):
  random, stops = np.random.default_rng(sum(lengths)), np.cumsum(lengths)
  reward = random.integers(-3, 4, stops[-1]).astype(np.float32)
  if not whole:
    reward += random.random(stops[-1], np.float32)
  expected, stop_of = np.zeros(stops[-1]), np.repeat(stops, lengths)
  for row, stop in enumerate(stop_of):
    for later in range(row, stop):
      expected[row] += gamma ** (later - row) * float(reward[later])
  table = returns_to_go.ReturnsToGo(reward, stops, gamma)
  found = table.at(np.arange(stops[-1]), stop_of)
  np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
  if whole and gamma == 1:
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize('rows', [1 << 20, (1 << 20) + 65])
def test_tables_are_made_in_parts(rows):
  reward = np.ones(rows, np.float32)
  table = returns_to_go.ReturnsToGo(reward, np.array([rows]), 1.0)
  at = np.array([0, 1, rows // 2, rows - 1])
  np.testing.assert_array_equal(table.at(at, np.full(4, rows)), rows - at)
