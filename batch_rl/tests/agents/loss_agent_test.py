"""An offline agent of a user: a loss, and a choice of actions."""

import inspect
import time

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.agents import heads, terms
from batch_rl.dataset.store.packer import PackedRun
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.tests import cartpole, correctness
from batch_rl.utils import programs

OfflineDQN = cartpole.OFFLINE_CLASSES['dqn']
ADAM = tf.compat.v1.train.AdamOptimizer
DECAY = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 9, 0.5)


class Penalised(OfflineDQN):
  """Has a penalty, noise by step and seed, and no `tf.stop_gradient`."""

  def loss(self, batch):
    penalty = tf.reduce_logsumexp(self.online(batch.state).q_values, axis=1)
    self.log_scalar('Penalty', penalty)
    self.log_scalar('Step', batch.step)
    self.log_scalar('SameStep', self.training_steps)
    noise = tf.random.stateless_uniform(penalty.shape, batch.seed)
    next_values = tf.reduce_max(self.target(batch.next_state).q_values, axis=1)
    return super().loss(batch) + penalty * noise - next_values


def test_a_loss_adds_to_that_of_its_base(make_agent, tmp_path):
  """Noise is the same however many updates run at once, and after a resume."""
  agent = make_agent(
    class_=Penalised, summary_writer=str(tmp_path), summary_writing_frequency=12
  )
  first_values, found = cartpole.values(agent), []
  for updates_per_run in (1, 5):
    cartpole.restart(agent, first_values)
    agent._updates_per_run = updates_per_run
    losses = list(agent.train_steps(40))
    if updates_per_run == 1:
      middle = cartpole.values(agent)
    found.append(losses + list(agent.train_steps(40)))
  assert found[0] == found[1]
  assert len(set(found[0])) == 20
  cartpole.restart(agent, middle)
  agent.begin_iteration(0, updates=10)
  agent.training_steps = 40
  assert list(agent.train_steps(40)) == found[0][10:]
  logged = cartpole.read_summaries(agent, tmp_path)
  assert logged['Losses/Loss'][12] == np.float32(found[0][3])
  assert logged['Losses/Step'][12] == logged['Losses/SameStep'][12] == 12
  assert logged['Losses/Penalty'][12] > 0
  agent.training_steps = 12  # with an update, and with a synchronisation
  list(agent.train_steps(4))
  before = cartpole.weights(agent, 'Target')
  list(agent.train_steps(2))  # with an update
  assert agent.training_steps == 18
  np.testing.assert_array_equal(cartpole.weights(agent, 'Target'), before)
  # Outputs are computed once: 3 layers of 2 networks, 2 gradients a layer.
  (update,) = agent._loop._update._list_all_concrete_functions()
  types = [op.type for op in update.graph.get_operations()]
  assert types.count('MatMul') == 6 + 6


class TwoDraws(OfflineDQN):
  """Logs how much draws of the same shape have in common, and counts the updates."""

  def _build_train_op(self):
    self.count = tf.Variable(0, trainable=False)
    return tf.group(super()._build_train_op(), self.count.assign_add(1))

  def loss(self, batch):
    seeds = [*map(batch.seed_for, ('tau', 'tau_prime', 'tau')), batch.seed]
    draws = [tf.random.stateless_normal((20_000,), seed) for seed in seeds]
    for i in (1, 2, 3):
      self.log_scalar(f'Product{i}', draws[0] * draws[i])
    self.log_scalar('First', draws[0][:1])
    return super().loss(batch)


class Frozen(OfflineDQN):
  """Has networks not to be trained in attributes, containers, a term and its head."""

  def build_networks(self):
    self.frozen = self._create_network('A')
    self.in_list = [self._create_network('B')]
    self.in_dict = {1: self._create_network('C'), 'rate': 0.1}
    [term] = self.terms
    term.network, self.head.network = map(self._create_network, 'DE')
    for network in self.all_frozen():
      network(self.state_ph)
      network.trainable = False

  def all_frozen(self):
    parts = [part.network for part in (*self.terms, self.head)]
    return self.frozen, *self.in_list, self.in_dict[1], *parts

  def loss(self, batch):
    values = [n(batch.state).q_values for n in self.all_frozen()]
    return super().loss(batch) + tf.reduce_sum(tf.square(values), [0, 2])


