"""DQN that logs its experience."""

import gin
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.agents import loss_agent
from batch_rl.baselines.agents import logged_agent


@gin.configurable
class LoggedDQNAgent(logged_agent.LoggedAgentMixin, dqn_agent.DQNAgent):
  """DQN (Mnih et al., 2015) that logs its experience.

  Takes the arguments of `DQNAgent` and `LoggedAgentMixin`.
  """

  # Dopamine's finds weights by their names, which functional networks lack.
  _build_sync_op = loss_agent.LossAgent._build_sync_op
