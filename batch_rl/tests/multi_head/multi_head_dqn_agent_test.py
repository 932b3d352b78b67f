import glob

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import (
  atari_helpers,
  gym_helpers,
  multi_head_dqn_agent,
)

GAMMA = 0.9


@pytest.fixture
def make_multi_head(make_agent):
  def make(**kwargs):
    kwargs = {'num_heads': 4, 'gamma': GAMMA, **kwargs}
    return make_agent(
      multi_head_dqn_agent.MultiHeadDQNAgent,
      network=gym_helpers.CartpoleMultiHeadQNetwork,
      **kwargs,
    )

  return make


def huber(error):
  """Nature DQN's clipped error, as a loss."""
  error = abs(error)
  return 0.5 * error**2 if error <= 1 else error - 0.5


def mix(q, weights):
  return sum(float(w) * float(q_k) for w, q_k in zip(weights, q, strict=True))


def reference_loss(batch, q, next_q, strategy, mixtures, discount=GAMMA):
  """The loss in float64, one number at a time, from the paper's definitions.

  Args:
    batch: actions, rewards and terminals, (batch,).
    q: online heads, (batch, num_actions, num_heads).
    next_q: target heads at the next states, likewise.
    strategy: transform strategy.
    mixtures: (num_heads, num_mixtures), for STOCHASTIC.
    discount: gamma to the power of n.
  """
  q, next_q = np.asarray(q, float), np.asarray(next_q, float)
  _, num_actions, num_heads = q.shape
  losses = []
  for i, action in enumerate(batch['actions']):
    if strategy == 'STOCHASTIC':
      pairs = [
        (
          mix(q[i, action], weights),
          max(mix(next_q[i, b], weights) for b in range(num_actions)),
        )
        for weights in np.asarray(mixtures, float).T
      ]
    elif strategy == 'AVERAGE':
      best = max(sum(next_q[i, b]) / num_heads for b in range(num_actions))
      pairs = [(q[i, action, k], best) for k in range(num_heads)]
    else:
      pairs = [
        (q[i, action, k], max(next_q[i, b, k] for b in range(num_actions)))
        for k in range(num_heads)
      ]
    for estimate, next_value in pairs:
      target = float(batch['rewards'][i])
      if not batch['terminals'][i]:
        target += discount * next_value
      losses.append(huber(target - estimate))
  return sum(losses) / len(losses)


