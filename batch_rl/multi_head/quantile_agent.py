"""QR-DQN (Dabney et al., 2018): quantile regression of the return."""

from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import heads, value_agent
from batch_rl.multi_head import atari_helpers, quantiles


@gin.configurable
class QuantileAgent(value_agent.ValueAgent):
  """A DQN whose head is `Quantiles`; acts on the mean of the quantiles."""

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    kappa: float = 1.0,
    network: heads.Network = atari_helpers.QuantileNetwork,
    num_atoms: int = 200,
    replay_scheme: str = 'uniform',
    **kwargs: Any,
  ):
    """Builds the agent's graph.

    Args:
      sess: TensorFlow session; None creates one.
      num_actions: Number of actions.
      kappa: Largest error with a quadratic Huber loss, see `Quantiles`.
      network: Function `(num_actions, num_atoms, name=...)` that builds a network,
        whose `call` returns a `QuantileNetworkType`, or another type with `q_values`
        and the quantiles as `logits`, as in 2020; or a plain network, see `networks`.
      num_atoms: Number of quantiles, N in the paper.
      replay_scheme: Only 'uniform' is supported.
      **kwargs: Arguments of `ValueAgent`.

    Raises:
      ValueError: If `replay_scheme` is not 'uniform'.
    """
    self._check_replay_scheme(replay_scheme)
    self._replay_scheme, self._num_atoms = replay_scheme, num_atoms  # of 2020
    self.num_atoms = num_atoms
    self.kappa = kappa
    super().__init__(sess, num_actions, network=network, **kwargs)

  def own_head(self) -> quantiles.Quantiles:
    """Returns the quantiles of the return."""
    return quantiles.Quantiles(self.num_atoms, self.kappa)

  def _build_target_distribution(self):
    """Returns the targets of the replay memory's batch, float32 (n, num_atoms).

    For code written for the 2020 API: a `_build_train_op` of a subclass may call it.
    """
    return self.backup(self, self._replay_batch()).values

  _TARGETS = *value_agent.ValueAgent._TARGETS, _build_target_distribution
