"""QR-DQN (Dabney et al., 2018): quantile regression of the return."""

from collections.abc import Callable
from typing import Any

import gin
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.agents import loss_agent
from batch_rl.agents import replay_scheme as scheme_lib
from batch_rl.multi_head import atari_helpers, plain_networks


@gin.configurable
class QuantileAgent(loss_agent.LossAgent, dqn_agent.DQNAgent):
  """A DQN that learns quantiles of the return (QR-DQN, Algorithm 1).

  Both acting and the greedy action of the target use the mean of the quantiles.
  """

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    kappa: float = 1.0,
    network: Callable[..., tf.keras.Model] = atari_helpers.QuantileNetwork,
    num_atoms: int = 200,
    seed: int | None = None,
    replay_scheme: str = 'uniform',
    **kwargs: Any,
  ):
    """Builds the agent's graph.

    Args:
      sess: TensorFlow session; None creates one.
      num_actions: Number of actions.
      kappa: Largest error with a quadratic Huber loss, in units of the return; 0 for
        the quantile regression loss.
      network: Function `(num_actions, num_atoms, name=...)` that builds a network,
        whose `call` returns a `QuantileNetworkType`, or another type with `q_values`
        and the quantiles as `logits`, as in 2020; or a plain network, see
        `plain_networks`.
      num_atoms: Number of quantiles, N in the paper.
      seed: Seed of the run; None for an unseeded agent.
      replay_scheme: 'uniform', the only one.
      **kwargs: Arguments of Dopamine's `DQNAgent`.

    Raises:
      ValueError: If `num_atoms` is below 1, `kappa` is negative, or `replay_scheme`
        is another one.
    """
    scheme_lib.check(replay_scheme)
    if num_atoms < 1:
      raise ValueError(f'num_atoms={num_atoms} must be at least 1.')
    if kappa < 0:
      raise ValueError(f'kappa={kappa} must not be negative.')
    self.num_atoms = num_atoms
    self._num_atoms = num_atoms  # For code written for the 2020 API.
    self.kappa = kappa
    super().__init__(sess, num_actions, network=network, seed=seed, **kwargs)

  def _create_network(self, name: str) -> tf.keras.Model:
    network = plain_networks.with_head(
      self.network, atari_helpers.Quantile, self.num_atoms
    )
    return network(self.num_actions, self.num_atoms, name=name)

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns the quantile Huber losses against r + gamma^n theta'_j(s', a').

    theta' are the target network's quantiles, a' is its greedy action.
    """
    quantiles = atari_helpers.select_actions(
      _quantiles(self.online(batch.state)), batch.action
    )
    targets = self._targets(
      self.target(batch.next_state), batch.reward, batch.terminal
    )
    return quantile_huber_loss(quantiles, targets, self.kappa)

  def _targets(self, next_outputs, rewards, terminals):
    """Returns the Bellman targets of the quantiles, float32 (n, num_atoms)."""
    next_quantiles = atari_helpers.select_actions(
      _quantiles(next_outputs), tf.argmax(next_outputs.q_values, axis=1)
    )
    return atari_helpers.bellman_targets(
      next_quantiles, rewards, terminals, self.cumulative_gamma
    )

  def _build_target_distribution(self):
    """Returns the targets of the replay memory's batch, float32 (n, num_atoms).

    For code written for the 2020 API: a `_build_train_op` of a subclass may call it.
    """
    return self._targets(
      self._replay_next_target_net_outputs,
      self._replay.rewards,
      self._replay.terminals,
    )


def _quantiles(outputs: Any) -> tf.Tensor:
  """Returns the quantiles of a network's outputs, (n, num_actions, num_atoms)."""
  quantiles = getattr(outputs, 'quantile_values', None)
  # For code written for the 2020 API, whose networks called them logits.
  return outputs.logits if quantiles is None else quantiles


def quantile_huber_loss(
  quantiles: tf.Tensor, targets: tf.Tensor, kappa: float
) -> tf.Tensor:
  """Computes the loss of QR-DQN's Algorithm 1, with rho of Eq. 10.

  sum_i mean_j |tau_i - 1{u_ij < 0}| L_kappa(u_ij), with u_ij = targets_j -
  quantiles_i, tau_i = (i + 1/2) / num_atoms for i = 0, 1, ... (Lemma 2) and L
  the Huber loss of Eq. 9. For kappa = 0, L(u) = |u|.

  Args:
    quantiles: Predicted quantiles, float32 (batch, num_atoms).
    targets: Samples of the Bellman target, float32 (batch, num_samples).
    kappa: Largest error with a quadratic loss.

  Returns:
    The losses, float32 (batch,).
  """
  num_atoms = quantiles.shape.as_list()[1]
  taus = (tf.range(num_atoms, dtype=tf.float32) + 0.5) / num_atoms
  errors = targets[:, None, :] - quantiles[:, :, None]
  huber = abs_errors = tf.abs(errors)
  if kappa > 0:
    huber = tf.where(
      abs_errors <= kappa,
      0.5 * tf.square(errors),
      kappa * (abs_errors - 0.5 * kappa),
    )
  weights = tf.abs(taus[:, None] - tf.cast(errors < 0, tf.float32))
  return tf.reduce_sum(tf.reduce_mean(weights * huber, axis=2), axis=1)
