import functools
import glob

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import gym_helpers, multi_head_dqn_agent
from batch_rl.tests import cartpole

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


def test_a_summary_is_not_an_update(shared_agents):
  """Dopamine writes summaries in a `session.run` of their own."""
  agent = shared_agents('IDENTITY')
  before = cartpole.weights(agent, 'Online')
  agent._sess.run(agent._merged_summaries)
  np.testing.assert_array_equal(cartpole.weights(agent, 'Online'), before)
  agent._sess.run(agent._train_op)
  assert not np.array_equal(cartpole.weights(agent, 'Online'), before)


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
