"""Arguments of agents with many heads; `equations_test` checks what they learn."""

import gin
import numpy as np
import pytest

from batch_rl.agents import terms
from batch_rl.multi_head import multi_head_dqn_agent


def test_arguments_by_gin_and_bad_ones(make_agent):
  gin.parse_config("""
      MultiHeadDQNAgent.network = @CartpoleMultiHeadQNetwork
      MultiHeadDQNAgent.num_heads = 4
      DQNAgent.target_update_period = 123
  """)

  def make(strategy):
    return make_agent(
      multi_head_dqn_agent.MultiHeadDQNAgent,
      transform_strategy=strategy,
      num_convex_combinations=2,
      terms=[terms.Imitation()],
    )

  for strategy, message in (
    ('MEAN', "'MEAN'; choose AVERAGE, IDENT"),
    ('AVERAGE', '2 mixtures have no .* AVERAGE'),
    ('IDENTITY', '2 mixtures have no .* IDENTITY'),
  ):
    with pytest.raises(ValueError, match=message):
      make(strategy)
  agent = make('STOCHASTIC')
  assert agent._net_outputs.q_heads.shape.as_list() == [1, 3, 4]
  assert agent.target_update_period == 123
  # The update also trains the network of the term.
  kernel = agent.networks['behaviour'].weights[0]
  calls = kernel, agent._train_op, kernel
  before, _, after = map(agent._sess.run, calls)
  assert np.any(before != after)
