"""Quantiles at drawn levels: the head of IQN (Dabney et al., 2018)."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import gin
import tensorflow as tf

from batch_rl.agents import dueling, features, graph_checks, heads
from batch_rl.multi_head import quantiles


class ImplicitQuantileNetworkType(NamedTuple):
  """Output of an `ImplicitQuantileNetwork`.

  Attributes:
    quantile_values: Quantiles, float32 (n, num_actions, k).
    taus: Their levels, float32 (n, k).
    q_values: Mean over the quantiles, float32 (n, num_actions).
    features: Mean of the inputs of the last layer over the levels, float32 (n, units);
      `q_values` is a linear function of it.
    torso: psi(s), float32 (n, width).
  """

  quantile_values: tf.Tensor
  taus: tf.Tensor
  q_values: tf.Tensor
  features: tf.Tensor
  torso: tf.Tensor


@gin.configurable
@dataclasses.dataclass(eq=False)
class ImplicitQuantiles(heads.Head):
  """Quantiles of the return at levels tau, an input of the network.

  Implicit quantile networks (Dabney et al., 2018, arXiv 1806.06923). The loss is Eq. 3,
  with as many levels for the online network as for the targets, N = N'. The agent acts
  on the mean over fixed levels, the midpoints of equal parts of [0, 1]; the paper
  samples these levels.

  Args:
    num_tau_samples: Number of drawn levels, N in the paper.
    num_quantile_samples: Number of levels averaged for Q-values, K in the paper.
    kappa: Largest error with a quadratic Huber loss, in units of the return.
    quantile_embedding_dim: Number of cosines in the embedding of a level.
  """

  num_tau_samples: int = 64
  num_quantile_samples: int = 32
  kappa: float = 1.0
  quantile_embedding_dim: int = 64

  def create_network(
    self, network: heads.Network, num_actions: int, name: str
  ) -> tf.keras.Model:
    """Returns an `ImplicitQuantileNetwork`, made from a plain network."""
    heads.check_plain(network, self)
    return ImplicitQuantileNetwork(self, network, num_actions, name)

  def outputs(self, network: Any, states: tf.Tensor, seed: tf.Tensor) -> Any:
    """Returns quantiles at drawn levels, and Q-values."""
    shape = tf.shape(states)[0], self.num_tau_samples
    outputs = network(states, tf.random.stateless_uniform(shape, seed))
    return outputs._replace(q_values=network(states).q_values)

  def returns(self, outputs: Any, batch: Any) -> heads.Returns:
    """Returns the quantiles, (n, num_actions, num_tau_samples)."""
    return heads.Returns(outputs.quantile_values)

  def loss(self, outputs: Any, batch: Any, targets: heads.Returns) -> tf.Tensor:
    """Returns the quantile Huber losses against all targets, divided by kappa."""
    losses = quantiles.quantile_huber_loss(
      self.returns(outputs, batch).of_actions(batch.action).values,
      targets.values,
      self.kappa,
      targets.probabilities,
      outputs.taus,
    )
    return losses / (self.kappa or 1.0)


class ImplicitQuantileNetwork(tf.keras.Model):
  """A plain Q-network whose hidden layer reads psi(s) * phi(tau).

  psi(s) is what it reads otherwise, and phi_j(tau) = ReLU(sum_i cos(pi i tau) w_ij + b_j),
  Eq. 4 of the paper.

  Args:
    head: Head of the network. It has the number of cosines, and of levels if `call` is
      given none.
    network: Plain network `(num_actions, name=...)`.
    num_actions: Number of actions.
    name: Scope of the variables.

  Raises:
    ValueError: If the network has no dense hidden layer, or is dueling.
  """

  def __init__(
    self,
    head: ImplicitQuantiles,
    network: heads.Network,
    num_actions: int,
    name: str,
  ):
    super().__init__(name=name)
    self.q_network = network(num_actions, name='q_network')
    if isinstance(self.q_network, dueling.DuelingNetwork):
      raise ValueError('IQN has no dueling network: set dueling to False.')
    self._num_actions, self._num_taus = num_actions, head.num_quantile_samples
    self._embedding_dim = head.quantile_embedding_dim
    # The first call tells the number of units.
    self._embedding = tf.keras.layers.Dense(
      1, activation='relu', name='embedding'
    )
    self._taus: tf.Tensor  # of the last call
    self._psi: tf.Tensor | None = None
    self._recorder = features.Recorder(self.q_network)

  def call(
    self, state: tf.Tensor, taus: tf.Tensor | None = None
  ) -> ImplicitQuantileNetworkType:
    """Maps states, (n, ...), to quantiles at the levels, float32 (n, k)."""
    if taus is None:
      taus = quantiles.midpoints(self._num_taus)[None, :]
    count = taus.shape.as_list()[1]
    if not self._embedding.built:
      self._condition_on_taus(state)
    self._taus = taus
    outputs, calls = self._recorder(state)
    expected = {'q_values': (self._num_actions,)}
    graph_checks.check_outputs(self.q_network, outputs, expected)
    shape = -1, count, self._num_actions
    values = tf.transpose(tf.reshape(outputs.q_values, shape), (0, 2, 1))
    joined = features.join(calls.last, self.q_network)
    joined = tf.reshape(joined, (-1, count, joined.shape[1]))
    return ImplicitQuantileNetworkType(
      quantile_values=values,
      taus=tf.broadcast_to(taus, (tf.shape(values)[0], count)),
      q_values=tf.reduce_mean(values, axis=2),
      features=tf.reduce_mean(joined, axis=1),
      torso=self._psi,
    )

  @tf.autograph.experimental.do_not_convert
  def _condition_on_taus(self, state):
    """Finds the hidden layer in a first call, and lets it read psi(s) * phi(tau)."""
    _, calls = self._recorder(state)
    hidden = features.dense_hidden(calls, self.q_network, 'IQN')
    self._embedding.units = hidden.inputs.shape[1]
    hidden.layer.call = functools.partial(self._at_taus, hidden.layer.call)

  @tf.autograph.experimental.do_not_convert
  def _at_taus(self, call, psi, *args, **kwargs):
    """Calls the hidden layer with the rows psi(s) * phi(tau) of all levels."""
    self._psi = psi
    frequencies = math.pi * tf.range(self._embedding_dim, dtype=tf.float32)
    phi = self._embedding(tf.cos(frequencies * self._taus[:, :, None]))
    rows = tf.reshape(psi[:, None, :] * phi, (-1, psi.shape[1]))
    return call(rows, *args, **kwargs)
