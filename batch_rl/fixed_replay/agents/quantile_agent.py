"""QR-DQN on a fixed replay."""

import gin

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import quantile_agent


@gin.configurable
class FixedReplayQuantileAgent(
  fixed_replay_agent.FixedReplayAgentMixin, quantile_agent.QuantileAgent
):
  """Offline QR-DQN (Dabney et al., 2018).

  Learns quantiles theta_i(s, a) of the return by the quantile Huber losses against the
  samples r + gamma^n theta'_j(s', a'), where theta' are the target network's quantiles,
  and a' is its greedy action.

  Takes the arguments of `QuantileAgent` and `FixedReplayAgentMixin`.
  """
