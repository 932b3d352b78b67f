"""DQN that logs its experience."""

import gin

from batch_rl.agents import value_agent
from batch_rl.baselines.agents import logged_agent


@gin.configurable
class LoggedDQNAgent(logged_agent.LoggedAgentMixin, value_agent.ValueAgent):
  """DQN (Mnih et al., 2015) that logs its experience.

  Takes the arguments of `ValueAgent`, `DQNAgent` and `LoggedAgentMixin`.
  """
