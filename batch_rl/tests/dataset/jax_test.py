"""Batches as JAX arrays on a device; the import of JAX takes seconds."""

import jax
import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.dataset import jax as jax_data
from batch_rl.tests import observations
from batch_rl.tests.dataset import streams
from batch_rl.tests.dataset.streams import store  # noqa: F401


class TestDeviceBatches(streams.Contract):
  kind, writable = jax_data.DeviceBatches, False


def test_a_batch_is_an_argument_of_a_jitted_function(store):  # noqa: F811
  source = streams.transitions(store, horizon=3)
  [device] = jax.devices()[:1]

  @jax.jit
  def states(batch):
    return batch.state, batch.next_state, ~batch.terminal * batch.reward

  batch = next(iter(jax_data.DeviceBatches(source, 32, device=device)))
  state, next_state, masked = states(batch)
  expected = source.batch(0, 32)
  np.testing.assert_array_equal(state, expected.state)
  np.testing.assert_array_equal(next_state, expected.next_state)
  expected_reward = (1 - expected.terminal) * expected.reward
  np.testing.assert_array_equal(masked, expected_reward)
  for array in jax.tree.leaves(batch):
    assert isinstance(array, jax.Array) and array.devices() == {device}
  assert batch.action.dtype == batch.steps.dtype == np.int32
  assert batch.terminal.dtype == bool


def test_integers_of_64_bits_are_kept_or_refused(tmp_path):
  observations.write(tmp_path, 'number')
  source = dataset.open(tmp_path).transitions(stack_size=4, seed=1)
  with pytest.raises(ValueError, match='of int64 to 32 bits: jax.config'):
    jax_data.DeviceBatches(source)
  jax.config.update('jax_enable_x64', True)
  try:
    stream = jax_data.DeviceBatches(source)
    batch = next(iter(stream))
  finally:
    jax.config.update('jax_enable_x64', False)
  assert batch.windows.dtype == np.int64
  with pytest.raises(ValueError, match='of int64 to 32 bits: jax.config'):
    next(iter(stream))
