"""Parts of agents, every backup with every head, against slow NumPy versions."""

import math
import types

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from batch_rl.agents import backups, features, heads, policies, terms
from batch_rl.agents import batch as batch_lib
from batch_rl.multi_head import atoms, ensembles, quantiles
from batch_rl.tests import cartpole, equations

B, A, K = 7, 4, 5
DISCOUNT = 0.9
SUPPORT = np.linspace(-4, 4, K)


def make_outputs(name, random):
  """Returns outputs of a network for B states, as the head's network gives them."""
  raw = random.normal(0, 2, (B, A, K))
  if name == 'scalar':
    return types.SimpleNamespace(q_values=raw[:, :, 0])
  if name == 'ensemble':
    return types.SimpleNamespace(q_heads=raw, q_values=raw.mean(2))
  if name == 'quantiles':
    return types.SimpleNamespace(quantile_values=raw, q_values=raw.mean(2))
  probabilities = scipy.special.softmax(raw, axis=2)
  head = HEADS[name]
  return types.SimpleNamespace(
    logits=raw,
    probabilities=probabilities,
    q_values=probabilities @ numpy_support(head),
  )


def numpy_support(head):
  if isinstance(head, atoms.HLGauss):
    width = (head.vmax - head.vmin) / K
    return head.vmin + width * (np.arange(K) + 0.5)
  return SUPPORT


HEADS = {
  'scalar': heads.Scalar(),
  'ensemble': ensembles.Ensemble(K, 'IDENTITY'),
  'quantiles': quantiles.Quantiles(K),
  'categorical': atoms.Categorical(K, vmax=4.0),
  'hl_gauss': atoms.HLGauss(K, vmax=4.0),
}
BACKUPS = {
  'max': backups.Max(),
  'double': backups.Double(),
  'logged': backups.LoggedAction(),
  'policy': backups.Policy('other'),
  'munchausen': backups.Munchausen(tau=0.5),
}


