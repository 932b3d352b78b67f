"""QR-DQN on a fixed replay."""

import gin

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import quantile_agent


@gin.configurable
class FixedReplayQuantileAgent(
  fixed_replay_agent.FixedReplayAgentMixin, quantile_agent.QuantileAgent
):
  """Offline QR-DQN (Dabney et al., 2018).

  Takes the arguments of `QuantileAgent` and `FixedReplayAgentMixin`.
  """
