import functools
import glob

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import ensembles, gym_helpers, multi_head_dqn_agent
from batch_rl.tests import equations

GAMMA = 0.9


@pytest.fixture(scope='module')
def make_multi_head(make_agent):
  def make(**kwargs):
    kwargs = {'num_heads': 4, 'gamma': GAMMA, **kwargs}
    return make_agent(
      multi_head_dqn_agent.MultiHeadDQNAgent,
      network=gym_helpers.CartpoleMultiHeadQNetwork,
      **kwargs,
    )

  return make


@pytest.fixture(scope='module')
def shared_agents(make_multi_head, tmp_path_factory):
  """Returns a function that builds one agent of 3 heads for each strategy."""

  @functools.cache
  def make(strategy):
    directory = tmp_path_factory.mktemp('summaries')
    with tf.Graph().as_default():
      tf.compat.v1.set_random_seed(7)
      return make_multi_head(
        num_actions=5,
        num_heads=3,
        transform_strategy=strategy,
        summary_writer=str(directory),
      )

  return make


@pytest.mark.parametrize('shape', [(1, 1), (3, 5), (4, 200)])
@pytest.mark.parametrize('num_mixtures', [1, 3])
def test_mix_heads(evaluate, shape, num_mixtures):
  rng = np.random.default_rng(0)
  q_heads = rng.normal(size=(2, *shape)).astype(np.float32)
  mixtures = rng.uniform(size=(shape[1], num_mixtures)).astype(np.float32)
  for values in (q_heads, q_heads[0]):
    mixed = ensembles.mix_heads(tf.constant(values), tf.constant(mixtures))
    expected = values.astype(np.float64) @ mixtures.astype(np.float64)
    np.testing.assert_allclose(evaluate(mixed), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('shape', [(1, 1), (3, 5), (32, 200)])
@pytest.mark.parametrize('one_target', [False, True])
def test_ensemble_loss(evaluate, shape, one_target):
  rng = np.random.default_rng(1)
  estimates = rng.normal(0, 2, shape).astype(np.float32)
  targets = rng.normal(0, 2, (shape[0], 1 if one_target else shape[1]))
  targets = targets.astype(np.float32)
  loss = ensembles.ensemble_loss(tf.constant(estimates), tf.constant(targets))
  errors = targets.astype(np.float64) - estimates.astype(np.float64)
  expected = [np.mean([equations.huber(u) for u in row]) for row in errors]
  np.testing.assert_allclose(evaluate(loss), expected, rtol=1e-5)


def test_rem_uses_one_mixture_for_online_and_target_heads(
  make_multi_head, make_batch
):
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


def test_rem_draws_a_mixture_for_each_training_step(shared_agents):
  agent = shared_agents('STOCHASTIC')
  [loss] = agent.optimizer.losses

  def loss_at(step):
    agent.training_steps = step
    return float(agent._sess.run(loss))

  losses = [loss_at(step) for step in range(0, 20, 4)]
  assert len(set(losses)) == 5
  # A resumed run draws the same mixture at the same step.
  assert loss_at(8) == losses[2]


@pytest.mark.parametrize('strategy', multi_head_dqn_agent.TRANSFORM_STRATEGIES)
def test_updates_change_the_online_network_alone(shared_agents, strategy):
  agent = shared_agents(strategy)
  agent.training_steps = 0
  [loss] = agent.optimizer.losses
  target = agent.target_convnet.trainable_variables
  next_q = agent._replay_next_target_net_outputs.q_heads
  online = agent.online_convnet.trainable_variables
  with loss.graph.as_default():
    assert tf.gradients(loss, target) == [None] * len(target)
    assert tf.gradients(loss, next_q) == [None]
    assert all(gradient is not None for gradient in tf.gradients(loss, online))
  before = agent._sess.run(loss)
  for _ in range(30):
    agent._sess.run(agent._train_op)
  assert agent._sess.run(loss) < 0.5 * before
  # Then its weights are copied.
  assert len(online) == len(target) == 6
  agent._sess.run(agent._sync_qt_ops)
  online, target = agent._sess.run([online, target])
  for of_online, of_target in zip(online, target, strict=True):
    np.testing.assert_array_equal(of_online, of_target)


def test_acts_on_the_mean_of_the_heads(shared_agents, monkeypatch):
  agent = shared_agents('IDENTITY')
  monkeypatch.setattr(agent, 'eval_mode', True)
  by_head = set()
  for observation in np.random.default_rng(0).uniform(-2, 2, (30, 4)):
    action = agent.begin_episode(observation)
    q_heads = agent._sess.run(
      agent._net_outputs.q_heads, {agent.state_ph: agent.state}
    )
    assert action == q_heads[0].mean(axis=1).argmax()
    by_head.update(action == q_heads[0].argmax(axis=0))
  assert by_head == {True, False}  # A single head acts differently.


def test_loss_is_a_scalar_and_summarised(shared_agents):
  agent = shared_agents('IDENTITY')
  [loss] = agent.optimizer.losses
  assert loss.shape == ()
  # As Dopamine does: alone. The batch is fixed, so the loss stays the same.
  summaries = agent._sess.run(agent._merged_summaries)
  summary = tf.compat.v1.Summary.FromString(summaries)
  [scalar] = [v for v in summary.value if v.tag == 'Losses/Loss']
  expected = agent._sess.run(loss)
  assert scalar.simple_value == pytest.approx(expected, rel=1e-6)
  directory = agent.summary_writer.get_logdir()
  assert glob.glob(f'{directory}/events*')


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