class Case:
  """An agent and a batch with given outputs of networks."""

  def __init__(self, head, backup):
    random = np.random.default_rng(0)
    self.head_name, self.backup_name = head, backup
    self.outputs = {
      (network, state): make_outputs(head, random)
      for network in ('online', 'target')
      for state in ('state', 'next_state')
    }
    self.other_logits = random.normal(size=(B, A))
    self.actions, self.next_actions = random.integers(A, size=(2, B))
    self.rewards = random.normal(size=B)
    self.terminals = np.arange(B) % 3 == 0

  def targets(self):
    """Returns lists of the target's (value, probability), one for each state.

    An ensemble has K lists of one value each.
    """
    after = self.outputs['target', 'next_state']
    result = []
    for j in range(B):
      reward, policy, bonus = self.rewards[j], None, np.zeros(A)
      q = after.q_values[j]
      if self.backup_name == 'max':
        policy = np.eye(A)[q.argmax()]
      elif self.backup_name == 'double':
        online = self.outputs['online', 'next_state'].q_values[j]
        policy = np.eye(A)[online.argmax()]
      elif self.backup_name == 'logged':
        policy = np.eye(A)[self.next_actions[j]]
      elif self.backup_name == 'policy':
        policy = equations.softmax(self.other_logits[j])
      else:
        policy = equations.softmax(q / 0.5)
        bonus = -0.5 * np.log(policy)
        now = self.outputs['target', 'state'].q_values[j]
        log_pi = 0.5 * np.log(equations.softmax(now / 0.5))
        reward += 0.9 * min(max(log_pi[self.actions[j]], -1), 0)
      discount = 0 if self.terminals[j] else DISCOUNT

      def back_up(values, reward=reward, discount=discount):
        return [(reward + discount * value, p) for value, p in values]

      if self.head_name == 'scalar':
        result.append([back_up([(policy @ (q + bonus), 1.0)])])
      elif self.head_name == 'ensemble':
        estimates = []
        for k in range(K):
          values = after.q_heads[j, :, k]
          if self.backup_name == 'max':
            estimates.append(back_up([(values.max(), 1.0)]))
          else:
            estimates.append(back_up([(policy @ (values + bonus), 1.0)]))
        result.append(estimates)
      else:
        if self.head_name == 'quantiles':
          samples, p = after.quantile_values[j], np.full((A, K), 1 / K)
        else:
          samples = np.tile(numpy_support(HEADS[self.head_name]), (A, 1))
          p = after.probabilities[j]
        values = [
          (samples[a, k] + bonus[a], policy[a] * p[a, k])
          for a in range(A)
          for k in range(K)
        ]
        result.append([back_up(values)])
    return result

  def losses(self):
    """Returns the loss of each transition, from the papers' equations."""
    now = self.outputs['online', 'state']
    losses = []
    for j, targets in enumerate(self.targets()):
      a = self.actions[j]
      means = [sum(value * p for value, p in target) for target in targets]
      if self.head_name == 'scalar':
        losses.append(equations.huber(means[0] - now.q_values[j, a]))
      elif self.head_name == 'ensemble':
        errors = [means[k] - now.q_heads[j, a, k] for k in range(K)]
        losses.append(np.mean([equations.huber(e) for e in errors]))
      elif self.head_name == 'quantiles':
        losses.append(
          sum(
            p
            * equations.quantile_huber(
              value - now.quantile_values[j, a, i], (i + 0.5) / K
            )
            for value, p in targets[0]
            for i in range(K)
          )
        )
      else:
        log_p = np.log(equations.softmax(now.logits[j, a]))
        losses.append(-self.labels(targets[0], means[0]) @ log_p)
    return losses

  def labels(self, target, mean):
    if self.head_name == 'categorical':
      values, p = map(np.array, zip(*target, strict=True))
      return equations.project(values, p, SUPPORT)
    edges = np.linspace(-4, 4, K + 1)
    sigma = 0.75 * 8 / K
    mean = min(max(mean, -4), 4)
    phi = [math.erf((edge - mean) / sigma / 2**0.5) for edge in edges]
    return np.diff(phi) / (phi[-1] - phi[0])

  def agent(self):
    """Returns a stand-in for a `ValueAgent`, and its batch."""

    def constant(outputs):
      return types.SimpleNamespace(
        **{
          name: tf.constant(value, tf.float32)
          for name, value in vars(outputs).items()
        }
      )

    outputs = {key: constant(value) for key, value in self.outputs.items()}
    batch = batch_lib.Batch(
      state='state',
      action=tf.constant(self.actions, tf.int32),
      reward=tf.constant(self.rewards, tf.float32),
      next_state='next_state',
      next_action=tf.constant(self.next_actions, tf.int32),
      next_reward=None,
      terminal=tf.constant(self.terminals, tf.uint8),
      indices=None,
      step=tf.constant(0, tf.int64),
      seed=tf.constant([1, 2], tf.int64),
    )
    agent = types.SimpleNamespace(
      head=HEADS[self.head_name],
      cumulative_gamma=DISCOUNT,
      online=lambda state: outputs['online', state],
      target=lambda state: outputs['target', state],
      num_actions=A,
      acting_outputs=lambda state: outputs['online', state],
      choose_actions=policies.Greedy(),
      network_outputs=lambda _, state: tf.constant(
        self.other_logits, tf.float32
      ),
    )
    return agent, batch


@pytest.mark.parametrize('backup', BACKUPS)
@pytest.mark.parametrize('head', HEADS)
def test_every_backup_fits_every_head(evaluate, head, backup):
  case = Case(head, backup)
  agent, batch = case.agent()
  targets = BACKUPS[backup](agent, batch)
  losses = agent.head.loss(agent.online(batch.state), batch, targets)
  np.testing.assert_allclose(
    evaluate(losses), case.losses(), rtol=1e-4, atol=1e-5
  )


@pytest.mark.parametrize('head', HEADS)
def test_monte_carlo_targets_are_returns_to_go(evaluate, head):
  agent, batch = Case(head, 'max').agent()
  returns = tf.constant(np.linspace(-3, 3, B), tf.float32)
  batch = batch._replace(columns={'return_to_go': returns})
  targets = backups.MonteCarlo()(agent, batch)
  losses = agent.head.loss(agent.online(batch.state), batch, targets)
  same = heads.Returns(tf.tile(returns[:, None], (1, K)))
  expected = agent.head.loss(agent.online(batch.state), batch, same)
  found, expected, values = evaluate((losses, expected, targets.values))
  np.testing.assert_array_equal(values[:, 0], np.linspace(-3, 3, B, dtype='f'))
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cql(evaluate):
  case = Case('scalar', 'max')
  agent, batch = case.agent()
  q_values = case.outputs['online', 'state'].q_values
  expected = [
    math.log(sum(math.exp(q) for q in row)) - row[action]
    for row, action in zip(q_values, case.actions, strict=True)
  ]
  losses = evaluate(terms.CQL()(agent, batch))
  np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_policies(evaluate):
  random = np.random.default_rng(0)
  q_values, logits = random.normal(size=(2, 200, A)).astype(np.float32)
  outputs = types.SimpleNamespace(q_values=q_values, logits=logits)
  likely = equations.softmax(logits) >= 0.5 * equations.softmax(logits).max(
    1, keepdims=True
  )
  expected = {
    policies.Greedy(): q_values.argmax(1),
    policies.Constrained(0.5): np.where(likely, q_values, -np.inf).argmax(1),
    policies.Constrained(0): q_values.argmax(1),
    policies.Constrained(1): logits.argmax(1),
  }
  for policy, actions in expected.items():
    found = evaluate(policy(outputs, tf.constant([0, 0], tf.int64)))
    np.testing.assert_array_equal(found, actions)
  assert evaluate(policies.Named('x')(logits, None)).tolist() == (
    logits.argmax(1).tolist()
  )
  with pytest.raises(ValueError, match='threshold=1.5'):
    policies.Constrained(1.5)