@pytest.mark.parametrize('shape', [(1, 1), (3, 5), (4, 200)])
@pytest.mark.parametrize('num_mixtures', [1, 3])
def test_mix_heads(evaluate, shape, num_mixtures):
  rng = np.random.default_rng(0)
  q_heads = rng.normal(size=(2, *shape)).astype(np.float32)
  mixtures = rng.uniform(size=(shape[1], num_mixtures)).astype(np.float32)
  expected = [
    [[mix(q, weights) for weights in mixtures.T] for q in state]
    for state in q_heads
  ]
  for values, reference in ((q_heads, expected), (q_heads[0], expected[0])):
    mixed = multi_head_dqn_agent.mix_heads(
      tf.constant(values), tf.constant(mixtures)
    )
    np.testing.assert_allclose(evaluate(mixed), reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('shape', [(1, 1), (3, 5), (32, 200)])
@pytest.mark.parametrize('one_target', [False, True])
def test_ensemble_loss(evaluate, shape, one_target):
  rng = np.random.default_rng(1)
  estimates = rng.normal(0, 2, shape).astype(np.float32)
  targets = rng.normal(0, 2, (shape[0], 1 if one_target else shape[1]))
  targets = targets.astype(np.float32)
  loss = multi_head_dqn_agent.ensemble_loss(
    tf.constant(estimates), tf.constant(targets)
  )
  expected = []
  for i in range(shape[0]):
    losses = [
      huber(float(targets[i, 0 if one_target else k]) - float(estimates[i, k]))
      for k in range(shape[1])
    ]
    expected.append(sum(losses) / len(losses))
  np.testing.assert_allclose(evaluate(loss), expected, rtol=1e-5)


@pytest.mark.parametrize('num_heads', [1, 4])
@pytest.mark.parametrize(
  ('strategy', 'num_mixtures'),
  [('IDENTITY', 1), ('AVERAGE', 1), ('STOCHASTIC', 1), ('STOCHASTIC', 3)],
)
def test_loss_is_that_of_the_paper(
  make_multi_head, make_batch, monkeypatch, num_heads, strategy, num_mixtures
):
  mixtures = np.random.default_rng(5).uniform(size=(num_heads, num_mixtures))
  mixtures = (mixtures / mixtures.sum(axis=0)).astype(np.float32)
  draws = []

  def draw(num_rows, num_columns, seed):
    assert seed.shape == (2,)
    draws.append((num_rows, num_columns))
    return tf.constant(mixtures)

  monkeypatch.setattr(atari_helpers, 'random_stochastic_matrix', draw)
  agent = make_multi_head(
    num_heads=num_heads,
    transform_strategy=strategy,
    num_convex_combinations=num_mixtures,
    update_horizon=3,
  )
  [loss] = agent.optimizer.losses
  loss, q_heads, next_q_heads = agent._sess.run(
    [
      loss,
      agent._replay_net_outputs.q_heads,
      agent._replay_next_target_net_outputs.q_heads,
    ]
  )
  expected = reference_loss(
    make_batch(), q_heads, next_q_heads, strategy, mixtures, GAMMA**3
  )
  assert loss == pytest.approx(expected, rel=1e-5)
  if strategy == 'STOCHASTIC':
    assert draws == [(num_heads, num_mixtures)]
  else:
    assert not draws


def test_rem_mixes_online_and_target_heads_alike(make_multi_head, make_batch):
  # With one action, no reward, gamma 1, s' = s and target = online weights the
  # error is sum_k (w_k - w'_k) Q_k: zero if and only if w' = w.
  batch = make_batch(num_actions=1)
  batch['next_states'] = batch['states']
  batch['rewards'] = np.zeros_like(batch['rewards'])
  batch['terminals'] = np.zeros_like(batch['terminals'])
  agent = make_multi_head(
    num_actions=1, batch=batch, transform_strategy='STOCHASTIC', gamma=1.0
  )
  [loss] = agent.optimizer.losses
  agent._sess.run(agent._sync_qt_ops)
  q_heads = agent._sess.run(agent._replay_net_outputs.q_heads)
  assert q_heads.std(axis=2).min() > 0.01
  for _ in range(5):
    assert agent._sess.run(loss) == pytest.approx(0, abs=1e-12)


def test_rem_draws_a_mixture_for_each_training_step(make_multi_head):
  agent = make_multi_head(transform_strategy='STOCHASTIC')
  [loss] = agent.optimizer.losses

  def loss_at(step):
    agent.training_steps = step
    return float(agent._sess.run(loss))

  losses = [loss_at(step) for step in range(0, 20, 4)]
  assert len(set(losses)) == 5
  # A run that resumes at a step draws what it would have drawn there.
  assert loss_at(8) == losses[2]


@pytest.mark.parametrize('strategy', multi_head_dqn_agent.TRANSFORM_STRATEGIES)
class TestTraining:
  def test_no_gradient_flows_into_targets(self, make_multi_head, strategy):
    agent = make_multi_head(transform_strategy=strategy)
    [loss] = agent.optimizer.losses
    target = agent.target_convnet.trainable_variables
    assert tf.gradients(loss, target) == [None] * len(target)
    next_q = agent._replay_next_target_net_outputs.q_heads
    assert tf.gradients(loss, next_q) == [None]
    online = agent.online_convnet.trainable_variables
    assert all(gradient is not None for gradient in tf.gradients(loss, online))

  def test_updates_lower_the_loss(self, make_multi_head, strategy):
    agent = make_multi_head(transform_strategy=strategy)
    [loss] = agent.optimizer.losses
    before = agent._sess.run(loss)
    for _ in range(30):
      agent._sess.run(agent._train_op)
    assert agent._sess.run(loss) < 0.5 * before


def test_sync_copies_every_variable(make_multi_head):
  agent = make_multi_head()
  agent._sess.run(agent._train_op)
  agent._sess.run(agent._sync_qt_ops)
  online, target = agent._sess.run(
    [
      agent.online_convnet.trainable_variables,
      agent.target_convnet.trainable_variables,
    ]
  )
  assert len(online) == 6
  for of_online, of_target in zip(online, target, strict=True):
    np.testing.assert_array_equal(of_online, of_target)


def test_acts_on_the_mean_of_the_heads(make_multi_head):
  agent = make_multi_head(num_actions=5, num_heads=3, eval_mode=True)
  by_head = set()
  for observation in np.random.default_rng(0).uniform(-2, 2, (30, 4)):
    action = agent.begin_episode(observation)
    q_heads = agent._sess.run(
      agent._net_outputs.q_heads, {agent.state_ph: agent.state}
    )
    assert action == q_heads[0].mean(axis=1).argmax()
    by_head.update(action == q_heads[0].argmax(axis=0))
  assert by_head == {True, False}  # else a single head would do as well


def test_loss_is_a_scalar_and_summarised(make_multi_head, tmp_path):
  agent = make_multi_head(summary_writer=str(tmp_path))
  [loss] = agent.optimizer.losses
  assert loss.shape == ()
  value, summaries = agent._sess.run([loss, agent._merged_summaries])
  summary = tf.compat.v1.Summary.FromString(summaries)
  [scalar] = [v for v in summary.value if v.tag == 'Losses/HuberLoss']
  assert scalar.simple_value == value
  assert glob.glob(str(tmp_path / 'events*'))


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      {'transform_strategy': 'MEAN'},
      "'MEAN' is none of IDENTITY, AVERAGE, STOCHASTIC",
    ),
    ({'num_heads': 0}, 'num_heads=0'),
    (
      {'transform_strategy': 'STOCHASTIC', 'num_convex_combinations': 0},
      'num_convex_combinations=0',
    ),
    ({'num_convex_combinations': 2}, 'num_convex_combinations=2.*IDENTITY'),
    (
      {'transform_strategy': 'AVERAGE', 'num_convex_combinations': 2},
      'num_convex_combinations=2.*AVERAGE',
    ),
  ],
)
def test_bad_arguments(make_multi_head, arguments, message):
  with pytest.raises(ValueError, match=message):
    make_multi_head(**arguments)


def test_gin_bindings_take_effect(make_agent):
  gin.parse_config("""
      MultiHeadDQNAgent.network = @CartpoleMultiHeadQNetwork
      MultiHeadDQNAgent.num_heads = 5
      MultiHeadDQNAgent.transform_strategy = 'STOCHASTIC'
      MultiHeadDQNAgent.num_convex_combinations = 2
      MultiHeadDQNAgent.gamma = 0.5
      DQNAgent.target_update_period = 123
  """)
  agent = make_agent(multi_head_dqn_agent.MultiHeadDQNAgent)
  assert agent._net_outputs.q_heads.shape.as_list() == [1, 3, 5]
  assert agent.transform_strategy == 'STOCHASTIC'
  assert agent.num_convex_combinations == 2
  assert agent.gamma == 0.5
  assert agent.target_update_period == 123


def test_defaults_are_those_of_the_paper():
  agent = multi_head_dqn_agent.MultiHeadDQNAgent(None, 6)
  assert agent._net_outputs.q_heads.shape.as_list() == [1, 6, 200]
  assert agent.transform_strategy == 'IDENTITY'
