"""Diagnostics against slow versions from the papers."""

import math

import numpy as np
import pytest

from batch_rl.agents import diagnostics


@pytest.mark.parametrize(('n', 'k'), [(40, 12), (12, 40)])
def test_the_effective_rank_is_that_of_the_singular_values(n, k):
  random = np.random.default_rng(0)
  left, _ = np.linalg.qr(random.normal(size=(n, n)))
  right, _ = np.linalg.qr(random.normal(size=(k, k)))
  values = np.geomspace(1, 1e-4, 12)
  features = (left[:, :12] * values) @ right[:12]
  for delta in 0.3, 0.01, 1e-3:
    # The smallest rank with the share of the sum, tried one by one.
    ranks = range(1, 13)
    enough = [values[:r].sum() >= (1 - delta) * values.sum() for r in ranks]
    expected = 1 + enough.index(True)
    assert diagnostics.effective_rank(features, delta) == expected
  assert expected > 1
  assert diagnostics.effective_rank(np.ones((n, k), np.float32)) == 1
  assert diagnostics.effective_rank(np.zeros((n, k))) == 0
  features[0, 0] = np.inf
  assert math.isnan(diagnostics.effective_rank(features))


def test_features():
  features = np.array([[1.0, 0.0, 2.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
  following = np.array([[1.0, 5.0, 1.0, 0.0], [2.0, 1.0, 1.0, 1.0]])
  expected = dict(srank=2, feature_dot_product=(3 + 6) / 2, dead_units=0.5)
  assert diagnostics.of_features(features, following) == expected


def test_values():
  q_values = np.array([[1.0, 2.0], [5.0, 3.0], [4.0, 0.0]])
  actions, returns = np.array([0, 0, 1]), np.array([0.5, 1.0, 9.0])
  known = np.array([True, True, False])
  expected = dict(q_logged=2, q_max=11 / 3, q_gap=pytest.approx(5 / 3))
  expected |= dict(return_to_go=0.75, overestimation=(0.5 + 4) / 2)
  assert diagnostics.of_values(q_values, actions, returns, known) == expected
  for rest in ((), (returns, known & False)):
    found = diagnostics.of_values(q_values, actions, *rest)
    assert [*found] == ['q_logged', 'q_max', 'q_gap']


def test_the_norm_is_that_of_all_entries():
  arrays = [np.full((2, 2), 2.0), np.array(3.0), np.array([0.0, 4.0])]
  assert diagnostics.global_norm(arrays) == pytest.approx(math.sqrt(41))