def test_frozen_networks_are_not_trained(make_agent):
  agent = make_agent(class_=Frozen, terms=[terms.CQL()], head=heads.Scalar())
  before = cartpole.values(agent)
  list(agent.train_steps(4))
  after = cartpole.values(agent)
  changed = {n for n in before if np.any(before[n] != after[n])}
  assert {name.split('/')[0] for name in changed} & {*'ABCDE'} == set()
  assert any(name.startswith('Online') for name in changed)


def test_draws_of_a_loss_have_independent_seeds(make_agent):
  """In an agent whose train op has the update of its base."""
  agent, plain = make_agent(class_=TwoDraws), make_agent()
  for trained in (agent, plain):
    list(trained.train_steps(20))
  assert agent._sess.run(agent.count) == 5
  own, others = (cartpole.weights(a, 'Online') for a in (agent, plain))
  np.testing.assert_array_equal(own, others)

  with agent._sess.graph.as_default():
    loop = agent.build_loop(agent._replay.next_batch, agent._replay.ready)
  scalars, _ = loop.run(agent._sess, 0, 20)
  found = dict(zip(agent._scalar_names, scalars.T, strict=True))
  # The mean of 20,000 products has the standard deviation 0.007; of equal draws, it
  # is 1.
  for i, expected in ((1, 0), (2, 1), (3, 0)):
    np.testing.assert_allclose(found[f'Product{i}'], expected, atol=0.05)
  assert len(set(found['First'])) == 5


class Forgetful(OfflineDQN):
  """Trains only one of its networks."""

  def build_networks(self):
    self.add_network('policy', tf.keras.layers.Flatten)
    self.add_network('value', OneUnit, on_features=True)


def OneUnit(name):  # noqa: N802 (stands for a class)
  return tf.keras.layers.Dense(1, name=name)


def test_a_network_that_is_never_trained_is_named(make_agent, caplog):
  agent = make_agent(class_=Forgetful)
  [message] = [r.getMessage() for r in caplog.records]
  assert "Forgetful.loss does not depend on the network 'value'" in message
  with pytest.raises(ValueError, match="'late' is made .* in build_networks"):
    agent.add_network('late', OneUnit)


@pytest.mark.parametrize('gpus', [[], ['a GPU']])
def test_no_operation_is_placed_on_an_absent_gpu(make_agent, monkeypatch, gpus):
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: gpus)
  agent = make_agent(tf_device='/gpu:0', optimizer=ADAM())
  kinds = {v.device.split(':')[1] for v in agent.online_convnet.weights}
  assert kinds == {'GPU' if gpus else 'CPU'}


class Misreads(OfflineDQN):
  def loss(self, batch):
    return batch.rewards


def test_a_mistake_in_a_loss_is_named_before_packing(make_agent, monkeypatch):
  stores = []
  monkeypatch.setattr(PackedRun, 'start', lambda self, _: stores.append(self))
  with pytest.raises(AttributeError, match=r'\(did you mean reward\?\)'):
    make_agent(class_=Misreads)
  assert [store._stopped for store in stores] == [True]
  monkeypatch.setattr(OfflineDQN, '_check_actions', lambda *_: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    make_agent()
  assert [store._stopped for store in stores] == [True, True]
  monkeypatch.undo()
  monkeypatch.setattr(PackedRun, 'start', lambda *_: None)
  # The agent itself waits for its data.
  with pytest.raises(ValueError, match='has not begun'):
    make_agent()


class Instance(OfflineDQN):
  def build_networks(self):
    self.add_network('policy', tf.keras.layers.Dense(1))


def test_a_network_instead_of_its_function_is_named(make_agent):
  with pytest.raises(ValueError, match="'policy' is a Dense: .* lambda name:"):
    make_agent(class_=Instance)


def test_misspelt_definitions_are_named(make_agent, caplog):
  own = dict(losses=0, need=(), head=OfflineDQN.head, heads=1, other=2, _los=3)
  agent_class = type('Misspelt', (OfflineDQN,), {'__module__': 'mine', **own})
  make_agent(class_=agent_class)
  assert [r.getMessage() for r in caplog.records] == [
    'Misspelt defines losses, which the package does not use: did you mean loss?',
    'Misspelt defines need, which the package does not use: did you mean needs?',
  ]


class PassesOn(OfflineDQN):
  __module__ = 'mine'
  gamma = 0.5

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **{**kwargs, 'gamma': self.gamma})

  __init__.__module__ = __module__


class Late:
  __module__ = 'mine'
  loss = OfflineDQN.loss


