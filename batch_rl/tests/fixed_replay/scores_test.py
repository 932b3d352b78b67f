import numpy as np
import pytest
import scipy.stats

from batch_rl.dataset.sampling import sampler
from batch_rl.fixed_replay import scores
from batch_rl.tests import known_runs, shards


def test_the_rank_correlation_is_spearmans():
  random = np.random.default_rng(0)
  for size in (3, 8, 30):
    left = random.integers(5, size=size).astype(float)  # with ties
    right = random.normal(size=size)
    expected = scipy.stats.spearmanr(left, right).statistic
    assert scores.rank_correlation(left, right) == pytest.approx(expected)
  assert np.isnan(scores.rank_correlation(np.ones(3), np.arange(3.0)))


@pytest.mark.parametrize('logged_with', [1, 2, 4, 6])
def test_initial_states_have_all_their_frames(tmp_path, logged_with):
  shards.write_run(tmp_path, [20, 3, 30], 100, logged_with)
  drawn = sampler.Sampler(known_runs.open_store(tmp_path), stack_size=4, seed=0)
  found = scores.LoggedStates(drawn, seed=0).initial_rows
  padding, first = logged_with - 1, max(logged_with - 1, 3)
  begins = np.cumsum([0, 20 + padding, 3 + padding])
  # The second episode may be too short for a state.
  kept = [0, 2] if logged_with == 1 else [0, 1, 2]
  assert found.tolist() == (begins + first)[kept].tolist()


def test_the_regret_is_that_of_the_best_score():
  returns = np.array([2.0, 6.0, 4.0, 10.0])
  assert scores.regret(np.array([0, 0, 0, 1]), returns) == 0
  assert scores.regret(np.array([0, 1, 0, 0]), returns) == 0.5
  assert scores.regret(np.array([1, 1, 0, 0]), returns) == 1
  assert scores.regret(np.arange(2), np.ones(2)) == 0


def test_low_errors_and_high_values_are_good():
  found = np.array([1.0, np.nan, 3.0])
  assert scores.goodness('q_value', found).tolist() == [1, -np.inf, 3]
  assert scores.goodness('td_error', found).tolist() == [-1, -np.inf, -3]
