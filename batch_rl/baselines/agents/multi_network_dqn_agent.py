"""Ensemble-DQN and REM with separate networks that log their experience."""

import gin

from batch_rl.baselines.agents import logged_agent
from batch_rl.multi_head import multi_network_dqn_agent


@gin.configurable
class LoggedMultiNetworkDQNAgent(
  logged_agent.LoggedAgentMixin, multi_network_dqn_agent.MultiNetworkDQNAgent
):
  """Ensemble-DQN and REM (Agarwal et al., 2020) with separate networks and a log.

  It acts as `MultiNetworkDQNAgent` does, by default on one random mixture throughout an
  episode.
  Takes the arguments of `MultiNetworkDQNAgent` and `LoggedAgentMixin`.
  """
