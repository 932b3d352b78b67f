"""Parts of agents, every backup with every head, against slow NumPy versions."""

import functools
import types

import gin
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from batch_rl.agents import (
  backups,
  dueling,
  features,
  graph_checks,
  heads,
  loss_agent,
  policies,
  terms,
)
from batch_rl.multi_head import atari_helpers, atoms, ensembles, quantiles
from batch_rl.tests import cartpole, equations, offline_equations, programs

B, A, K = 7, 4, 5
DISCOUNT = 0.9
PLAIN = cartpole.gym_lib.CartpoleDQNNetwork  # 512 hidden units in each layer
SUPPORTS = {
  'categorical': np.linspace(-4, 4, K),
  'hl_gauss': -4 + 8 / K * (np.arange(K) + 0.5),
}


def make_outputs(name, random):
  """Returns outputs of a network for B states, as the head's network gives them."""
  raw = random.normal(0, 2, (B, A, 1 if name == 'scalar' else K))
  probabilities = scipy.special.softmax(raw, axis=2)
  q_values = raw.mean(2)
  if name in SUPPORTS:
    q_values = probabilities @ SUPPORTS[name]
  return types.SimpleNamespace(
    q_values=q_values, q_heads=raw, logits=raw, probabilities=probabilities
  )


HEADS = {
  'scalar': heads.Scalar(),
  'ensemble': ensembles.Ensemble(K, 'IDENTITY'),
  'quantiles': quantiles.Quantiles(K, kappa=0.5),
  'kappa 0': quantiles.Quantiles(K, kappa=0),
  'categorical': atoms.Categorical(K, vmax=4.0),
  'hl_gauss': atoms.HLGauss(K, vmax=4.0),
}
BACKUPS = {
  'max': backups.Max(),
  'double': backups.Double(),
  'logged': backups.LoggedAction(),
  'policy': backups.Policy('other'),
  'munchausen': backups.Munchausen(tau=0.5),
  'monte_carlo': backups.MonteCarlo(),
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
    self.returns = np.linspace(-3, 3, B)

  def estimates(self, j):
    """Returns the target's estimates: (samples, probabilities), each (A, n)."""
    after = self.outputs['target', 'next_state']
    if self.head_name in ('scalar', 'ensemble'):
      return [(q[:, None], np.ones((A, 1))) for q in after.q_heads[j].T]
    if self.head_name in ('quantiles', 'kappa 0'):
      return [(after.logits[j], np.full((A, K), 1 / K))]
    return [(np.tile(SUPPORTS[self.head_name], (A, 1)), after.probabilities[j])]

  def targets(self):
    """Returns lists of (value, probability), one for each state and estimate."""
    result = []
    for j in range(B):
      if self.backup_name == 'monte_carlo':
        result.append([[(self.returns[j], 1.0)]] * K)
        continue
      reward, policy, bonus = self.rewards[j], None, np.zeros(A)
      if self.backup_name == 'double':
        online = self.outputs['online', 'next_state'].q_values[j]
        policy = np.eye(A)[online.argmax()]
      elif self.backup_name == 'logged':
        policy = np.eye(A)[self.next_actions[j]]
      elif self.backup_name == 'policy':
        policy = equations.softmax(self.other_logits[j])
      elif self.backup_name == 'munchausen':
        now = self.outputs['target', 'state'].q_values[j]
        after = self.outputs['target', 'next_state'].q_values[j]
        _, scaled = offline_equations.soft_value(now, 0.5)
        reward += 0.9 * min(max(scaled[self.actions[j]], -1), 0)
        policy, scaled = offline_equations.soft_value(after, 0.5)
        bonus = -scaled
      discount = 0 if self.terminals[j] else DISCOUNT
      targets = []
      for samples, p in self.estimates(j):
        chosen = policy
        if self.backup_name == 'max':
          chosen = np.eye(A)[(samples * p).sum(1).argmax()]
        values = samples + bonus[:, None]
        if self.backup_name == 'munchausen' and self.head_name not in SUPPORTS:
          # Level by level, as in Munchausen-IQN.
          values, p, chosen = (policy @ values)[None], p[:1], np.ones(1)
        values = reward + discount * values
        p = chosen[:, None] * p
        targets.append([*zip(values.ravel(), p.ravel(), strict=True)])
      result.append(targets)
    return result

  def losses(self):
    now = self.outputs['online', 'state']
    losses = []
    for j, targets in enumerate(self.targets()):
      a = self.actions[j]
      means = [sum(value * p for value, p in target) for target in targets]
      if self.head_name in ('scalar', 'ensemble'):
        errors = [means[k] - q for k, q in enumerate(now.q_heads[j, a])]
        losses.append(np.mean([equations.huber(e) for e in errors]))
      elif self.head_name in ('quantiles', 'kappa 0'):
        kappa = HEADS[self.head_name].kappa
        errors = [
          p * equations.quantile_huber(value - theta, (i + 0.5) / K, kappa)
          for value, p in targets[0]
          for i, theta in enumerate(now.logits[j, a])
        ]
        losses.append(sum(errors))
      else:
        log_p = np.log(equations.softmax(now.logits[j, a]))
        losses.append(-self.labels(targets[0], means[0]) @ log_p)
    return losses

  def labels(self, target, mean):
    if self.head_name == 'categorical':
      values, p = map(np.array, zip(*target, strict=True))
      return equations.project(values, p, SUPPORTS['categorical'])
    return offline_equations.histogram(mean, np.linspace(-4, 4, K + 1))

  def agent(self):
    """Returns a stand-in for a `ValueAgent`, and its batch."""

    def constant(outputs):
      fields = tf.nest.map_structure(np.float32, vars(outputs))
      return types.SimpleNamespace(**tf.nest.map_structure(tf.constant, fields))

    outputs = {key: constant(value) for key, value in self.outputs.items()}
    other_logits = tf.constant(self.other_logits, tf.float32)
    batch = loss_agent.Batch(
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
      columns={'return_to_go': tf.constant(self.returns, tf.float32)},
    )
    agent = types.SimpleNamespace(
      head=HEADS[self.head_name],
      cumulative_gamma=DISCOUNT,
      online=lambda state: outputs['online', state],
      target=lambda state: outputs['target', state],
      num_actions=A,
      acting_outputs=lambda state: outputs['online', state],
      choose_actions=policies.Greedy(),
      network_outputs=lambda _, state: other_logits,
    )
    return agent, batch


@pytest.mark.parametrize('backup', BACKUPS)
@pytest.mark.parametrize('head', HEADS)
def test_every_backup_fits_every_head(evaluate, head, backup):
  case = Case(head, backup)
  agent, batch = case.agent()
  targets = BACKUPS[backup](agent, batch)
  found = evaluate(agent.head.loss(agent.online(batch.state), batch, targets))
  np.testing.assert_allclose(found, case.losses(), rtol=1e-4, atol=1e-5)


def test_policies(evaluate):
  random = np.random.default_rng(0)
  q_values, logits = random.normal(size=(2, 200, A)).astype(np.float32)
  outputs = types.SimpleNamespace(q_values=q_values, logits=logits)
  shares = equations.softmax(logits)
  likely = shares >= 0.5 * shares.max(1, keepdims=True)
  expected = {
    policies.Greedy(): q_values.argmax(1),
    policies.Constrained(0.5): np.where(likely, q_values, -np.inf).argmax(1),
    policies.Constrained(0): q_values.argmax(1),
    policies.Constrained(1): logits.argmax(1),
  }
  for policy, actions in expected.items():
    found = evaluate(policy(outputs, tf.constant([0, 0], tf.int64)))
    np.testing.assert_array_equal(found, actions)
  with pytest.raises(ValueError, match='threshold=30 is not in'):
    policies.Constrained(30)
  for wrong in (
    lambda: policies.Softmax(0),
    lambda: heads.Scalar(-1),
    lambda: backups.Munchausen(clip=1.0),
  ):
    with pytest.raises(ValueError, match='=.*: give a number'):
      wrong()
  found = evaluate(policies.Named('x')(logits, None))
  np.testing.assert_array_equal(found, logits.argmax(1))

  repeated = np.repeat(q_values[:1], 20_000, 0)
  seed = tf.constant([1, 2], tf.int64)
  outputs = types.SimpleNamespace(q_values=repeated)
  sampled = policies.Softmax(0.5)(outputs, seed)
  named = policies.Named('x', samples=True)(repeated / 0.5, seed)
  np.testing.assert_array_equal(*evaluate([sampled, named]))
  shares = np.bincount(evaluate(sampled), minlength=A) / 20_000
  expected = equations.softmax(q_values[0] / 0.5)
  np.testing.assert_allclose(shares, expected, atol=0.015)


@pytest.mark.parametrize('name', ['c51', 'multi_network_dqn'])
def test_terms_add_to_the_loss_of_any_agent(make_agent, name):
  """An agent with all terms logs each; the loss has them with their weights."""
  bcq = {'backup': backups.Double(), 'policy': policies.Constrained(0.9)}
  others = [terms.CQL(3.0), terms.DR3(0.5), terms.CQL(2.0)]
  agent = make_agent(name, terms=[terms.Imitation(), *others], **bcq)
  scalars, _ = agent._loop.run(agent._sess, 0, 1)
  found = dict(zip(agent._scalar_names, scalars[0], strict=True))
  weighted = [3 * found.pop('CQL'), 2 * found.pop('CQL_2')]
  weighted += [0.5 * found.pop('DR3'), found.pop('Imitation')]
  [loss] = found.values()
  plain = make_agent(name, terms=[terms.Imitation(0.0)], **bcq)
  expected = next(plain.train_steps(1))
  assert loss - sum(weighted) == pytest.approx(expected, rel=1e-4)
  assert weighted[0] == pytest.approx(1.5 * weighted[1]) and weighted[0] > 0
  acting = [op.type for op in graph_checks._ancestors(agent._actions)]
  assert acting.count('MatMul') == (5 if name == 'c51' else 8)  # one torso


def test_a_loss_of_two_views_logs_both(make_agent):
  agent = make_agent('iql', terms=[terms.CQL()])
  with agent._sess.graph.as_default(), agent._tracing(0):
    batch = agent._replay_batch()
    agent.loss(batch), agent.loss(batch)
  assert {'CQL_2', 'Policy_2'} < {*agent._scalars}


def test_an_agent_acts_by_a_network_of_its_own(make_agent):
  agent = make_agent('iql')
  agent.eval_mode, agent.epsilon_eval = True, 0.0
  states = np.random.default_rng(0).normal(size=(20, 4, 1, 1))
  with agent._sess.graph.as_default():
    logits = agent.network_outputs('policy', tf.constant(states))
    q_values = agent.online(tf.constant(states)).q_values
  logits, q_values = agent._sess.run((logits, q_values))
  rows = np.moveaxis(states, -1, 1)
  found = agent.select_actions(rows, cartpole.generators(20))
  np.testing.assert_array_equal(found, logits.argmax(1))
  assert np.any(found != q_values.argmax(1))


@pytest.mark.parametrize(
  ('name', 'backup', 'settings'),
  [
    # Its targets do not use the mixture of an episode.
    ('multi_network_dqn', backups.Double(), {'policy': policies.Softmax(1e6)}),
    ('dqn', backups.MonteCarlo(), {'terms': [terms.Imitation()]}),
  ],
)
def test_parts_train_and_act_together(make_agent, name, backup, settings):
  agent = make_agent(name, backup=backup, jit_compile=True, **settings)
  assert np.isfinite(list(agent.train_steps(9))).all()
  has_target = not isinstance(agent.backup, backups.MonteCarlo)
  assert (agent.target_convnet is not None) == has_target
  variables = cartpole.values(agent)
  assert any('Target' in variable for variable in variables) == has_target
  agent.eval_mode, agent.epsilon_eval = True, 0.0
  states = np.zeros((50, 1, 4, 1))
  actions = agent.select_actions(states, cartpole.generators(50))
  samples = isinstance(agent.policy, policies.Softmax)
  assert len(set(actions)) == (5 if samples else 1)


class OwnLoss(cartpole.OFFLINE_CLASSES['dqn']):
  def loss(self, batch):
    return tf.reduce_sum(self.online(batch.state).q_values, axis=1)


class OwnUse(OwnLoss):
  def loss(self, batch):
    losses = self.backup(self, batch).mean() - super().loss(batch)
    return losses + sum(term(self, batch) for term in self.terms)


class CopyOnFeatures(cartpole.OFFLINE_CLASSES['dqn']):
  def build_networks(self):
    self.add_network('v', None, target=True, on_features=True)


class OnBoth(cartpole.OFFLINE_CLASSES['dqn']):
  def build_networks(self):
    self.add_network('v', None, on_torso=True, on_features=True)


class OwnHead(cartpole.OFFLINE_CLASSES['quantile']):
  head = atoms.HLGauss()


@pytest.mark.parametrize(
  'arguments', [{'num_atoms': 1}, {'vmin': 2.0, 'vmax': 2.0}]
)
def test_a_support_without_extent_is_refused(make_agent, arguments):
  for make in atoms.Categorical, functools.partial(make_agent, 'c51'):
    with pytest.raises(ValueError, match='vmin='):
      make(**arguments)
  for vmin in (-1, 0):  # Dopamine refuses integers, and takes 0 for None.
    agent = make_agent('c51', vmin=vmin)
    assert agent._sess.run(agent._support)[0] == vmin


NORM, RELU = tf.keras.layers.LayerNormalization, tf.keras.layers.ReLU


def dense(*units, **given):
  return [tf.keras.layers.Dense(n, **given) for n in units]


class Parallel(tf.keras.Model):
  """Layers made in the first call, in another order, and parallel ends."""

  def build(self, _):
    self.end, self.begin = dense(3, 7)
    self.others = [tf.keras.Sequential(dense(5, 3)) for _ in range(2)]

  def call(self, x):
    x = self.begin(x)
    return self.end(x), *[other(x) for other in self.others]


class InALoop(tf.keras.Model):
  def __init__(self):
    super().__init__()
    self.dense = tf.keras.layers.Dense(3)

  def call(self, x):
    return tf.map_fn(lambda row: self.dense(row[None])[0], x)


@pytest.mark.parametrize(
  ('make', 'last', 'hidden'),
  [
    (lambda: tf.keras.Sequential([*dense(7, 3), RELU()]), 7, 4),
    (lambda: tf.keras.Sequential(dense(7, 3, activation=RELU())), 7, 4),
    (lambda: tf.keras.Sequential([*dense(6, 7), NORM(), *dense(3)]), 7, 6),
    (lambda: tf.keras.Sequential(dense(3)), 4, 4),
    (Parallel, 7 + 5 + 5, 4 + 7),
    (lambda: dueling.DuelingNetwork(PLAIN, 2, 2, 'Q'), 2 * 512, 512),
  ],
)
def test_features_are_the_inputs_of_the_last_layers(make, last, hidden):
  _, calls = features.Recorder(make())(tf.zeros((2, 4)))
  assert features.join(calls.last, None).shape == (2, last)
  assert features.join(calls.hidden, None).shape == (2, hidden)


def test_features_that_are_not_found():
  for network, calls in (
    (tf.keras.Sequential(), []),
    (InALoop(), features.Recorder(InALoop())(tf.zeros((2, 4)))[1].last),
  ):
    with pytest.raises(features.NoFeaturesError, match=type(network).__name__):
      features.join(calls, network)


class Mean(terms.CQL):
  def __call__(self, agent, batch):
    return tf.reduce_mean(super().__call__(agent, batch))


class Changed(backups.Max):
  def __init__(self, change):
    self.change = change

  def next_returns(self, agent, batch):
    return self.change(super().next_returns(agent, batch).values)


FLAT = Changed(lambda values: heads.Returns(values[:, 0]))
NO_RETURNS = Changed(lambda values: values)
SQUARE = Changed(lambda values: heads.Returns(values + tf.zeros(32)))


class Late(cartpole.OFFLINE_CLASSES['dqn']):
  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self.terms = [terms.CQL()]


class Needing(backups.Max):
  needs = 'return_to_come'


TINY = {'network': programs.TinyNetwork}
ENSEMBLE = 'multi_head_dqn'
TWO_OF_AVERAGE = dict(num_convex_combinations=2, transform_strategy='AVERAGE')
TWO_AS_THEY_ARE = {**TWO_OF_AVERAGE, 'transform_strategy': 'IDENTITY'}
NOT_PLAIN = {'network': atari_helpers.QuantileNetwork}
PARTIAL = {'network': functools.partial(atari_helpers.QuantileNetwork)}


@pytest.mark.parametrize(
  ('name', 'arguments', 'message'),
  [
    ('dqn', {'terms': [terms.CQL]}, 'terms has .*@'),
    ('dqn', {'backup': 'max'}, r"backup has 'max'.* e.g. @Double\(\)"),
    ('dqn', {'policy': policies.Constrained()}, "'behaviour'"),
    ('dqn', {'terms': [terms.Imitation()] * 2}, "'behaviour'"),
    ('dqn', {'terms': [Mean()]}, r'Mean.__call__ returned float32 \(\); .*32'),
    ('dqn', {'backup': backups.Policy('online')}, "'online'.*n, 5"),
    ('dqn', {'backup': FLAT}, r'Changed.next_returns .*\(32,\); .*\(n, k\)'),
    ('dqn', {'backup': NO_RETURNS}, r'next_returns .*\(32, 1\); .*Returns'),
    ('dqn', {'backup': SQUARE}, r'Scalar has targets \(32, 32\)'),
    ('dqn', {'class_': Late}, r'Late.terms is set too late'),
    ('dqn', {'backup': Needing()}, "column 'return_to_come'"),
    ('c51', {'head': heads.Scalar()}, 'FixedReplayRainbowAgent.*Scalar'),
    (ENSEMBLE, {'transform_strategy': 'MEAN'}, "'MEAN'; choose AVERAGE, IDENT"),
    (ENSEMBLE, TWO_OF_AVERAGE, '2 mixtures .* AVERAGE'),
    (ENSEMBLE, TWO_AS_THEY_ARE, '2 mixtures .* IDENTITY'),
    ('quantile', {'class_': OwnHead}, 'OwnHead.*HLGauss'),
    ('dqn', {'class_': CopyOnFeatures}, "copy of 'v' would read the online"),
    ('dqn', {'class_': OnBoth}, 'one of on_features and on_torso'),
    ('dqn', {'updates_per_run': 0}, 'updates_per_run=0'),
    ('bc', {'terms': [terms.CQL()]}, 'BCAgent.terms has no effect'),
    ('bc', {'head': atoms.HLGauss()}, r'cannot take @HLGauss\(\)'),
    ('iqn', {'dueling': True}, 'IQN has no dueling network'),
    ('iqn', TINY, 'TinyNetwork cannot be used for IQN'),
    ('dqn', {**TINY, 'dueling': True}, 'TinyNetwork .* for dueling'),
    ('quantile', {**PARTIAL, 'dueling': True}, 'dueling: .*partial'),
    ('iqn', NOT_PLAIN, 'missing a required .*bind a network with one'),
    ('iql', NOT_PLAIN, 'bind a network with one'),
    ('quantile', {**NOT_PLAIN, 'dueling': True}, 'plain .* @AtariNetwork'),
    ('iql', {'expectile': 1.0}, 'expectile=1.0'),
    ('iql', {'inverse_temperature': -3}, 'inverse_temperature=-3'),
  ],
)
def test_mistakes_are_named(make_agent, name, arguments, message):
  with pytest.raises(ValueError, match=message):
    make_agent(name, **arguments)
  assert gin.get_configurable('AtariNetwork')  # which messages advise


class Root(terms.Term):
  def __call__(self, agent, batch):
    return tf.sqrt(-1 - tf.cast(batch.action, tf.float32))


def test_a_term_that_is_not_finite_is_named(make_agent):
  agent = make_agent(terms=[terms.CQL(), Root()])
  message = r'is nan at update 0 \(Root is nan\):'
  with pytest.raises(FloatingPointError, match=message):
    list(agent.train_steps(1))


class OwnChoice(cartpole.OFFLINE_CLASSES['dqn']):
  def choose_actions(self, outputs, seed):
    return tf.argmin(outputs.q_values, axis=1)


class OwnChoiceByPolicy(cartpole.OFFLINE_CLASSES['dqn']):
  def choose_actions(self, outputs, seed):
    return 4 - super().choose_actions(outputs, seed)


class Repelled(cartpole.OFFLINE_CLASSES['dqn']):
  def loss(self, batch):
    q_values = self.online(batch.state).q_values
    [gradient] = tf.gradients(q_values, self.features(batch.state))
    return super().loss(batch) + tf.reduce_sum(gradient**2, axis=1)


def test_parts_that_an_agent_ignores_are_refused(make_agent):
  parts = {'terms': [terms.CQL()], 'backup': backups.Double()}
  for name, part in parts.items():
    with pytest.raises(ValueError, match=f'OwnLoss.{name} has no effect'):
      make_agent(class_=OwnLoss, **{name: part})
    make_agent(class_=OwnUse, **{name: part})
  make_agent(class_=OwnLoss)
  make_agent(**parts)
  make_agent(class_=OwnChoice)
  make_agent(class_=OwnChoiceByPolicy, policy=policies.Softmax())
  with pytest.raises(ValueError, match='OwnChoice.policy has no effect'):
    make_agent(class_=OwnChoice, policy=policies.Softmax())


def test_outputs_have_a_gradient_by_the_features(make_agent):
  assert np.isfinite(list(make_agent(class_=Repelled).train_steps(1))).all()


def test_an_ensemble_takes_one_target_or_one_for_each_head(evaluate):
  head = ensembles.Ensemble(K, 'IDENTITY')
  random = np.random.default_rng(0)
  outputs = make_outputs('ensemble', random)
  batch = types.SimpleNamespace(action=tf.zeros(B, tf.int32), seed=None)
  p, values = np.eye(3)[random.integers(3, size=B)], random.normal(size=(B, 3))
  weighted = heads.Returns(*map(tf.constant, (values, p)))
  mean = heads.Returns(tf.constant((p * values).sum(1, keepdims=True)))
  outputs.q_heads = tf.constant(outputs.q_heads)
  losses = [head.loss(outputs, batch, t) for t in (weighted, mean)]
  np.testing.assert_allclose(*evaluate(losses))
  with pytest.raises(ValueError, match=r'targets \(7, 3\); expected \(n, 1\)'):
    head.loss(outputs, batch, weighted._replace(probabilities=None))
