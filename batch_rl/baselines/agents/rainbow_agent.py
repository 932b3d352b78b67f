"""C51 that logs its experience."""

import gin

from batch_rl.baselines.agents import logged_agent
from batch_rl.multi_head import rainbow_agent


@gin.configurable
class LoggedRainbowAgent(
  logged_agent.LoggedAgentMixin, rainbow_agent.RainbowAgent
):
  """C51 (Bellemare et al., 2017) that logs: one-step Rainbow, uniform replay.

  Takes the arguments of `RainbowAgent`, `ValueAgent` and `LoggedAgentMixin`.

  Raises:
    ValueError: If `replay_scheme` is not 'uniform'.
  """
