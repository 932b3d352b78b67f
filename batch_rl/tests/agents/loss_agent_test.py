"""An offline agent of a user: a loss, and a choice of actions."""

import collections
import types

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.fixed_replay import sequential_environments, vector_evaluation
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.tests import cartpole

OfflineDQN = cartpole.OFFLINE_CLASSES['dqn']


@pytest.fixture(scope='module')
def log_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


@pytest.fixture
def make_agent(log_dir):
  def make(class_, name='dqn', **kwargs):
    settings = {**cartpole.SHARED_SETTINGS, **kwargs}
    return cartpole.build_offline_agent(name, log_dir, class_, **settings)

  return make


@pytest.fixture
def make_actor(make_agent):
  """Returns a function that builds an agent that only acts."""

  def make(class_):
    with fixed_replay_agent.without_data():
      return make_agent(class_)

  return make


def update_graph(agent):
  (update,) = agent._loop._update._list_all_concrete_functions()
  return update.graph


class Penalised(OfflineDQN):
  """Has a penalty, noise by step and seed, and no `tf.stop_gradient`."""

  def loss(self, batch):
    q_values = self.online(batch.state).q_values
    penalty = tf.reduce_logsumexp(q_values, axis=1)
    self.log_scalar('Penalty', penalty)
    self.log_scalar('Step', batch.step)
    noise = tf.random.stateless_uniform(penalty.shape, batch.seed)
    next_values = tf.reduce_max(self.target(batch.next_state).q_values, axis=1)
    return super().loss(batch) + penalty * noise - next_values


def check_the_target_network_is_not_trained(agent):
  agent.training_steps = 12  # with an update, and with a synchronisation
  list(agent.train_steps(4))
  before = cartpole.weights(agent, 'Target')
  list(agent.train_steps(2))  # with an update
  assert agent.training_steps == 18
  np.testing.assert_array_equal(cartpole.weights(agent, 'Target'), before)


