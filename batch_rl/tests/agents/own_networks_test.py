import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import atoms
from batch_rl.tests import cartpole

OfflineDQN = cartpole.OFFLINE_CLASSES['dqn']
Outputs = collections.namedtuple('Outputs', 'q_values')
layers = tf.keras.layers


class Network(tf.keras.Model):
  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self.hidden = layers.Dense(8, kernel_regularizer='l2')
    self.last = layers.Dense(num_actions)

  def call(self, state):
    x = self.hidden(tf.reshape(tf.cast(state, tf.float32), (-1, 4)))
    return Outputs(self.last(self.disturb(x)))

  def disturb(self, x):
    return x


def weights(agent, network):
  arrays = agent._sess.run(network.weights)
  return np.concatenate([array.ravel() for array in arrays])


def functional(num_actions, name=None):
  """A network whose variables are not below the scope of its name."""
  state = tf.keras.Input((4, 1, 1), dtype=tf.float64)
  q_values = layers.Dense(num_actions)(layers.Flatten()(state))
  outputs = Outputs(tf.cast(q_values, tf.float32))
  return tf.keras.Model(state, outputs, name=name)


def test_the_target_is_a_copy_of_the_online_network(make_agent):
  agent = make_agent(network=functional, target_update_period=5)
  list(agent.train_steps(5))
  online = weights(agent, agent.online_convnet)
  list(agent.train_steps(1))  # synchronised at step 5
  np.testing.assert_array_equal(online, weights(agent, agent.target_convnet))
  list(agent.train_steps(4))
  assert np.any(online != weights(agent, agent.online_convnet))


def test_regularisation_is_left_to_the_loss(make_agent, caplog):
  make_agent(network=Network)
  assert 'Regularisation losses of the layers of Online' in caplog.text


class RandomActing(OfflineDQN):
  def acting_outputs(self, states):
    return Outputs(self.online(states).q_values + tf.random.normal(()))


class BuiltLate(OfflineDQN):
  def _build_networks(self):
    super()._build_networks()
    self.value = self._create_network('Value')

  def loss(self, batch):
    return super().loss(batch) + self.value(batch.state).q_values[:, 0]


class Noisy(Network):
  def disturb(self, x):
    return x + tf.random.normal(tf.shape(x))


class Counts:
  def _build_networks(self):
    super()._build_networks()
    self.count = tf.Variable(0, trainable=False)

  def _build_sync_op(self):
    return [*super()._build_sync_op(), self.count.assign_add(1)]


Counting = type('Counting', (Counts, OfflineDQN), {})
DopamineAgent = type('DopamineAgent', (Counts, dqn_agent.DQNAgent), {})


class Ported(fixed_replay_agent.FixedReplayAgentMixin, DopamineAgent):
  def loss(self, batch):
    return self.online(batch.state).q_values[:, 0]


class Wrapping(Counting):
  def _build_train_op(self):
    return tf.group(super()._build_train_op())


@pytest.mark.parametrize('class_', [Counting, Ported, Wrapping])
def test_every_due_synchronisation_is_made(make_agent, class_):
  """Also if several are due between two updates."""
  agent = make_agent(class_=class_, target_update_period=3)
  for steps in (1, 27, 12):
    list(agent.train_steps(steps))
  assert agent._sess.run(agent.count) == 14


class Scheduled(OfflineDQN):
  def _build_networks(self):
    super()._build_networks()
    self.sum = tf.Variable(0, trainable=False, dtype=tf.int64)

  def _build_sync_op(self):
    step = tf.cast(self.training_steps, tf.int64)
    return [*super()._build_sync_op(), self.sum.assign_add(step)]


def test_a_synchronisation_reads_the_agent_step(make_agent):
  agent = make_agent(class_=Scheduled, target_update_period=8)
  for steps in (17, 23):
    list(agent.train_steps(steps))
  assert agent._sess.run(agent.sum) == 8 + 16 + 24 + 32


def returning(make):
  """Returns a network whose `call` returns what a function makes of its values."""

  class Wrong(Network):
    def call(self, state):
      return make(super().call(state).q_values)

  return Wrong


class NoModel:
  """Is called as a network, but is none of Keras."""

  def __init__(self, num_actions, name=None):
    self.network = Network(num_actions, name)

  def __call__(self, state):
    return self.network(state)


class Helper:
  """Keeps layers where Keras does not find them."""

  def __init__(self):
    self.layer = layers.Dense(8)