@pytest.mark.parametrize('temperature', [0.5, 2.0])
def test_a_softmax_policy_samples_its_distribution(evaluate, temperature):
  q_values = np.array([[0.0, 1.0, 2.0]], np.float32)
  outputs = types.SimpleNamespace(q_values=np.repeat(q_values, 20_000, 0))
  seed = tf.constant([1, 2], tf.int64)
  actions = evaluate(policies.Softmax(temperature)(outputs, seed))
  shares = np.bincount(actions, minlength=3) / 20_000
  expected = equations.softmax(q_values[0] / temperature)
  np.testing.assert_allclose(shares, expected, atol=0.015)


@pytest.fixture(scope='module')
def log_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


def make_agent(log_dir, name, **parts):
  return cartpole.build_offline_agent(
    name, log_dir, num_actions=5, **cartpole.PERIODS, **parts
  )


class Squares(terms.Term):
  """Is 1 for each transition, and reads the features."""

  def __call__(self, agent, batch):
    return 1 + 0 * tf.reduce_sum(agent.features(batch.state), axis=1)


@pytest.mark.parametrize('name', sorted(cartpole.OFFLINE_CLASSES))
def test_terms_add_to_the_loss_of_any_agent(log_dir, name):
  first = [
    next(make_agent(log_dir, name, terms=parts).train_steps(1))
    for parts in ([], [Squares(2.0), terms.DR3(0.0)], [terms.CQL(3.0)])
  ]
  assert first[1] == pytest.approx(first[0] + 2, rel=1e-5)
  assert first[2] > first[0]  # log sum exp Q >= Q


def test_dr3_is_a_dot_product_of_features(log_dir):
  agent = make_agent(log_dir, 'dqn')
  states = np.random.default_rng(0).normal(size=(2, 3, 4, 1, 1))
  with agent._sess.graph.as_default():
    now, after = tf.constant(states[0]), tf.constant(states[1])
    batch = types.SimpleNamespace(state=now, next_state=after)
    found, left, right = agent._sess.run(
      (terms.DR3()(agent, batch), agent.features(now), agent.features(after))
    )
  assert left.shape == (3, 32)
  np.testing.assert_allclose(found, (left * right).sum(1), rtol=1e-5)


def test_imitation_is_a_cross_entropy(log_dir):
  agent = make_agent(log_dir, 'dqn', terms=[terms.Imitation()])
  states = np.random.default_rng(0).normal(size=(3, 4, 1, 1))
  actions = np.array([4, 0, 2], np.int32)
  with agent._sess.graph.as_default():
    batch = types.SimpleNamespace(
      state=tf.constant(states), action=tf.constant(actions)
    )
    found, logits = agent._sess.run(
      (
        agent.terms[0](agent, batch),
        agent.network_outputs('behaviour', batch.state),
      )
    )
  expected = [
    -math.log(equations.softmax(row)[action]) + 0.01 * np.mean(row**2)
    for row, action in zip(logits.astype(float), actions, strict=True)
  ]
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_features_are_the_inputs_of_the_last_layer(log_dir):
  agent = make_agent(log_dir, 'dqn')
  network = agent.networks['online']
  with agent._sess.graph.as_default():
    states = tf.constant(np.random.default_rng(0).normal(size=(3, 4, 1, 1)))
    features, outputs = agent.features(states), agent.online(states)
    kernel, bias = network.weights[-2:]
    again = tf.matmul(features, kernel) + bias
    found, expected = agent._sess.run((again, outputs.q_values))
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_bcq_is_made_of_parts(log_dir):
  agent = make_agent(
    log_dir,
    'dqn',
    terms=[terms.Imitation()],
    backup=backups.Double(),
    policy=policies.Constrained(0.9),
  )
  before = agent._sess.run(agent.networks['behaviour'].weights)
  assert np.isfinite(list(agent.train_steps(12))).all()
  after = agent._sess.run(agent.networks['behaviour'].weights)
  assert not np.array_equal(before[0], after[0])
  agent.eval_mode, agent.epsilon_eval = True, 0.0
  states = np.random.default_rng(0).normal(size=(20, 1, 4, 1))
  generators = [np.random.default_rng(i) for i in range(20)]
  together = agent.select_actions(states, generators)
  alone = [agent.begin_episode(state[0]) for state in states]
  assert together.tolist() == alone