def test_a_loss_adds_to_that_of_its_base(make_agent, tmp_path):
  """Noise is the same however many updates run at once, and after a resume."""
  agent = make_agent(
    Penalised, summary_writer=str(tmp_path), summary_writing_frequency=12
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
  agent.summary_writer.flush()
  (path,) = tmp_path.iterdir()
  logged = {
    (value.tag, event.step): value.simple_value
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  }
  assert logged['Losses/Loss', 12] == np.float32(found[0][3])
  assert logged['Losses/Step', 12] == 12
  assert logged['Losses/Penalty', 12] > 0
  check_the_target_network_is_not_trained(agent)
  # Outputs are computed once: 3 layers of 2 networks, 2 gradients a layer.
  types = [op.type for op in update_graph(agent).get_operations()]
  assert types.count('MatMul') == 6 + 6


class TwoDraws(OfflineDQN):
  """Logs how much two draws of the same shape, from two seeds, have in common."""

  def loss(self, batch):
    seeds = batch.seed_for('tau'), batch.seed_for('tau_prime'), batch.seed
    draws = [tf.random.stateless_normal((20_000,), seed) for seed in seeds]
    for i, one in enumerate(draws):
      for j, other in enumerate(draws[:i]):
        self.log_scalar(f'Product{i}{j}', one * other)
    self.log_scalar('First', draws[0][:1])
    again = tf.random.stateless_normal((20_000,), batch.seed_for('tau'))
    self.log_scalar('Again', again[:1])
    return super().loss(batch)


def test_draws_of_a_loss_have_independent_seeds(make_agent, tmp_path):
  agent = make_agent(
    TwoDraws, summary_writer=str(tmp_path), summary_writing_frequency=4
  )
  list(agent.train_steps(12))
  agent.summary_writer.flush()
  (path,) = tmp_path.iterdir()
  logged = collections.defaultdict(list)
  for event in tf.compat.v1.train.summary_iterator(str(path)):
    for value in event.summary.value:
      logged[value.tag.removeprefix('Losses/')].append(value.simple_value)
  for pair in ('Product10', 'Product20', 'Product21'):
    # The mean of 20,000 products has the standard deviation 0.007; of equal draws,
    # it is 1.
    assert np.abs(logged[pair]).max() < 0.05
  assert logged['First'] == logged['Again']
  assert len(set(logged['First'])) == len(logged['First']) == 2


class WithoutNetwork(OfflineDQN):
  def loss(self, batch):
    return batch.reward + tf.stop_gradient(super().loss(batch))


class Mean(OfflineDQN):
  def loss(self, batch):
    return tf.reduce_mean(super().loss(batch))


class Noisy(OfflineDQN):
  def loss(self, batch):
    return super().loss(batch) * tf.random.uniform(())


class Broken(OfflineDQN):
  def loss(self, batch):
    return super().loss(batch) + tf.zeros(31)


class OwnBatch(OfflineDQN):
  """Uses a batch of Dopamine's, which one `session.run` draws once."""

  def loss(self, batch):
    return tf.square(self._build_target_q_op()) + super().loss(batch)


class OwnState(OfflineDQN):
  def choose_actions(self, outputs, seed):
    return tf.argmax(outputs.q_values + self._net_outputs.q_values, axis=1)


class OneChoice(OfflineDQN):
  def choose_actions(self, outputs, seed):
    return tf.zeros(1, tf.int64)


class ByMode(OfflineDQN):
  def choose_actions(self, outputs, seed):
    actions = super().choose_actions(outputs, seed)
    return actions if self.eval_mode else 0 * actions


class ByStep(OfflineDQN):
  def choose_actions(self, outputs, seed):
    actions = super().choose_actions(outputs, seed)
    return actions * int(self.training_steps > 4)


class ByChance(OfflineDQN):
  def choose_actions(self, outputs, seed):
    noise = np.random.default_rng().normal(size=5)
    return tf.argmax(outputs.q_values + np.float32(noise), axis=1)


class SecondLoss(OfflineDQN):
  def loss(self, batch):
    self.log_scalar('Loss', batch.reward)
    return super().loss(batch)


class Words(OfflineDQN):
  def loss(self, batch):
    self.log_scalar('words', 'text')
    return super().loss(batch)


class LostSummary(OfflineDQN):
  def loss(self, batch):
    tf.compat.v1.summary.scalar('Reward', tf.reduce_mean(batch.reward))
    return super().loss(batch)


class OwnTrainOp(OfflineDQN):
  """Counts the runs of its base's update."""

  def _build_train_op(self):
    self.count = tf.Variable(0, trainable=False)
    return tf.group(super()._build_train_op(), self.count.assign_add(1))


def test_a_train_op_may_contain_the_update_of_its_base(make_agent):
  agents = make_agent(OwnTrainOp), make_agent(OfflineDQN)
  for agent in agents:
    list(agent.train_steps(20))
  own, plain = (cartpole.weights(agent, 'Online') for agent in agents)
  np.testing.assert_array_equal(own, plain)
  assert agents[0]._sess.run(agents[0].count) == 5


@pytest.fixture(scope='module')
def built(log_dir):
  """A DQN; tests give it other classes for a moment."""
  return cartpole.build_offline_agent(
    'dqn', log_dir, **cartpole.SHARED_SETTINGS
  )


def assert_updates_are_refused(agent, message):
  """Builds the updates, as an agent does when it is made, which takes longer."""
  with agent._sess.graph.as_default():
    with pytest.raises(ValueError, match=message):
      agent.build_loop(agent._replay.next_batch, agent._replay.ready)


@pytest.mark.parametrize(
  ('class_', 'message'),
  [
    (
      OwnBatch,
      'OwnBatch.loss, or the optimizer, uses the tensor .* Compute it from the batch',
    ),
    (SecondLoss, "SecondLoss.loss logs another scalar by the name 'Loss'"),
    (Words, "Words.loss logs 'words', a string: log numbers"),
    (LostSummary, 'LostSummary.loss writes a summary .*self.log_scalar'),
    (
      WithoutNetwork,
      'WithoutNetwork.loss does not depend on the online network',
    ),
    (Mean, r'Mean.loss returned float32 \(\); expected float32 \(32,\)'),
    (Noisy, 'Noisy.loss, or a network.* RandomUniform.*with batch.seed'),
    (Broken, 'Dimensions must be equal, but are 32 and 31'),
  ],
)
def test_mistakes_in_a_loss_are_refused(built, monkeypatch, class_, message):
  monkeypatch.setattr(built, '__class__', class_)
  assert_updates_are_refused(built, message)


@pytest.mark.parametrize(
  ('class_', 'message'),
  [
    (OwnState, 'OwnState.choose_actions uses the tensor .* from the outputs'),
    (OneChoice, r'OneChoice.choose_actions returned .*shape \(n,\)'),
    (ByMode, 'ByMode.choose_actions .* depends on eval_mode, training_steps'),
    (ByStep, 'ByStep.choose_actions .* depends on eval_mode, training_steps'),
    (ByChance, 'ByChance.choose_actions .* random numbers of Python'),
  ],
)
def test_other_mistakes_are_refused(make_agent, class_, message):
  with pytest.raises(ValueError, match=message):
    make_agent(class_)


class Clipped(tf.compat.v1.train.AdamOptimizer):
  def minimize(self, loss, **kwargs):
    return super().minimize(tf.clip_by_value(loss, 0, 1), **kwargs)


@pytest.mark.parametrize(
  ('optimizer', 'message'),
  [
    (Clipped(), 'Clipped of FixedReplayDQNAgent overrides minimize'),
    (tf.keras.optimizers.Adam(), 'is Adam of .*: take one of tf.compat.v1'),
    (
      tf.compat.v1.train.AdamOptimizer(tf.constant(0.1)),
      'learning rate of FixedReplayDQNAgent is a tensor, which would stay',
    ),
  ],
)
def test_optimizers_that_would_not_work_are_refused(
  built, monkeypatch, optimizer, message
):
  monkeypatch.setattr(built, 'optimizer', optimizer)
  assert_updates_are_refused(built, message)


def test_training_steps_are_those_of_the_update(make_agent):
  class Annealed(OfflineDQN):
    def loss(self, batch):
      steps = tf.cast(self.training_steps, tf.float32)
      return 0 * super().loss(batch) + steps

  agent = make_agent(Annealed)
  assert list(agent.train_steps(12)) == [0, 4, 8]
  assert agent.training_steps == 12


def play(agent, observations):
  """Returns actions of one emulator by Dopamine's interface."""
  return [int(agent.begin_episode(observation)) for observation in observations]


OBSERVATIONS = np.random.default_rng(0).uniform(-2, 2, (20, 4))


def select(agent, states):
  """Returns actions of emulators side by side; each has its own generator."""
  generators = [np.random.default_rng(i) for i in states]
  observations = OBSERVATIONS[states].reshape(-1, 1, 4, 1)
  return agent.select_actions(observations, generators).tolist()


class Drift:
  """An environment in which the actions matter."""

  action_space = types.SimpleNamespace(n=5)
  game_over = True
  _random = np.random.default_rng(0)

  def reset(self, seed=None):
    if seed is not None:
      self._random = np.random.default_rng(seed)
    self._state, self.game_over = self._random.normal(size=(4, 1)), False
    return self._state

  def step(self, action):
    self._state = 0.9 * self._state + self._random.normal(action - 2, 1, (4, 1))
    self.game_over = bool(self._random.random() < 0.1)
    return self._state, float(self._state[0, 0]), self.game_over, {}


def assert_alike_alone_and_together(agent):
  """Compares several emulators with each alone; returns the actions."""
  agent.eval_mode, agent.epsilon_eval = True, 0.1
  together = select(agent, range(20))
  assert together == [select(agent, [i])[0] for i in range(20)]
  assert len(set(together)) > 1
  played = [
    vector_evaluation.play_episodes(
      sequential_environments.SequentialEnvironments(
        [Drift() for _ in range(count)], agent, 50
      ),
      agent.select_actions,
      40 * count,
      seed=1,
    )
    for count in (1, 3)
  ]
  alone = [episode for episode in played[1] if episode.environment == 0]
  assert alone == played[0] and len(played[1]) > len(alone) > 1
  return together


class Masked(OfflineDQN):
  """Never takes actions 0 and 1."""

  def choose_actions(self, outputs, seed):
    return 2 + tf.argmax(outputs.q_values[:, 2:], axis=1)


class Sampled(OfflineDQN):
  def choose_actions(self, outputs, seed):
    logits = 0 * outputs.q_values
    return tf.random.stateless_categorical(logits, 1, seed)[:, 0]


class MaskedByDopamine(OfflineDQN):
  def _build_networks(self):
    super()._build_networks()
    q_values = self._net_outputs.q_values
    self._q_argmax = 2 + tf.argmax(q_values[:, 2:], axis=1)[0]


class OwnSelection(OfflineDQN):
  def step(self, reward, observation):
    return super().step(reward, observation)

  def _select_action(self):
    return 2 if super()._select_action() == 2 else 3


def test_a_masked_policy_plays_alike_everywhere(make_actor):
  agent = make_actor(Masked)
  assert_alike_alone_and_together(agent)
  agent.epsilon_eval = 0.0
  actions = select(agent, range(20))
  assert actions == play(agent, OBSERVATIONS)
  assert min(actions) == 2


def test_a_sampled_policy_plays_alike_everywhere(make_agent):
  agent = make_agent(Sampled)
  actions = assert_alike_alone_and_together(agent)
  assert len(set(actions)) == 5
  assert set(play(agent, [OBSERVATIONS[0]] * 100)) == set(range(5))


@pytest.mark.parametrize(
  ('class_', 'name', 'actions'),
  [
    (MaskedByDopamine, '_q_argmax', {2, 3, 4}),
    (OwnSelection, '_select_action', {2, 3}),
  ],
)
def test_a_policy_by_dopamines_names_plays_alike_everywhere(
  make_actor, caplog, class_, name, actions
):
  agent = make_actor(class_)
  assert f'{class_.__name__} overrides {name}: evaluation plays' in caplog.text
  is_warned = f'{class_.__name__} overrides step, which' in caplog.text
  assert is_warned == (class_ is OwnSelection)
  assert_alike_alone_and_together(agent)
  agent.epsilon_eval = 0.0
  assert set(select(agent, range(20))) <= actions
  assert select(agent, range(20)) == play(agent, OBSERVATIONS)


def test_an_action_that_is_none_is_refused(make_actor):
  class Shifted(Masked):
    def choose_actions(self, outputs, seed):
      return super().choose_actions(outputs, seed) + 5

  agent = make_actor(Shifted)
  agent.epsilon_eval = 0.0
  with pytest.raises(ValueError, match=r'for 1 states.* from 0 to 4'):
    select(agent, [0])


@pytest.mark.parametrize('other', [MaskedByDopamine, OwnSelection])
def test_two_policies_are_refused(make_actor, other):
  class Both(Masked, other):
    pass

  with pytest.raises(
    ValueError, match='Both overrides choose_actions and _.*: remove _'
  ):
    make_actor(Both)
