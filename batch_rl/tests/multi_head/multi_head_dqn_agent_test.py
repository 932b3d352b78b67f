"""Online agents with many heads, on a fixed batch."""

import functools

import gin
import numpy as np
import pytest

from batch_rl.multi_head import multi_head_dqn_agent
from batch_rl.tests import correctness


@pytest.fixture
def make_multi_head(make_agent):
  gin.parse_config("""
      MultiHeadDQNAgent.network = @CartpoleMultiHeadQNetwork
      MultiHeadDQNAgent.num_heads = 4
      DQNAgent.target_update_period = 123
  """)
  return functools.partial(make_agent, multi_head_dqn_agent.MultiHeadDQNAgent)


def test_rem_uses_one_mixture_for_online_and_target_heads(make_multi_head):
  # With one action, no reward, gamma 1, s' = s and target = online weights the
  # error is sum_k (w_k - w'_k) Q_k: zero if and only if w' = w.
  batch = correctness.make_batch(1, batch_size=5)._asdict()
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


def test_rem_learns_a_mixture_a_step(make_multi_head):
  agent = make_multi_head(num_actions=5, transform_strategy='STOCHASTIC')
  [loss] = agent.optimizer.losses
  assert loss.shape == ()
  assert agent._net_outputs.q_heads.shape.as_list() == [1, 5, 4]
  assert agent.target_update_period == 123  # by gin, as the network

  def loss_at(step):
    agent.training_steps = step
    return float(agent._sess.run(loss))

  losses = [loss_at(step) for step in range(0, 20, 4)]
  assert len(set(losses)) == 5
  # A resumed run draws the same mixture at the same step.
  assert loss_at(8) == losses[2]


@pytest.mark.parametrize(('strategy', 'count'), [('MEAN', 1), ('AVERAGE', 2)])
def test_bad_arguments(make_multi_head, strategy, count):
  with pytest.raises(ValueError, match=strategy):
    make_multi_head(transform_strategy=strategy, num_convex_combinations=count)