class ActorCritic(cartpole.OFFLINE_CLASSES['dqn']):
  """Acts by another network than the online one; a critic has a target copy."""

  policy = policies.Named('policy')

  def build_networks(self):
    def create(name):
      return tf.keras.Sequential(
        [tf.keras.layers.Flatten(), tf.keras.layers.Dense(5)], name=name
      )

    self.add_network('policy', create)
    self.add_network('critic', create, target=True)

  def loss(self, batch):
    critic = self.network_outputs('critic', batch.state)
    goal = self.target_outputs('critic', batch.next_state)
    logits = self.network_outputs('policy', batch.state)
    cloning = tf.nn.sparse_softmax_cross_entropy_with_logits(
      batch.action, logits
    )
    error = tf.reduce_sum(tf.square(critic - goal), axis=1)
    return super().loss(batch) + tf.cast(cloning + error, tf.float32)


def test_an_agent_acts_by_a_network_of_its_own(log_dir):
  agent = cartpole.build_offline_agent(
    'dqn', log_dir, ActorCritic, num_actions=5, **cartpole.PERIODS
  )

  def read(networks, name):
    return agent._sess.run(networks[name].weights[0])

  list(agent.train_steps(7))  # synchronised at step 6
  np.testing.assert_array_equal(
    read(agent.networks, 'critic'), read(agent.targets, 'critic')
  )
  before = read(agent.targets, 'critic')
  list(agent.train_steps(5))  # with an update
  np.testing.assert_array_equal(before, read(agent.targets, 'critic'))
  assert not np.array_equal(before, read(agent.networks, 'critic'))
  agent.eval_mode, agent.epsilon_eval = True, 0.0
  states = np.random.default_rng(0).normal(size=(20, 1, 4, 1))
  kernel, bias = agent._sess.run(agent.networks['policy'].weights)
  expected = (states.reshape(20, 4) @ kernel + bias).argmax(1)
  generators = [np.random.default_rng(i) for i in range(20)]
  found = agent.select_actions(states, generators)
  np.testing.assert_array_equal(found, expected)


class Cloning(cartpole.OFFLINE_CLASSES['dqn']):
  """Has no target network."""

  uses_target = False

  def loss(self, batch):
    logits = self.online(batch.state).q_values
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.action, logits)


@pytest.mark.parametrize(
  ('class_', 'parts'),
  [
    (Cloning, {}),
    (cartpole.OFFLINE_CLASSES['dqn'], {'backup': backups.MonteCarlo()}),
  ],
)
def test_an_agent_without_target_network_has_none(log_dir, class_, parts):
  agent = cartpole.build_offline_agent('dqn', log_dir, class_, **parts)
  assert np.isfinite(list(agent.train_steps(30))).all()
  assert agent.target_convnet is None
  assert not [name for name in cartpole.values(agent) if 'Target' in name]


@pytest.mark.parametrize(
  ('name', 'parts', 'message'),
  [
    ('dqn', {'terms': terms.CQL()}, 'give a list'),
    ('dqn', {'terms': [terms.CQL]}, r'with @ and \(\)'),
    ('dqn', {'backup': 'max'}, "backup has 'max': give an object"),
    ('dqn', {'policy': policies.Constrained()}, "no network 'behaviour'"),
    (
      'dqn',
      {'terms': [terms.Imitation(), terms.Imitation()]},
      "two networks 'behaviour'",
    ),
    ('c51', {'head': heads.Scalar()}, 'has its own head'),
    ('dqn', {'backup': backups.Policy('online')}, "'online' .* is no policy"),
    ('dqn', {'policy': policies.Named('online')}, "'online' .* is no policy"),
  ],
)
def test_mistakes_are_named(log_dir, name, parts, message):
  with pytest.raises(ValueError, match=message):
    make_agent(log_dir, name, **parts)


