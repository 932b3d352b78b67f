"""C51 on a fixed replay."""

import gin
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.utils import gin_signatures


@gin.configurable
@gin_signatures.forwards_to(rainbow_agent.RainbowAgent, replay_scheme='uniform')
class FixedReplayRainbowAgent(
  fixed_replay_agent.FixedReplayAgentMixin, rainbow_agent.RainbowAgent
):
  """Offline C51 (Bellemare et al., 2017): one-step Rainbow, uniform replay.

  Takes the arguments of `RainbowAgent` and `FixedReplayAgentMixin`.
  """
