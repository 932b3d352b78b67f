"""C51 on a fixed replay."""

import gin

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import rainbow_agent


@gin.configurable
class FixedReplayRainbowAgent(
  fixed_replay_agent.FixedReplayAgentMixin, rainbow_agent.RainbowAgent
):
  """Offline C51 (Bellemare et al., 2017): one-step Rainbow, uniform replay.

  Learns probabilities of the returns z_j by the cross-entropy with the distribution of
  r + gamma^n z_j, which has the target network's probabilities of its greedy action in
  s', projected onto the z_j.

  Takes the arguments of `RainbowAgent`, `ValueAgent` and `FixedReplayAgentMixin`.

  Raises:
    ValueError: If `replay_scheme` is not 'uniform'.
  """
