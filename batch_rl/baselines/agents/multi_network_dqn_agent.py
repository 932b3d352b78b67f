"""Ensemble-DQN and REM with separate networks that logs its experience."""

import gin

from batch_rl.baselines.agents import logged_agent
from batch_rl.multi_head import multi_network_dqn_agent
from batch_rl.utils import gin_signatures


@gin.configurable
@gin_signatures.forwards_to(multi_network_dqn_agent.MultiNetworkDQNAgent)
class LoggedMultiNetworkDQNAgent(
  logged_agent.LoggedAgentMixin, multi_network_dqn_agent.MultiNetworkDQNAgent
):
  """Ensemble-DQN and REM, separate networks (Agarwal et al., 2020), that log.

  Acts on one random mixture an episode.

  See `LoggedAgentMixin` for the arguments that MultiNetworkDQNAgent does not have.
  """
