import numpy as np
import pytest
import scipy.stats

from batch_rl.fixed_replay import ranking


def test_the_rank_correlation_is_spearmans():
  random = np.random.default_rng(0)
  for size in (3, 8, 30):
    left = random.integers(5, size=size).astype(float)  # with ties
    right = random.normal(size=size)
    expected = scipy.stats.spearmanr(left, right).statistic
    assert ranking.rank_correlation(left, right) == pytest.approx(expected)
  assert np.isnan(ranking.rank_correlation(np.ones(3), np.arange(3.0)))


def test_the_regret_is_that_of_the_best_score():
  returns = np.array([2.0, 6.0, 4.0, 10.0])
  assert ranking.regret(np.array([0, 0, 0, 1]), returns) == 0
  assert ranking.regret(np.array([0, 1, 0, 0]), returns) == 0.5
  assert ranking.regret(np.array([1, 1, 0, 0]), returns) == 1
  assert ranking.regret(np.arange(2), np.ones(2)) == 0


def test_low_errors_and_high_values_are_good():
  found = np.array([1.0, np.nan, 3.0])
  assert ranking.goodness('q_value', found).tolist() == [1, -np.inf, 3]
  assert ranking.goodness('td_error', found).tolist() == [-1, -np.inf, -3]