def test_a_column_that_is_not_asked_for_is_named():
  batch = batch_lib.Batch(*[None] * 10)
  with pytest.raises(AttributeError, match="add 'weight' to `needs`"):
    _ = batch.weight


@pytest.mark.parametrize('name', ['c51', 'multi_head_dqn', 'quantile'])
def test_a_head_that_would_be_ignored_is_refused(log_dir, name):
  class OwnHead(cartpole.OFFLINE_CLASSES[name]):
    head = atoms.HLGauss()

  with pytest.raises(ValueError, match='OwnHead has its own head'):
    cartpole.build_offline_agent(name, log_dir, OwnHead)


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: policies.Softmax(0.0), 'temperature=0.0'),
    (lambda: backups.Munchausen(tau=0.0), 'tau=0.0'),
    (lambda: backups.Munchausen(clip=1.0), 'clip=1.0'),
    (lambda: atoms.HLGauss(sigma=0.0), 'sigma=0.0'),
  ],
)
def test_settings_out_of_range_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


BCQ = {
  'terms': [terms.Imitation(), terms.Imitation(0.5, 'second')],
  'backup': backups.Double(),
  'policy': policies.Constrained(),
}
SOFT = {'backup': backups.Double(), 'policy': policies.Softmax()}


@pytest.mark.parametrize(
  ('name', 'settings'),
  [
    ('dqn', BCQ),
    ('dqn', {**BCQ, 'mixed_precision': True}),
    ('dqn', {**SOFT, 'jit_compile': True}),
    ('multi_network_dqn', BCQ),
    ('multi_network_dqn', SOFT),
  ],
)
def test_parts_train_and_act_together(log_dir, name, settings):
  agent = make_agent(log_dir, name, **settings)
  assert np.isfinite(list(agent.train_steps(9))).all()
  agent.eval_mode = True
  states = np.zeros((3, 1, 4, 1))
  actions = agent.select_actions(
    states, [np.random.default_rng(i) for i in range(3)]
  )
  assert set(actions) <= set(range(5))


def test_a_softmax_policy_acts_on_separate_networks(log_dir):
  agent = make_agent(log_dir, 'multi_network_dqn', policy=policies.Softmax(1e6))
  agent.eval_mode, agent.epsilon_eval = True, 0.0
  generators = [np.random.default_rng(i) for i in range(50)]
  actions = agent.select_actions(np.zeros((50, 1, 4, 1)), generators)
  assert len(set(actions)) == 5


class Branching(cartpole.OFFLINE_CLASSES['dqn']):
  """Calls the online network in a branch first."""

  def loss(self, batch):
    extra = tf.cond(
      batch.step > 4,
      lambda: tf.reduce_mean(self.online(batch.state).q_values),
      lambda: 0.0,
    )
    return super().loss(batch) + extra


def test_a_network_may_be_called_in_a_branch(log_dir):
  agent = cartpole.build_offline_agent('dqn', log_dir, Branching)
  assert np.isfinite(list(agent.train_steps(9))).all()


class Activated(tf.keras.Model):
  """Has an activation after its output layer."""

  def __init__(self):
    super().__init__()
    self.hidden, self.out = map(tf.keras.layers.Dense, (7, 3))
    self.activation = tf.keras.layers.ReLU()

  def call(self, states):
    return self.activation(self.out(self.hidden(states)))


@pytest.mark.parametrize('is_sequential', [False, True])
def test_an_activation_is_no_last_layer(is_sequential):
  network = Activated()
  if is_sequential:
    network = tf.keras.Sequential(
      [network.hidden, network.out, network.activation]
    )
  _, inputs = features.Recorder(network)(tf.zeros((2, 4)))
  assert features.join(inputs, network).shape == (2, 7)


def test_parts_that_an_own_loss_does_not_use_are_named(log_dir, caplog):
  class OwnLoss(cartpole.OFFLINE_CLASSES['dqn']):
    def loss(self, batch):
      return tf.reduce_mean(self.online(batch.state).q_values, axis=1)

  parts = {'terms': [terms.CQL()], 'backup': backups.Double()}
  cartpole.build_offline_agent('dqn', log_dir, OwnLoss, **parts)
  assert (
    'OwnLoss.loss does not call super().loss(batch), which uses its backup and terms.'
    in caplog.text
  )
