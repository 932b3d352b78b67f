"""IQN on a fixed replay."""

import gin

from batch_rl.agents import value_agent
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import implicit_quantiles


@gin.configurable
class FixedReplayImplicitQuantileAgent(
  fixed_replay_agent.FixedReplayAgentMixin, value_agent.ValueAgent
):
  """Offline IQN, implicit quantile networks (Dabney et al., 2018).

  Learns quantiles Z_tau(s, a) of the return by the quantile Huber losses against the
  samples r + gamma^n Z'_tau'(s', a'), where Z' is the target network, a' its action of
  the highest mean, and tau, tau' are drawn from U(0, 1) for each transition.
  `ImplicitQuantiles` has the number of draws and the network's input.

  Takes the arguments of `ValueAgent`, `DQNAgent` and `FixedReplayAgentMixin`.
  """

  def own_head(self) -> implicit_quantiles.ImplicitQuantiles:
    """Returns the quantiles at drawn levels."""
    return implicit_quantiles.ImplicitQuantiles()
