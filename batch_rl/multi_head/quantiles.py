"""Quantiles of the return: the head of QR-DQN (Dabney et al., 2018)."""

from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import graph_checks, heads
from batch_rl.agents.heads import Returns
from batch_rl.multi_head import networks


@gin.configurable
class Quantiles(heads.Head):
  """Quantiles of the return, by quantile regression (QR-DQN, Algorithm 1).

  Args:
    num_atoms: Number of quantiles, N in the paper.
    kappa: Largest error with a quadratic Huber loss, in units of the return; 0 for
      the quantile regression loss.
  """

  reads = ('quantile_values',)

  def __init__(self, num_atoms: int = 200, kappa: float = 1.0):
    self.num_atoms = self.num_outputs = num_atoms
    self.kappa = kappa

  def widen(self, network: heads.Network) -> heads.Network:
    """Returns a network with `quantile_values`, on the torso of a plain one."""
    return networks.with_head(network, networks.Quantile)

  def returns(self, outputs: Any, batch: Any) -> Returns:
    """Returns the quantiles, (n, num_actions, num_atoms)."""
    return Returns(graph_checks.field_of(outputs, 'quantile_values'))

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns the quantile Huber losses against all targets."""
    quantiles = self.returns(outputs, batch).of_actions(batch.action).values
    return quantile_huber_loss(
      quantiles, targets.values, self.kappa, targets.probabilities
    )


def quantile_huber_loss(
  quantiles: tf.Tensor,
  targets: tf.Tensor,
  kappa: float,
  probabilities: tf.Tensor | None = None,
  taus: tf.Tensor | None = None,
) -> tf.Tensor:
  """Computes the loss of QR-DQN's Algorithm 1, with rho of Eq. 10.

  sum_i mean_j |tau_i - 1{u_ij < 0}| L_kappa(u_ij), with u_ij = targets_j -
  quantiles_i, tau_i = (i + 1/2) / num_atoms for i = 0, 1, ... (Lemma 2) and L
  the Huber loss of Eq. 9. For kappa = 0, L(u) = |u|.

  Args:
    quantiles: Predicted quantiles, float32 (batch, num_atoms).
    targets: Samples of the Bellman target, float32 (batch, num_samples).
    kappa: Largest error with a quadratic loss.
    probabilities: Probabilities of the samples, in their shape, in the place of the
      mean over j; None for equal ones.
    taus: Quantile levels tau_i, float32 (batch, num_atoms); None for those of
      QR-DQN.

  Returns:
    The losses, float32 (batch,).
  """
  if taus is None:
    taus = midpoints(quantiles.shape.as_list()[1])[None, :]
  theta, taus = tf.cast(quantiles, tf.float64), tf.cast(taus, tf.float64)
  order = tf.argsort(targets)
  x = tf.gather(tf.cast(targets, tf.float64), order, batch_dims=1)
  p = tf.ones_like(x) / tf.cast(tf.shape(x)[1], tf.float64)
  if probabilities is not None:
    p = tf.gather(tf.cast(probabilities, tf.float64), order, batch_dims=1)
  # The loss is linear or quadratic in the error between the bounds -kappa, 0 and kappa. So
  # sums over the sorted samples suffice: of their probabilities, first and second moments.
  sums = tf.cumsum(tf.stack([p, p * x, p * x**2], axis=2), axis=1)
  sums = tf.pad(sums, [[0, 0], [1, 0], [0, 0]])
  bounds = tf.concat([theta - kappa, theta, theta + kappa], axis=1)
  sums_below = tf.gather(sums, tf.searchsorted(x, bounds), batch_dims=1)
  low, middle, high = tf.split(sums_below, 3, axis=1)

  def linear(part, sign):
    p, px, _ = tf.unstack(part, axis=2)
    return (kappa or 1.0) * (sign * (px - theta * p) - 0.5 * kappa * p)

  def quadratic(part):
    p, px, pxx = tf.unstack(part, axis=2)
    return 0.5 * (pxx - 2 * theta * px + theta**2 * p)

  below = linear(low, -1) + quadratic(middle - low)
  above = linear(sums[:, -1:] - high, 1) + quadratic(high - middle)
  losses = tf.reduce_sum((1 - taus) * below + taus * above, axis=1)
  return tf.cast(losses, tf.float32)


def midpoints(count: int) -> tf.Tensor:
  """Returns the midpoints of `count` equal parts of [0, 1], float32 (count,)."""
  return (tf.range(count, dtype=tf.float32) + 0.5) / count