@pytest.mark.parametrize(
  ('bases', 'own', 'message'),
  [
    ((OfflineDQN, Late), {}, 'Late.loss has no effect, .* put Late first'),
    ((OfflineDQN,), {'gamma': 0.5}, 'Mine.gamma does not set the argument'),
    ((OfflineDQN,), {'loss': lambda self: 0}, r'loss is called with \(batch\)'),
  ],
)
def test_definitions_in_vain_are_refused(make_agent, bases, own, message):
  assert make_agent(class_=PassesOn).gamma == 0.5
  agent_class = type('Mine', bases, {'__module__': 'mine', **own})
  with pytest.raises(ValueError, match=message):
    make_agent(class_=agent_class)


class ReadsLate(correctness.FixedBatch, OfflineDQN):
  """Trains a variable by a loss that reads online weights after the others."""

  batch = correctness.make_batch(num_actions=2)

  def build_networks(self):
    super().build_networks()
    self.scale = tf.compat.v1.get_variable('scale', initializer=1.0)

  def loss(self, batch):
    wait = tf.numpy_function(lambda: time.sleep(0.1), [], [])
    with tf.control_dependencies([wait]):
      self.late = self.online_convnet.weights[-1].read_value()
    late = tf.stop_gradient(tf.reduce_sum(self.late))
    return super().loss(batch) + self.scale * late


def test_an_update_in_a_graph_reads_before_it_assigns(make_agent):
  """As that of an online agent; a loop of updates is a function."""
  agent = make_agent(class_=ReadsLate)
  weights = agent.online_convnet.weights[-1]
  before = agent._sess.run(weights)
  late, _ = agent._sess.run([agent.late, agent._train_op])
  np.testing.assert_array_equal(late, before)
  assert (agent._sess.run(weights) != before).any()


def returns(make):
  """Returns a class whose loss is a function of agent, batch and DQN's loss."""

  class Mistaken(OfflineDQN):
    def loss(self, batch):
      return make(self, batch, super().loss(batch))

  return Mistaken


def of_python(agent, batch, losses):
  one = tf.numpy_function(lambda: np.float32(1), [], tf.float32)
  return losses + tf.ensure_shape(one, ())


def own_batch(agent, batch, losses):
  """Uses a batch of Dopamine's, which one `session.run` draws once."""
  return tf.square(agent._build_target_q_op()) + losses


def lost_summary(agent, batch, losses):
  tf.compat.v1.summary.scalar('Reward', tf.reduce_mean(batch.reward))
  return losses


def second_loss(agent, batch, losses):
  agent.log_scalar('Loss', losses)
  return losses


def comparing(agent, batch, losses):
  agent.log_scalar('Equal', batch.action == agent.num_actions)
  return losses


def in_a_function(agent, batch, losses):
  return losses + tf.function(lambda: tf.random.normal(()), autograph=False)()


class Clipped(ADAM):
  def minimize(self, loss, **kwargs):
    return super().minimize(tf.clip_by_value(loss, 0, 1), **kwargs)


@pytest.fixture(scope='module')
def built(log_dir):
  """A DQN; tests give it another loss or optimiser for a moment."""
  settings = cartpole.SHARED_SETTINGS
  agent = cartpole.build_offline_agent('dqn', log_dir, **settings)
  agent.rng = np.random.default_rng()
  return agent


@pytest.mark.parametrize(
  ('mistake', 'message'),
  [
    (own_batch, 'Mistaken.loss uses the tensor'),
    (second_loss, "'Loss'"),
    (comparing, 'logs Equal = False, .*tf.equal'),
    (lost_summary, r'self.log_scalar'),
    (of_python, 'PyFunc'),
    (
      lambda agent, batch, losses: batch.reward + tf.stop_gradient(losses),
      'Mistaken.loss does not depend on any trained weight',
    ),
    (lambda agent, batch, losses: None, 'None.*float32'),
    (lambda agent, batch, losses: tf.reduce_mean(losses), r'\(\).*\(32,\)'),
    (lambda agent, batch, losses: losses[1:], r'\(31,\).*\(32,\)'),
    (lambda agent, batch, losses: losses[:, None], r'\(32, 1\).*\(32,\)'),
    (lambda agent, batch, losses: tf.cast(losses, tf.float64), 'float64'),
    (
      lambda agent, batch, losses: losses * tf.random.uniform(()),
      'RandomUniform.*batch.seed',
    ),
    (in_a_function, 'RandomStandardNormal.*batch.seed'),
    (lambda agent, batch, losses: losses * np.random.rand(), 'np.random.*seed'),
    (lambda agent, batch, losses: losses * agent.rng.random(), 'draws random'),
    (lambda agent, batch, losses: losses + tf.zeros(31), 'are 32 and 31'),
    (tf.keras.optimizers.Adam(), 'Adam of .*tf.compat.v1.train'),
    (Clipped(), 'Clipped of FixedReplayDQNAgent overrides minimize'),
    (ADAM(tf.constant(0.1)), 'rate of FixedReplayDQNAgent is a tensor'),
    (ADAM(DECAY), 'is a schedule of Keras'),
  ],
)
def test_mistakes_are_refused(built, monkeypatch, mistake, message):
  """Builds the updates, as an agent does when it is made, which takes longer."""
  if callable(mistake) and not isinstance(mistake, tf.keras.optimizers.Adam):
    monkeypatch.setattr(built, '__class__', returns(mistake))
  else:
    monkeypatch.setattr(built, 'optimizer', mistake)
  with built._sess.graph.as_default(), pytest.raises(ValueError, match=message):
    built.build_loop(built._replay.next_batch, built._replay.ready)


