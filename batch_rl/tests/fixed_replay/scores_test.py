import numpy as np
import pytest

from batch_rl.dataset.sampling import sampler
from batch_rl.fixed_replay import scores
from batch_rl.tests import known_runs, shards


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
