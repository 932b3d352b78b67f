"""DQN on a fixed replay."""

import gin

from batch_rl.agents import value_agent
from batch_rl.fixed_replay.agents import fixed_replay_agent


@gin.configurable
class FixedReplayDQNAgent(
  fixed_replay_agent.FixedReplayAgentMixin, value_agent.ValueAgent
):
  """Offline DQN (Mnih et al., 2015).

  Learns Q(s, a) by the Huber loss (delta 1) of r + gamma^n max_a' Q'(s', a') - Q(s, a),
  with the target network Q'; the second term is 0 if the episode ends. Other parts make
  other agents, see `ValueAgent`.

  Takes the arguments of `ValueAgent`, `DQNAgent` and `FixedReplayAgentMixin`.
  """
