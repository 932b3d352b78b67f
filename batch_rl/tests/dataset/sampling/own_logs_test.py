"""Transitions of one's own logs: all of them, as logged, and no padding."""

import numpy as np
import pytest

from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.store import store
from batch_rl.tests import observations


@pytest.fixture(scope='module', params=['vector', 'number', 'flags', 'image'])
def logged(request, tmp_path_factory):
  """Directory of shards, and their columns; episodes begin with a zero."""
  directory = tmp_path_factory.mktemp('logs')
  return directory, observations.write(directory, request.param, stack_size=1)


def all_transitions(directory, stack_size=1, converted=None):
  opened = store.Store(str(directory))
  if converted is not None:
    opened = store.convert(str(directory), str(converted))
  opened.wait()
  draw = sampler.Sampler(opened, stack_size)
  return draw.gather(draw.valid_rows())


@pytest.mark.parametrize('as_store', [False, True])
def test_every_transition_is_read_as_logged(logged, as_store, tmp_path):
  directory, columns = logged
  converted = tmp_path / 'store' if as_store else None
  batch = all_transitions(directory, converted=converted)
  # The last row of a truncated episode is only a next observation.
  rows = np.flatnonzero(~columns['last'])
  assert batch.windows.dtype == columns['observation'].dtype
  np.testing.assert_array_equal(
    batch.windows[:, 0], columns['observation'][rows]
  )
  np.testing.assert_array_equal(batch.action, columns['action'][rows])
  np.testing.assert_array_equal(
    batch.reward, columns['reward'][rows].astype(np.float32)
  )
  assert batch.reward.min() < -8
  np.testing.assert_array_equal(batch.terminal, columns['terminal'][rows])
  goes_on = batch.terminal == 0
  np.testing.assert_array_equal(
    batch.windows[goes_on, 1], columns['observation'][rows[goes_on] + 1]
  )


@pytest.mark.parametrize('logged_size', [2, 4, 7])
@pytest.mark.parametrize('stack_size', [1, 2, 4])
def test_padding_is_that_of_the_manifest(tmp_path, logged_size, stack_size):
  """Frames cannot tell padding from a first observation of zeros."""
  columns = observations.write(
    tmp_path, 'number', [30, 5] * 8, stack_size=logged_size
  )
  batch = all_transitions(tmp_path, stack_size)
  begins = np.cumsum([0, *([30, 5] * 8)[:-1]])
  skipped = max(stack_size - logged_size, 0)
  late = (begins[:, None] + np.arange(skipped)).ravel()
  expected = np.setdiff1d(np.flatnonzero(~columns['last']), late)
  np.testing.assert_array_equal(batch.action, columns['action'][expected])
  np.testing.assert_array_equal(
    batch.windows[:, stack_size - 1], columns['observation'][expected]
  )
