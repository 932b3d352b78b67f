"""C51 that logs its experience."""

import gin
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.baselines.agents import logged_agent
from batch_rl.utils.user_code import gin_signatures


@gin.configurable
@gin_signatures.forwards_to(rainbow_agent.RainbowAgent, replay_scheme='uniform')
class LoggedRainbowAgent(
  logged_agent.LoggedAgentMixin, rainbow_agent.RainbowAgent
):
  """C51 (Bellemare et al., 2017) that logs: one-step Rainbow, uniform replay.

  Takes the arguments of `RainbowAgent` and `LoggedAgentMixin`.
  """
