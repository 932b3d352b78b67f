"""An offline agent with networks of the user's own."""

import collections

import numpy as np
import pytest
import tensorflow as tf

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


@pytest.fixture(scope='module')
def log_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


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


class Value(OfflineDQN):
  """Learns a value network, with a target copy."""

  synchronises = True

  def _build_networks(self):
    super()._build_networks()
    self.value = self._create_network('Value')
    self.next_value = self._create_network('NextValue')
    for network in (self.value, self.next_value):
      network(self.state_ph)

  def _build_sync_op(self):
    operations = super()._build_sync_op()
    if self.synchronises:
      pairs = zip(self.next_value.weights, self.value.weights, strict=True)
      operations += [copy.assign(0.5 * copy + 0.5 * new) for copy, new in pairs]
    return operations

  def loss(self, batch):
    next_values = self.next_value(batch.next_state).q_values[:, 0]
    errors = (
      tf.stop_gradient(next_values) - self.value(batch.state).q_values[:, 0]
    )
    return super().loss(batch) + tf.square(errors)


def test_further_networks_are_trained_and_synchronised(make_agent, caplog):
  agent = make_agent(Value, target_update_period=5)
  assert 'never change' not in caplog.text
  list(agent.train_steps(5))
  before, trained = (
    weights(agent, network) for network in (agent.next_value, agent.value)
  )
  # Synchronised at step 5.
  list(agent.train_steps(1))
  after = weights(agent, agent.next_value)
  for array, old, new in zip(trained, before, after, strict=True):
    np.testing.assert_allclose(new, (array + old) / 2, rtol=1e-6)


class RandomFeatures(OfflineDQN):
  """Predicts a random network, which is not trained (Burda et al., 2019)."""

  def _build_networks(self):
    super()._build_networks()
    self.random = self._create_network('Random')
    self.random.trainable = False
    self.random(self.state_ph)

  def loss(self, batch):
    values, features = self.online(batch.state), self.random(batch.state)
    return tf.reduce_sum((values.q_values - features.q_values) ** 2, axis=1)


def test_layers_that_are_not_trainable_are_not_trained(make_agent):
  agent = make_agent(RandomFeatures)
  before = weights(agent, agent.random)
  list(agent.train_steps(4))
  for old, new in zip(before, weights(agent, agent.random), strict=True):
    np.testing.assert_array_equal(old, new)


class Forgetful(Value):
  synchronises = False


def test_weights_that_never_change_are_named(make_agent, caplog):
  make_agent(Forgetful)
  assert 'NextValue/dense' in caplog.text.split('never change')[0]
  assert ' Value/' not in caplog.text


class Regularised(Network):
  def make_hidden(self):
    return layers.Dense(8, kernel_regularizer='l2')


def test_losses_of_layers_are_named(make_agent, caplog):
  make_agent(network=Regularised)
  assert 'Regularisation losses of the layers of Online' in caplog.text


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


class Unstopped(OfflineDQN):
  def loss(self, batch):
    next_values = self.target(batch.next_state).q_values[:, 0]
    return super().loss(batch) - next_values


def test_the_target_network_is_not_trained_in_mixed_precision(make_agent):
  agent = make_agent(Unstopped, mixed_precision=True, target_update_period=100)
  list(agent.train_steps(1))
  before = weights(agent, agent.target_convnet)
  list(agent.train_steps(8))
  for old, new in zip(
    before, weights(agent, agent.target_convnet), strict=True
  ):
    np.testing.assert_array_equal(old, new)


class Wrapped(Network):
  def __init__(self, num_actions, name=None):
    super().__init__(num_actions, name)
    self.last = tf.keras.Sequential(
      [layers.Dense(8), layers.Dense(num_actions)]
    )


def test_bfloat16_outputs_are_refused(make_agent):
  message = r'Wrapped returns .* in bfloat16.*tf.cast'
  with pytest.raises(ValueError, match=message):
    make_agent(network=Wrapped, mixed_precision=True)


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


Named = collections.namedtuple('Named', 'values')


@pytest.mark.parametrize(
  ('network', 'found'),
  [
    (returning(lambda q: q), r'Wrong.call returned a tensor; expected a named'),
    (returning(lambda q: {'q_values': q}), 'Wrong.call returned dict'),
    (returning(Named), 'Wrong.call returned Named'),
    (
      returning(lambda q: Outputs(tf.concat([q, q], 1))),
      r'q_values, float32 \(1, 10\); expected .* float32 \(n, 5\)',
    ),
    (
      returning(lambda q: Outputs(tf.argmax(q, 1))),
      r'q_values, int64 \(1,\); expected',
    ),
    (returning(lambda q: Outputs(q[..., None])), r'float32 \(1, 5, 1\)'),
    (returning(lambda q: Outputs([1.0, 2.0])), 'q_values of type list'),
    (NoModel, 'The network NoModel is not of a Keras class'),
  ],
)
def test_a_network_that_returns_something_else_is_named(
  make_agent, network, found
):
  with pytest.raises(ValueError, match=found):
    make_agent(network=network)


def test_an_error_in_a_network_stays(make_agent):
  def broken(q):
    raise AttributeError('mine')

  with pytest.raises(AttributeError, match='mine'):
    make_agent(network=returning(broken))
