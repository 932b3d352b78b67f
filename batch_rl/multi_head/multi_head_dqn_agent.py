"""DQN with many heads: Ensemble-DQN, Averaged Ensemble-DQN and REM."""

from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import heads, value_agent
from batch_rl.multi_head import atari_helpers, ensembles


@gin.configurable
class MultiHeadDQNAgent(value_agent.ValueAgent):
  """A DQN whose head is an `Ensemble`; acts on the mean of the heads."""

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    num_heads: int = 200,
    transform_strategy: str = 'IDENTITY',
    num_convex_combinations: int = 1,
    network: heads.Network = atari_helpers.MultiHeadQNetwork,
    **kwargs: Any,
  ):
    """Builds the agent's graph.

    Args:
      sess: TensorFlow session; None creates one.
      num_actions: Number of actions.
      num_heads: Number of heads.
      transform_strategy: One of 'IDENTITY', 'AVERAGE' and 'STOCHASTIC' (REM), see
        `Ensemble`.
      num_convex_combinations: Number of mixtures per batch; above 1 only with
        STOCHASTIC.
      network: Function `(num_actions, num_heads, name=...)` that builds a network,
        whose `call` returns a `MultiHeadNetworkType`; or a plain network, see
        `networks`.
      **kwargs: Arguments of `ValueAgent`.

    Raises:
      ValueError: If `Ensemble` refuses an argument.
    """
    self.num_heads = num_heads
    self.transform_strategy = transform_strategy
    self.num_convex_combinations = num_convex_combinations
    super().__init__(sess, num_actions, network=network, **kwargs)

  def own_head(self) -> ensembles.Ensemble:
    """Returns the ensemble on one torso."""
    return ensembles.Ensemble(
      self.num_heads, self.transform_strategy, self.num_convex_combinations
    )

  _build_target_q_op = ensembles.build_targets
  _TARGETS = *value_agent.ValueAgent._TARGETS, _build_target_q_op