def test_agents_do_not_share_the_default_optimizer(make_agent):
  parameters = inspect.signature(cartpole.OFFLINE_CLASSES['c51']).parameters
  default = parameters['optimizer'].default
  assert make_agent('c51', optimizer=default).optimizer is not default


OBSERVATIONS = np.random.default_rng(0).uniform(-2, 2, (20, 4))


def select(agent, states):
  """Returns actions of emulators side by side; each has its own generator."""
  generators = [np.random.default_rng(i) for i in states]
  observations = OBSERVATIONS[states].reshape(-1, 1, 4, 1)
  return agent.select_actions(observations, generators).tolist()


class Masked(OfflineDQN):
  """Never takes actions 0 and 1."""

  def choose_actions(self, outputs, seed):
    return 2 + tf.argmax(outputs.q_values[:, 2:], axis=1)


class Sampled(OfflineDQN):
  def choose_actions(self, outputs, seed):
    return tf.random.stateless_categorical(0 * outputs.q_values, 1, seed)[:, 0]


class MaskedByDopamine(OfflineDQN):
  def _build_networks(self):
    super()._build_networks()
    self._q_argmax = 2 + tf.argmax(self._net_outputs.q_values[:, 2:], axis=1)[0]


class OwnSelection(OfflineDQN):
  def _select_action(self):
    return 2 if super()._select_action() == 2 else 3


@pytest.mark.parametrize(
  ('class_', 'expected'),
  [
    (Masked, {2, 3, 4}),
    (Sampled, {0, 1, 2, 3, 4}),
    (MaskedByDopamine, {2, 3, 4}),
    (OwnSelection, {2, 3}),
  ],
)
def test_a_policy_acts_alike_alone_and_together(make_agent, class_, expected):
  with fixed_replay_agent.without_data():
    agent = make_agent(class_=class_)
  agent.eval_mode, agent.epsilon_eval = True, 0.1
  together = select(agent, range(20))
  assert together == [select(agent, [i])[0] for i in range(20)]
  assert len(set(together)) > 1
  agent.epsilon_eval = 0.0
  actions = select(agent, range(20))
  assert set(actions) <= expected
  played = [agent.begin_episode(o) for o in OBSERVATIONS]
  if class_ is not Sampled:
    assert actions == played
  assert set(played) <= expected and len(set(played)) > 1


class Shifted(Masked):
  def choose_actions(self, outputs, seed):
    return super().choose_actions(outputs, seed) + 5


class Mixed(OfflineDQN):
  def choose_actions(self, outputs, seed):
    values = outputs.q_values
    return tf.argmax(values - tf.reduce_mean(values, axis=0), axis=1)


class Both(Masked, OwnSelection):
  """Defines twice how it acts."""


def test_mistakes_of_policies_are_refused(make_agent):
  with fixed_replay_agent.without_data():
    agent, mixed = make_agent(class_=Shifted), make_agent(class_=Mixed)
    with pytest.raises(ValueError, match='Both.*choose_actions and _select'):
      make_agent(class_=Both)
  agent.epsilon_eval = 0.0
  with pytest.raises(programs.MistakeError, match='Shifted.* from 0 to 4'):
    select(agent, [0])
  select(mixed, [0] * 20)  # Equal states tell nothing.
  message = 'Mixed takes other actions in'
  with pytest.raises(programs.MistakeError, match=message):
    select(mixed, range(20))
