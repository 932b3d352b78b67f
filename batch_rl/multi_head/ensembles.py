"""Ensembles of Q-functions: Ensemble-DQN, Averaged Ensemble-DQN and REM."""

import functools
from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import heads
from batch_rl.agents.heads import Returns
from batch_rl.multi_head import networks
from batch_rl.utils import choices

STRATEGIES = ('IDENTITY', 'AVERAGE', 'STOCHASTIC')


@gin.configurable
class Ensemble(heads.Estimates):
  """Several Q-functions on one torso (Agarwal et al., 2020).

  `strategy` chooses the estimates and their targets. With online heads Q_k and target
  heads Q'_k, and the backup `Max`:

  | strategy   | learns        | target: r + gamma^n ...     |
  | ---------- | ------------- | --------------------------- |
  | IDENTITY   | each Q_k      | max_a Q'_k(s', a)           |
  | AVERAGE    | each Q_k      | max_a mean_j Q'_j(s', a)    |
  | STOCHASTIC | sum_k w_k Q_k | max_a sum_k w_k Q'_k(s', a) |

  IDENTITY is Ensemble-DQN. AVERAGE is Averaged Ensemble-DQN: all heads share one
  target, the maximum of their mean, as in Averaged-DQN (Anschel et al., 2017).
  STOCHASTIC is REM, Random Ensemble Mixture: the weights w are drawn for each
  batch and shared by online and target heads.

  The loss is the Huber loss (delta 1), averaged over heads or mixtures.

  Args:
    num_heads: Number of heads.
    strategy: One of 'IDENTITY', 'AVERAGE' and 'STOCHASTIC'.
    num_mixtures: Number of mixtures per batch; above 1 only with STOCHASTIC.

  Raises:
    ValueError: If `strategy` is unknown, or ignores `num_mixtures`.
  """

  reads = ('q_heads',)

  def __init__(
    self,
    num_heads: int = 200,
    strategy: str = 'STOCHASTIC',
    num_mixtures: int = 1,
  ):
    choices.choose('strategy of ensembles', strategy, STRATEGIES)
    if num_mixtures != 1 and strategy != 'STOCHASTIC':
      raise ValueError(
        f'{num_mixtures} mixtures have no effect with {strategy}, only with STOCHASTIC.'
      )
    self.num_heads = self.num_outputs = num_heads
    self.strategy = strategy
    self.num_mixtures = num_mixtures

  def widen(self, network: heads.Network) -> heads.Network:
    """Returns a network with `q_heads`, on the torso of a plain one."""
    return networks.with_head(network, networks.MultiHead)

  def create_network(
    self, network: heads.Network, num_actions: int, name: str
  ) -> tf.keras.Model:
    """Returns a network with `q_heads`; see `Head`."""
    if 'transform_strategy' in heads.signature_of(network).parameters:
      # A network of the 2020 API would mix its heads, which the loss does here.
      return network(
        num_actions, self.num_heads, transform_strategy='IDENTITY', name=name
      )
    return super().create_network(network, num_actions, name)

  def returns(self, outputs: Any, batch: Any) -> Returns:
    """Returns the Q-values of each head, or of each mixture, (n, num_actions, k)."""
    if self.strategy != 'STOCHASTIC':
      return Returns(outputs.q_heads)
    mixtures = random_stochastic_matrix(
      self.num_heads, self.num_mixtures, batch.seed
    )
    return Returns(mix_heads(outputs.q_heads, mixtures))

  def target_returns(self, outputs: Any, batch: Any) -> Returns:
    """Returns the Q-values from which targets are made, (n, num_actions, k)."""
    if self.strategy == 'AVERAGE':
      return Returns(tf.reduce_mean(outputs.q_heads, axis=2, keepdims=True))
    return self.returns(outputs, batch)

  def greedy(self, returns: Returns, outputs: Any) -> tf.Tensor:
    """Returns the best action of each estimate, integers (n, k)."""
    return tf.argmax(returns.values, axis=1)

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns the Huber losses, averaged over heads or mixtures.

    Raises:
      ValueError: If there is neither one target a state, nor one for each of them.
    """
    estimates = self.returns(outputs, batch).of_actions(batch.action).values
    values = targets.values
    if targets.probabilities is not None:  # of one distribution for all
      values = targets.mean()[:, None]
    shapes = (None, 1), estimates.shape
    if not any(map(values.shape.is_compatible_with, shapes)):
      raise ValueError(
        f'{type(self).__name__} has targets {values.shape}; expected (n, 1) or '
        f'{estimates.shape}.'
      )
    goals = tf.broadcast_to(values, tf.shape(estimates))
    return tf.reduce_mean(heads.huber(goals, estimates), axis=1)


@gin.configurable
class SeparateNetworks(Ensemble):
  """An `Ensemble` of networks that share no weights.

  Args:
    num_networks: Number of networks.
    strategy: See `Ensemble`.
    num_mixtures: See `Ensemble`.

  Raises:
    ValueError: If `Ensemble` refuses an argument.
  """

  def __init__(
    self,
    num_networks: int = 4,
    strategy: str = 'STOCHASTIC',
    num_mixtures: int = 1,
  ):
    super().__init__(num_networks, strategy, num_mixtures)

  def widen(self, network: heads.Network) -> heads.Network:
    """Returns several copies of a plain network, with `q_heads`."""
    return functools.partial(networks.MultiNetworkQNetwork, network=network)


def build_targets(agent: Any) -> tf.Tensor:
  """Returns the targets of the replay memory's batch, float32 (n, num_heads or 1).

  For code written for the 2020 API: a `_build_train_op` of a subclass may call it.

  Raises:
    ValueError: If the heads are to be mixed, which only `loss` does.
  """
  if agent.transform_strategy == 'STOCHASTIC':
    raise ValueError(
      f'{type(agent).__name__} has a _build_train_op, whose q_heads are not mixed: '
      "override loss(batch) instead, or give transform_strategy='IDENTITY'."
    )
  return agent.backup(agent, agent._replay_batch()).values


def random_stochastic_matrix(
  dim: int,
  num_cols: int | None = None,
  seed: tf.Tensor | None = None,
  dtype: tf.DType = tf.float32,
) -> tf.Tensor:
  """Draws a left-stochastic matrix, whose columns are points of the simplex.

  Each column is a vector of U(0, 1) draws divided by its sum, as in REM, Random
  Ensemble Mixture (Agarwal et al., 2020).

  Args:
    dim: Number of rows, one per head.
    num_cols: Number of columns, one per convex combination; None for `dim`.
    seed: Seed of the draw, integers (2,); None for an unseeded draw.
    dtype: Floating-point type of the matrix.

  Returns:
    The matrix, (dim, num_cols); each column sums to 1.
  """
  shape = dim, dim if num_cols is None else num_cols
  if seed is None:
    draws = tf.random.uniform(shape, dtype=dtype)
  else:
    draws = tf.random.stateless_uniform(shape, seed, dtype=dtype)
  # Draws are in [0, 1), so their complements are never 0, nor is the sum.
  weights = 1.0 - draws
  return weights / tf.reduce_sum(weights, axis=0, keepdims=True)


def mix_heads(q_heads: tf.Tensor, mixtures: tf.Tensor) -> tf.Tensor:
  """Computes sum_k w_k Q_k for each column w of `mixtures`, as REM does.

  Args:
    q_heads: Q-values of the heads, float32 (..., num_heads).
    mixtures: Weights, float32 (num_heads, num_mixtures); columns sum to 1.

  Returns:
    The mixed Q-values, float32 (..., num_mixtures).
  """
  return tf.tensordot(q_heads, mixtures, axes=1)
