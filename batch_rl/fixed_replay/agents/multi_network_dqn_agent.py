"""Ensemble-DQN and REM with separate networks on a fixed replay."""

import gin

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import multi_network_dqn_agent


@gin.configurable
class FixedReplayMultiNetworkDQNAgent(
  fixed_replay_agent.FixedReplayAgentMixin,
  multi_network_dqn_agent.MultiNetworkDQNAgent,
):
  """Offline Ensemble-DQN and REM, separate networks (Agarwal et al., 2020).

  Takes the arguments of `MultiNetworkDQNAgent` and `FixedReplayAgentMixin`.
  """
