import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.store import store
from batch_rl.tests import known_runs, observations


def all_transitions(directory, stack_size=1):
  draw = sampler.Sampler(known_runs.open_store(directory), stack_size)
  rows = draw.valid_rows()
  known_runs.assert_same_without_compiled_code(draw, rows)
  return draw.gather(rows)


@pytest.mark.parametrize('kind', ['vector', 'number', 'flags', 'image'])
def test_every_transition_is_read_as_logged(kind, tmp_path):
  columns = observations.write(tmp_path / 'logs', kind, stack_size=1)
  store.convert(str(tmp_path / 'logs'), str(tmp_path / 'store')).close()
  batch = all_transitions(tmp_path / 'store')
  # The last row of a truncated episode is only a next observation.
  rows = np.flatnonzero(~columns['last'])
  assert batch.windows.dtype == columns['observation'].dtype
  logged = {name: column[rows] for name, column in columns.items()}
  logged['reward'] = logged['reward'].astype(np.float32)
  for name in ('action', 'reward', 'terminal'):
    np.testing.assert_array_equal(getattr(batch, name), logged[name], name)
  assert batch.reward.min() < -8
  np.testing.assert_array_equal(batch.windows[:, 0], logged['observation'])
  goes_on = batch.terminal == 0
  following = columns['observation'][rows[goes_on] + 1]
  np.testing.assert_array_equal(batch.windows[goes_on, 1], following)


@pytest.mark.parametrize('logged_size', [2, 4, 7])
@pytest.mark.parametrize('stack_size', [1, 2, 4])
def test_padding_is_that_of_the_manifest(tmp_path, logged_size, stack_size):
  """Frames cannot tell padding from a first observation of zeros."""
  lengths, logged = [30, 5] * 8, {'stack_size': logged_size}
  columns = observations.write(tmp_path, 'number', lengths, **logged)
  batch = all_transitions(tmp_path, stack_size)
  begins = np.cumsum([0, *lengths[:-1]])
  late = (begins[:, None] + np.arange(max(stack_size - logged_size, 0))).ravel()
  expected = np.setdiff1d(np.flatnonzero(~columns['last']), late)
  np.testing.assert_array_equal(batch.action, columns['action'][expected])
  newest = batch.windows[:, stack_size - 1]
  np.testing.assert_array_equal(newest, columns['observation'][expected])


def test_states_have_as_many_frames_as_those_of_the_log(tmp_path):
  observations.write(tmp_path, 'vector', [1, 1, 3], stack_size=1)
  run = dataset.open(tmp_path)
  assert run.transitions().num_transitions == 1 + 0 + 3
  draw = run.sequences(2, subset='first_transitions(3)', seed=1)
  assert draw.num_steps == 3 and draw.batch(0, 3).state.shape == (3, 2, 1, 4)
  with pytest.raises(ValueError, match='No valid .*_horizon=1.*stack_size=4'):
    run.transitions(4).batch(0, 1)
