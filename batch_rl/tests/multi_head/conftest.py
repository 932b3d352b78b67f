"""Small agents on a batch that stays."""

import types

import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent  # noqa: F401, selects graph mode


class FixedBatch:
  """Mixin for an agent: the replay memory is one batch, training is by hand."""

  def _build_replay_buffer(self, use_staging):
    del use_staging
    tensors = {name: tf.constant(array) for name, array in self.batch.items()}
    nothing = {'save': lambda *args: None, 'load': lambda *args: None}
    return types.SimpleNamespace(**tensors, **nothing)

  def _train_step(self):
    self.training_steps += 1

  def _store_transition(self, *args):
    pass


class RecordingOptimizer(tf.compat.v1.train.AdamOptimizer):
  """Remembers the losses that it was asked to minimise."""

  def __init__(self):
    super().__init__(learning_rate=0.01)
    self.losses = []

  def minimize(self, loss, **kwargs):
    self.losses.append(loss)
    return super().minimize(loss, **kwargs)


@pytest.fixture(autouse=True)
def _seeded_graph():
  tf.compat.v1.set_random_seed(7)


@pytest.fixture
def evaluate():
  """Returns a function that evaluates tensors without variables."""

  def run(tensors):
    with tf.compat.v1.Session() as sess:
      return sess.run(tensors)

  return run


@pytest.fixture
def make_batch():
  """Returns a function that makes a CartPole batch, terminals among it."""

  def make(num_actions=3, batch_size=5):
    rng = np.random.default_rng(3)
    return {
      'states': rng.uniform(-1, 1, (batch_size, 4, 1, 1)),
      'next_states': rng.uniform(-1, 1, (batch_size, 4, 1, 1)),
      'actions': rng.integers(num_actions, size=batch_size, dtype=np.int32),
      # Large enough for both pieces of the Huber loss.
      'rewards': rng.normal(0, 2, batch_size).astype(np.float32),
      'terminals': np.arange(batch_size, dtype=np.uint8) % 3 == 1,
    }

  return make


@pytest.fixture
def make_agent(make_batch):
  """Returns a function that builds an agent for CartPole on a fixed batch."""

  def make(agent_class, num_actions=3, batch=None, **kwargs):
    batch = batch or make_batch(num_actions)
    test_class = type('Test', (FixedBatch, agent_class), {'batch': batch})
    kwargs.setdefault('optimizer', RecordingOptimizer())
    return test_class(
      None,
      num_actions,
      observation_shape=(4, 1),
      observation_dtype=tf.float64,
      stack_size=1,
      epsilon_eval=0.0,
      **kwargs,
    )

  return make
