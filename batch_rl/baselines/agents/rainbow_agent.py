"""C51 that logs its experience."""

import gin
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.agents import loss_agent
from batch_rl.agents import replay_scheme as scheme_lib
from batch_rl.baselines.agents import logged_agent
from batch_rl.multi_head import plain_networks


@gin.configurable
class LoggedRainbowAgent(
  logged_agent.LoggedAgentMixin,
  plain_networks.RainbowNetworks,
  rainbow_agent.RainbowAgent,
):
  """C51 (Bellemare et al., 2017) that logs: one-step Rainbow, uniform replay.

  Takes the arguments of `RainbowAgent` and `LoggedAgentMixin`.

  Raises:
    ValueError: If `replay_scheme` is not 'uniform'.
  """

  # Dopamine's finds weights by their names, which functional networks lack.
  _build_sync_op = loss_agent.LossAgent._build_sync_op

  def __init__(self, *args, replay_scheme='uniform', **kwargs):
    scheme_lib.check(replay_scheme)
    super().__init__(*args, replay_scheme=replay_scheme, **kwargs)
