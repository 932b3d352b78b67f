"""Ensemble-DQN and REM with many heads on a fixed replay."""

import gin

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import multi_head_dqn_agent


@gin.configurable
class FixedReplayMultiHeadDQNAgent(
  fixed_replay_agent.FixedReplayAgentMixin,
  multi_head_dqn_agent.MultiHeadDQNAgent,
):
  """Offline Ensemble-DQN and REM, many heads (Agarwal et al., 2020).

  Learns Q-functions Q_k by the Huber loss, averaged over k; REM learns random mixtures
  sum_k w_k Q_k. `multi_head.ensembles.Ensemble` has the targets.

  Takes the arguments of `MultiHeadDQNAgent` and `FixedReplayAgentMixin`.
  """
