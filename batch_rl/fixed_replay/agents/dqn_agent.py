"""DQN on a fixed replay."""

import gin
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.utils import gin_signatures


@gin.configurable
@gin_signatures.forwards_to(dqn_agent.DQNAgent)
class FixedReplayDQNAgent(
  fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent
):
  """Offline DQN (Mnih et al., 2015).

  Takes the arguments of `DQNAgent` and `FixedReplayAgentMixin`.
  """
