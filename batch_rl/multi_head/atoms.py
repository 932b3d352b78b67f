"""Atoms of the return: the heads of C51, two-hot regression and HL-Gauss."""

from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import heads
from batch_rl.agents.heads import Returns
from batch_rl.multi_head import networks


@gin.configurable
class Categorical(heads.Head):
  """Probabilities of fixed returns z_j (C51, Bellemare et al., 2017).

  Args:
    num_atoms: Number of atoms.
    vmin: Least return; None for -vmax.
    vmax: Largest return.

  Raises:
    ValueError: If there are fewer than two atoms, or `vmin` is not below `vmax`.
  """

  reads = ('logits', 'probabilities')

  def __init__(
    self, num_atoms: int = 51, vmin: float | None = None, vmax: float = 10.0
  ):
    vmin = -vmax if vmin is None else vmin
    if num_atoms < 2 or not vmin < vmax:
      raise ValueError(
        f'num_atoms={num_atoms}, vmin={vmin}, vmax={vmax}: give at least two atoms, '
        'and vmin below vmax.'
      )
    self.num_atoms = self.num_outputs = num_atoms
    self.vmin, self.vmax = float(vmin), float(vmax)

  @property
  def support(self) -> tf.Tensor:
    """Returns the atoms z_j, float32 (num_atoms,)."""
    return tf.linspace(self.vmin, self.vmax, self.num_atoms)

  @property
  def arguments(self) -> tuple[Any, ...]:
    """Number of atoms, and the atoms."""
    return self.num_atoms, self.support

  def widen(self, network: heads.Network) -> heads.Network:
    """Returns a network with `logits` and `probabilities`."""
    return networks.with_head(network, networks.Categorical)

  def returns(self, outputs: Any, batch: Any) -> Returns:
    """Returns atoms and their probabilities, (n, num_actions, num_atoms)."""
    probabilities = outputs.probabilities
    atoms = tf.broadcast_to(self.support, tf.shape(probabilities))
    return Returns(tf.ensure_shape(atoms, probabilities.shape), probabilities)

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns cross-entropies with the projected targets (Algorithm 1, Eq. 7)."""
    values, probabilities = targets
    if probabilities is None:
      probabilities = tf.ones_like(values) / values.shape.as_list()[1]
    labels = project(values, probabilities, self.support)
    return self._cross_entropies(outputs, batch, labels)

  def _cross_entropies(self, outputs, batch, labels):
    logits = tf.gather(outputs.logits, batch.action, batch_dims=1)
    return tf.nn.softmax_cross_entropy_with_logits(
      labels=tf.stop_gradient(labels), logits=logits
    )


@gin.configurable
class TwoHot(Categorical):
  """Q(s, a), by classification of targets shared between two atoms.

  The mean target is projected onto its two neighbours among the atoms, in inverse
  proportion to its distances (Farebrother et al., 2024, arXiv 2403.03950, Section 3.1).
  """

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns cross-entropies with the two-hot mean targets."""
    return super().loss(outputs, batch, Returns(targets.mean()[:, None]))


@gin.configurable
class HLGauss(Categorical):
  """Q(s, a), by classification of Gaussian targets (Farebrother et al., 2024).

  arXiv 2403.03950. The label of a bin is its probability under a normal distribution
  centred at the target; targets are clipped to [vmin, vmax].

  Args:
    num_atoms: Number of bins, whose centres are the atoms.
    vmin: Lower end of the first bin; None for -vmax.
    vmax: Upper end of the last bin.
    sigma: Standard deviation, in widths of a bin.

  Raises:
    ValueError: If `Categorical` refuses an argument, or `sigma` is not above 0.
  """

  def __init__(
    self,
    num_atoms: int = 51,
    vmin: float | None = None,
    vmax: float = 10.0,
    sigma: float = 0.75,
  ):
    super().__init__(num_atoms, vmin, vmax)
    if not sigma > 0:
      raise ValueError(f'sigma={sigma}: give a number above 0.')
    self._width = (self.vmax - self.vmin) / num_atoms
    self._sigma = sigma * self._width

  @property
  def support(self) -> tf.Tensor:
    """Returns the centres of the bins, float32 (num_atoms,)."""
    half = self._width / 2
    return tf.linspace(self.vmin + half, self.vmax - half, self.num_atoms)

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns cross-entropies with the histogram of the mean target."""
    means = tf.clip_by_value(targets.mean(), self.vmin, self.vmax)
    edges = tf.linspace(self.vmin, self.vmax, self.num_atoms + 1)
    below = tf.math.erf((edges - means[:, None]) / (self._sigma * 2**0.5))
    labels = (below[:, 1:] - below[:, :-1]) / (below[:, -1:] - below[:, :1])
    return self._cross_entropies(outputs, batch, labels)


def project(
  values: tf.Tensor, probabilities: tf.Tensor, support: tf.Tensor
) -> tf.Tensor:
  """Projects distributions onto a support (C51, Eq. 7).

  Each value's probability is shared by the two nearest atoms, in proportion to its
  distance from the other one.

  Args:
    values: Values of the distributions, float32 (n, k).
    probabilities: Their probabilities, float32 (n, k).
    support: Evenly spaced atoms, ascending, float32 (num_atoms,).

  Returns:
    The probabilities of the atoms, float32 (n, num_atoms).
  """
  width = support[1] - support[0]
  values = tf.clip_by_value(values, support[0], support[-1])
  distances = tf.abs(values[:, None, :] - support[:, None]) / width
  shares = tf.clip_by_value(1.0 - distances, 0.0, 1.0)
  return tf.reduce_sum(shares * probabilities[:, None, :], axis=2)
