"""Ensemble-DQN and REM with heads that log their experience."""

import gin

from batch_rl.baselines.agents import logged_agent
from batch_rl.multi_head import multi_head_dqn_agent


@gin.configurable
class LoggedMultiHeadDQNAgent(
  logged_agent.LoggedAgentMixin, multi_head_dqn_agent.MultiHeadDQNAgent
):
  """Ensemble-DQN and REM (Agarwal et al., 2020) with heads, and a log.

  The agent acts on the mean of the heads.
  Takes the arguments of `MultiHeadDQNAgent` and `LoggedAgentMixin`.
  """