class Untracked(Network):
  def __init__(self, num_actions, name=None):
    super().__init__(num_actions, name)
    self.helper = Helper()

  def disturb(self, x):
    return self.helper.layer(x)


class WithCopy(OfflineDQN):
  def build_networks(self):
    self.add_network('v', functools.partial(Untracked, 1), target=True)


VALUES = returning(lambda q: q)
TWICE = returning(lambda q: Outputs(tf.concat([q, q], 1)))
DOUBLE = returning(lambda q: Outputs(tf.cast(q, tf.float64)))
NUMBER = returning(lambda q: HeadOutputs(q, tf.reduce_mean(q), q, q))


@pytest.mark.parametrize(
  ('class_', 'network', 'found'),
  [
    (OfflineDQN, VALUES, 'Wrong.call'),
    (OfflineDQN, returning(lambda q: {'q_values': q}), 'Wrong.call'),
    (OfflineDQN, TWICE, r'call .*q_values, float32 \(1, 10\).*\(n, 5\)'),
    (OfflineDQN, returning(lambda q: Outputs([1.0, 2.0])), 'list'),
    (OfflineDQN, DOUBLE, r'float64 \(1, 5\); .*float32'),
    (OfflineDQN, NUMBER, r'acting_outputs has float32 \(\); .*override it'),
    (OfflineDQN, NoModel, 'NoModel'),
    (OfflineDQN, Untracked, 'the weights Target/.*kernel.* of Untracked'),
    (WithCopy, Network, 'the weights v_target/.*kernel.* of Untracked'),
    (OfflineDQN, Noisy, 'loss, or its network, .* RandomStandardNormal'),
    (BuiltLate, Network, 'BuiltLate.loss'),
    (RandomActing, functional, 'acts draws .* RandomStandardNormal'),
  ],
)
def test_unusable_networks_are_named(make_agent, class_, network, found):
  with pytest.raises(ValueError, match=found):
    make_agent(class_=class_, network=network)


class ThreeOutputs(Network):
  """Has three outputs for each of two actions, whatever its agent asks for."""

  def __init__(self, num_actions, num_outputs, *unused, name=None):
    super().__init__(6, name)

  def call(self, state):
    values = tf.reshape(super().call(state).q_values, (-1, 2, 3))
    return HeadOutputs(tf.reduce_mean(values, 2), values, values, values)


HeadOutputs = collections.namedtuple(
  'HeadOutputs', 'q_values q_heads logits probabilities'
)


class SixUnits(Network):
  """A plain network whose last layer has six units, whatever its agent asks for."""

  def __init__(self, num_actions, name=None):
    super().__init__(6, name)


@pytest.mark.parametrize(
  ('name', 'network', 'message'),
  [
    ('hl_gauss', ThreeOutputs, r'logits, .*\(1, 2, 3\).*\(n, 2, 7\)'),
    ('multi_head_dqn', ThreeOutputs, r'q_heads, .*\(1, 2, 3\).*\(n, 2, 5\)'),
    ('multi_head_dqn', SixUnits, r'q_values, .*\(1, 6\).*\(n, 10\)'),
    ('quantile', ThreeOutputs, r'quantile_values, .*\(1, 2, 3\).*\(n, 2, 5\)'),
    ('quantile', SixUnits, r'q_values, .*\(1, 6\).*\(n, 10\)'),
    ('hl_gauss', SixUnits, r'q_values, .*\(1, 6\).*\(n, 14\)'),
    ('iqn', SixUnits, r'q_values, .*\(.*, 6\).*\(n, 2\)'),
    ('iqn', VALUES, r'call returned float32 .*\(n, 2\)'),
    ('multi_network_dqn', VALUES, r'call returned float32 .*\(n, 2\)'),
    ('dueling', VALUES, r'call returned float32 .*\(n, 2\)'),
  ],
)
def test_a_network_unfit_for_its_head(make_agent, name, network, message):
  """In one line, although AutoGraph converts networks."""
  given = {'hl_gauss': {'head': atoms.HLGauss(7)}, 'dueling': {'dueling': True}}
  arguments = {'num_actions': 2, 'network': network, **given.get(name, {})}
  with pytest.raises(ValueError, match=message) as raised:
    make_agent('dqn' if name in given else name, **arguments)
  assert str(raised.value).startswith(network.__name__)
