"""QR-DQN that logs its experience."""

import gin

from batch_rl.baselines.agents import logged_agent
from batch_rl.multi_head import quantile_agent


@gin.configurable
class LoggedQuantileAgent(
  logged_agent.LoggedAgentMixin, quantile_agent.QuantileAgent
):
  """QR-DQN (Dabney et al., 2018) that logs its experience.

  Takes the arguments of `QuantileAgent` and `LoggedAgentMixin`.
  """
