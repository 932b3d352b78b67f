"""An offline agent with networks of the user's own."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import atoms
from batch_rl.tests import cartpole

OfflineDQN = cartpole.OFFLINE_CLASSES['dqn']
Outputs = collections.namedtuple('Outputs', 'q_values')
layers = tf.keras.layers


class Network(tf.keras.Model):
  """Has a hidden layer of its own for each class."""

  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self.hidden = self.make_hidden()
    self.last = layers.Dense(num_actions)

  def make_hidden(self):
    return layers.Dense(8)

  def call(self, state, seed=None):
    x = self.hidden(tf.reshape(tf.cast(state, tf.float32), (-1, 4)))
    return Outputs(self.last(self.disturb(x, seed)))

  def disturb(self, x, seed):
    return x


@pytest.fixture
def make_agent(log_dir, monkeypatch):
  def make(class_=OfflineDQN, network=Network, **kwargs):
    monkeypatch.setitem(cartpole.SMALL, 'dqn', {'network': network})
    settings = {**cartpole.SHARED_SETTINGS, **kwargs}
    return cartpole.build_offline_agent('dqn', log_dir, class_, **settings)

  return make


def weights(agent, network):
  return [array.ravel() for array in agent._sess.run(network.weights)]


def functional(num_actions, name=None):
  """A network whose variables are not below the scope of its name."""
  state = tf.keras.Input((4, 1, 1), dtype=tf.float64)
  q_values = layers.Dense(num_actions)(layers.Flatten()(state))
  outputs = Outputs(tf.cast(q_values, tf.float32))
  return tf.keras.Model(state, outputs, name=name)


class Twin(OfflineDQN):
  """Has another network, made first, whose name begins as that of the online one."""

  def _build_networks(self):
    self.twin = self._create_network('OnlineTwin')
    self.twin(self.state_ph)
    super()._build_networks()

  def loss(self, batch):
    return super().loss(batch) + self.twin(batch.state).q_values[:, 0]


@pytest.mark.parametrize(
  ('class_', 'network'), [(OfflineDQN, functional), (Twin, Network)]
)
def test_the_target_is_a_copy_of_the_online_network(
  make_agent, class_, network
):
  agent = make_agent(class_, network, target_update_period=5)
  list(agent.train_steps(5))
  online = weights(agent, agent.online_convnet)
  before = np.concatenate(online)
  # Synchronised at step 5.
  list(agent.train_steps(1))
  for array, copy in zip(
    online, weights(agent, agent.target_convnet), strict=True
  ):
    np.testing.assert_array_equal(array, copy)
  list(agent.train_steps(4))
  assert np.any(before != np.concatenate(weights(agent, agent.online_convnet)))


class Several(OfflineDQN):
  """Has a value network with a target copy, and a random one that is not trained."""

  def _build_networks(self):
    super()._build_networks()
    self.value, self.next_value, self.random = map(
      self._create_network, ('Value', 'NextValue', 'Random')
    )
    self.random.trainable = False
    for network in (self.value, self.next_value, self.random):
      network(self.state_ph)

  def _build_sync_op(self):
    pairs = zip(self.next_value.weights, self.value.weights, strict=True)
    return [
      *super()._build_sync_op(),
      *(copy.assign(0.5 * copy + 0.5 * new) for copy, new in pairs),
    ]

  def loss(self, batch):
    next_values = self.next_value(batch.next_state).q_values[:, 0]
    errors = (
      tf.stop_gradient(next_values) - self.value(batch.state).q_values[:, 0]
    )
    random = self.random(batch.state).q_values[:, 0]
    unstopped = self.target(batch.next_state).q_values[:, 0]
    return super().loss(batch) + tf.square(errors) + random - unstopped


class Regularised(Network):
  def make_hidden(self):
    return layers.Dense(8, kernel_regularizer='l2')


@pytest.mark.parametrize('mixed_precision', [False, True])
def test_further_networks_are_trained_and_synchronised(
  make_agent, caplog, mixed_precision
):
  agent = make_agent(
    Several,
    Regularised,
    target_update_period=5,
    mixed_precision=mixed_precision,
  )
  assert 'Regularisation losses of the layers of Online' in caplog.text
  list(agent.train_steps(2))
  fixed = agent.target_convnet, agent.random
  before, old, new = (
    [weights(agent, network) for network in group]
    for group in (fixed, [agent.next_value], [agent.value])
  )
  list(agent.train_steps(3))  # with an update, without synchronisation
  for left, network in zip(before, fixed, strict=True):
    np.testing.assert_array_equal(
      np.concatenate(left), np.concatenate(weights(agent, network))
    )
  trained = weights(agent, agent.value)
  assert np.any(np.concatenate(new[0]) != np.concatenate(trained))
  list(agent.train_steps(1))  # with a synchronisation
  after = weights(agent, agent.next_value)
  for array, first, last in zip(trained, old[0], after, strict=True):
    np.testing.assert_allclose(last, (array + first) / 2, rtol=1e-6)


class BuiltLate(OfflineDQN):
  def _build_networks(self):
    super()._build_networks()
    self.value = self._create_network('Value')

  def loss(self, batch):
    return super().loss(batch) + self.value(batch.state).q_values[:, 0]


def test_weights_made_in_a_loss_are_refused(make_agent):
  message = (
    'BuiltLate.loss, .* creates the weights kernel: .* by self.add_network'
  )
  with pytest.raises(ValueError, match=message):
    make_agent(BuiltLate)


class Noisy(Network):
  def disturb(self, x, seed):
    if seed is None:
      return x + tf.random.normal(tf.shape(x))
    return x + tf.random.stateless_normal(tf.shape(x), seed)


class Seeded(OfflineDQN):
  def loss(self, batch):
    return self.online_convnet(batch.state, seed=batch.seed).q_values[:, 0]


def test_noise_when_acting_is_refused(make_agent):
  message = (
    'online network of Seeded draws .* RandomStandardNormal when it acts'
  )
  with pytest.raises(ValueError, match=message):
    make_agent(Seeded, Noisy)


class Counting(OfflineDQN):
  """Counts the synchronisations."""

  def _build_networks(self):
    super()._build_networks()
    self.count = tf.Variable(0, trainable=False)

  def _build_sync_op(self):
    return [*super()._build_sync_op(), self.count.assign_add(1)]


@pytest.mark.parametrize(
  ('periods', 'count'), [((4, 1), 40), ((4, 3), 14), ((2, 8), 5)]
)
def test_every_due_synchronisation_is_made(make_agent, periods, count):
  """Also if several are due between two updates."""
  update_period, target_update_period = periods
  agent = make_agent(
    Counting,
    update_period=update_period,
    target_update_period=target_update_period,
  )
  for steps in (1, 27, 12):
    list(agent.train_steps(steps))
  assert agent._sess.run(agent.count) == count


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


@pytest.mark.parametrize(
  ('network', 'found'),
  [
    (returning(lambda q: q), 'Wrong.call returned a tensor'),
    (returning(lambda q: {'q_values': q}), 'Wrong.call returned dict'),
    (
      returning(lambda q: Outputs(tf.concat([q, q], 1))),
      r'Wrong.call .*q_values, float32 \(1, 10\).*\(n, 5\)',
    ),
    (returning(lambda q: Outputs(tf.argmax(q, 1))), r'int64 \(1,\)'),
    (returning(lambda q: Outputs([1.0, 2.0])), 'q_values of type list'),
    (NoModel, 'NoModel .*tf.keras.Model'),
  ],
)
def test_a_network_that_returns_something_else_is_named(
  make_agent, network, found
):
  with pytest.raises(ValueError, match=found):
    make_agent(network=network)


class ThreeOutputs(Network):
  """Has three outputs an action, whatever its agent asks for."""

  def __init__(self, num_actions, num_outputs, *unused, name=None):
    super().__init__(3 * num_actions, name)
    self.num_actions = num_actions

  def call(self, state):
    values = super().call(state).q_values
    values = tf.reshape(values, (-1, self.num_actions, 3))
    means = tf.reduce_mean(values, axis=2)
    return HeadOutputs(means, values, values, values)


HeadOutputs = collections.namedtuple(
  'HeadOutputs', 'q_values q_heads logits probabilities'
)


@pytest.mark.parametrize(
  ('name', 'field', 'settings'),
  [
    ('dqn', 'logits', {'head': atoms.HLGauss(7)}),
    ('c51', 'logits', {}),
    ('quantile', 'logits', {}),
    ('multi_head_dqn', 'q_heads', {}),
  ],
)
def test_a_network_that_does_not_fit_its_head_is_named(
  log_dir, monkeypatch, name, field, settings
):
  small = {**cartpole.SMALL[name], 'network': ThreeOutputs}
  monkeypatch.setitem(cartpole.SMALL, name, small)
  with pytest.raises(
    ValueError, match=rf'ThreeOutputs.* {field}, .*\(1, 2, 3\).*\(n, 2, \d+\)'
  ):
    cartpole.build_offline_agent(name, log_dir, **settings)
