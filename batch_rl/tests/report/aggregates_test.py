"""Aggregates and intervals, against rliable and by hand."""

import numpy as np
import pytest
from rliable import metrics

from batch_rl.report import aggregates


@pytest.fixture
def scores():
  return np.random.default_rng(0).normal(1, 0.5, (5, 7))


def test_metrics_by_hand():
  scores = np.array([[0.0, 2.0, 1.0, 3.0], [0.0, 4.0, 1.0, 5.0]])
  value = aggregates.metrics_of(scores).value
  # Sorted: 0 0 1 1 2 3 4 5. Middle half: 1 1 2 3. Means of games: 0 3 1 4.
  np.testing.assert_allclose(value, [7 / 4, 2.0, 2.0, 1 - 6 / 8])
  in_percent = aggregates.metrics_of(100 * scores, optimum=100.0).value
  np.testing.assert_allclose(in_percent, 100 * value)


def test_intervals(scores):
  """They are reproducible, and leave NumPy's global generator as it was."""
  np.random.seed(3)
  before = np.random.get_state()[1].copy()
  estimate = aggregates.metrics_of(scores)
  np.testing.assert_array_equal(np.random.get_state()[1], before)
  np.random.seed(4)
  np.testing.assert_array_equal(estimate.low, aggregates.metrics_of(scores).low)
  assert (estimate.low < estimate.value).all()
  assert (estimate.value < estimate.high).all()
  # The width agrees with the standard error of the mean.
  width = estimate.high[2] - estimate.low[2]
  error = np.sqrt((scores.var(axis=0) / 5).mean() / 7)
  assert width == pytest.approx(2 * 1.96 * error, rel=0.2)
  one = aggregates.metrics_of(scores[:1])
  assert np.isfinite(one.value).all()
  assert np.isnan(one.low).all() and np.isnan(one.high).all()


def test_estimates_equal_those_of_rliable(scores):
  """Ties count half."""
  curves = np.stack([scores, 2 * scores, scores - 1], axis=2)
  estimate = aggregates.curve(curves)
  expected = [metrics.aggregate_iqm(curves[..., i]) for i in range(3)]
  np.testing.assert_allclose(estimate.value, expected)
  assert (estimate.low < estimate.high).all()
  tied = np.round(scores)
  methods = {'a': scores, 'b': scores[:3] + 0.2, 'c': tied, 'd': tied}
  estimates = aggregates.improvements(methods)
  assert [x + y for x, y in estimates] == ['ba', 'ca', 'da', 'cb', 'db', 'dc']
  for (x, y), estimate in estimates.items():
    expected = metrics.probability_of_improvement(methods[x], methods[y])
    assert estimate.value[0] == pytest.approx(expected)
    assert estimate.low[0] <= expected <= estimate.high[0]


def test_counts(scores):
  thresholds = np.array([-10.0, scores[0, 0], 10.0])
  estimate = aggregates.profile(scores, thresholds)
  expected = [(scores > threshold).mean() for threshold in thresholds]
  np.testing.assert_allclose(estimate.value, expected)
  two = np.array([[1.0, 0.0, 3.0], [2.0, 0.5, 1.0]])
  estimate = aggregates.metrics_of(two, np.array([1.4, 1.0, 2.0]))
  assert estimate.value[-1] == 1  # A tie does not count.
  assert estimate.low[-1] == 0 and estimate.high[-1] == 2
