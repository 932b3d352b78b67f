"""Networks with several estimates of each action's value, and tensor helpers.

The mixins `MultiHead`, `Quantile` and `Categorical` give a Q-network several outputs
per action and keep its torso and variable names. `MultiNetworkQNetwork` holds separate
networks. The configurable networks here are for Atari; `gym_helpers` has those for
CartPole and Acrobot. Names at the end are for code written for the 2020 API.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gin
import tensorflow as tf
from dopamine.discrete_domains import atari_lib


class MultiHeadNetworkType(NamedTuple):
  """Output of a network of `num_heads` Q-functions.

  Attributes:
    q_heads: Q-values of the heads, float32 (batch, num_actions, num_heads).
    q_values: Mean over the heads, float32 (batch, num_actions).
  """

  q_heads: tf.Tensor
  q_values: tf.Tensor

  @property
  def unordered_q_heads(self) -> tf.Tensor:
    """Same as `q_heads`. For code written for the 2020 API."""
    return self.q_heads

  @property
  def q_networks(self) -> tf.Tensor:
    """Same as `q_heads`. For code written for the 2020 API."""
    return self.q_heads

  @property
  def unordered_q_networks(self) -> tf.Tensor:
    """Same as `q_heads`. For code written for the 2020 API."""
    return self.q_heads


class QuantileNetworkType(NamedTuple):
  """Output of a network of `num_atoms` quantiles of the return.

  Attributes:
    quantile_values: Quantiles, float32 (batch, num_actions, num_atoms).
    q_values: Mean over the quantiles, float32 (batch, num_actions).
  """

  quantile_values: tf.Tensor
  q_values: tf.Tensor

  @property
  def logits(self) -> tf.Tensor:
    """Same as `quantile_values`. For code written for the 2020 API."""
    return self.quantile_values


class MultiHead:
  """Mixin that gives a Q-network `num_heads` Q-functions on one torso.

  It precedes the base class: any Keras model with the constructor
  `(num_actions, name=None)` whose `call(state)` returns `.q_values` of shape
  (batch, num_actions).
  """

  def __init__(self, num_actions: int, num_heads: int, name: str | None = None):
    super().__init__(num_actions * num_heads, name=name)
    self._heads_shape = (-1, num_actions, num_heads)

  def call(self, state: tf.Tensor) -> MultiHeadNetworkType:
    """Maps states, (batch, ...), to the Q-values of every head."""
    q_heads = tf.reshape(super().call(state).q_values, self._heads_shape)
    return MultiHeadNetworkType(q_heads, tf.reduce_mean(q_heads, axis=2))


class Quantile:
  """Mixin that gives a Q-network `num_atoms` quantiles of each action's return.

  It precedes the same base classes as `MultiHead`.
  """

  def __init__(self, num_actions: int, num_atoms: int, name: str | None = None):
    super().__init__(num_actions * num_atoms, name=name)
    self._atoms_shape = (-1, num_actions, num_atoms)

  def call(self, state: tf.Tensor) -> QuantileNetworkType:
    """Maps states, (batch, ...), to the quantiles of every action."""
    quantiles = tf.reshape(super().call(state).q_values, self._atoms_shape)
    return QuantileNetworkType(quantiles, tf.reduce_mean(quantiles, axis=2))


class Categorical:
  """Mixin that gives a Q-network a distribution of each action's return (C51).

  It precedes the same base classes as `MultiHead`.
  """

  def __init__(
    self,
    num_actions: int,
    num_atoms: int,
    support: tf.Tensor,
    name: str | None = None,
  ):
    super().__init__(num_actions * num_atoms, name=name)
    self._logits_shape = (-1, num_actions, num_atoms)
    self._support = support

  def call(self, state: tf.Tensor) -> atari_lib.RainbowNetworkType:
    """Maps states, (batch, ...), to Q-values, logits and probabilities."""
    logits = tf.reshape(super().call(state).q_values, self._logits_shape)
    probabilities = tf.nn.softmax(logits)
    q_values = tf.reduce_sum(self._support * probabilities, axis=2)
    return atari_lib.RainbowNetworkType(q_values, logits, probabilities)


# The agent passes the denied parameters, which would override a binding.
@gin.configurable(
  denylist=[
    'num_actions',
    'num_heads',
    'transform_strategy',
    'name',
    'transform_matrix',
  ]
)
class MultiHeadQNetwork(MultiHead, atari_lib.NatureDQNNetwork):
  """Nature DQN's network with `num_heads` heads.

  Args:
    num_actions: Number of actions.
    num_heads: Number of heads.
    transform_strategy: Mixing of the heads in the 2020 API, see `combine_q_functions`.
      None for the heads themselves, which the agents here mix in the loss.
    name: Scope of the variables.
    transform_matrix: Weights of the mixtures, see `combine_q_functions`.
  """

  def __init__(
    self,
    num_actions: int,
    num_heads: int,
    transform_strategy: str | None = None,
    name: str | None = None,
    transform_matrix: tf.Tensor | None = None,
  ):
    super().__init__(num_actions, num_heads, name=name)
    self._mixing = transform_strategy, transform_matrix

  def call(self, state: tf.Tensor) -> Any:
    """Maps states, (batch, ...), to the Q-values of every head or mixture."""
    return _mix_as_in_2020(super().call(state), *self._mixing)


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class QuantileNetwork(Quantile, atari_lib.NatureDQNNetwork):
  """Nature DQN's network with `num_atoms` quantiles per action."""


@gin.configurable(denylist=['num_actions', 'num_networks', 'devices', 'name'])
class MultiNetworkQNetwork(tf.keras.Model):
  """Several Q-networks that share no weights."""

  def __init__(
    self,
    num_actions: int,
    num_networks: int,
    devices: Sequence[str] = (),
    network: Callable[..., tf.keras.Model] = atari_lib.NatureDQNNetwork,
    name: str | None = None,
  ):
    """Creates the networks `subnet_0`, `subnet_1` and so on.

    Args:
      num_actions: Number of actions.
      num_networks: Number of networks.
      devices: TensorFlow devices, assigned to the networks and their variables in
        turn; empty to keep the device scope of the caller.
      network: Function `(num_actions, name=...)` that builds a network, whose `call`
        returns `.q_values`.
      name: Scope of the variables, as in `Online/subnet_0/Conv/kernel`.
    """
    super().__init__(name=name)
    self._devices = tuple(devices) or ('',)  # '' keeps the enclosing scope
    self._subnets = [
      network(num_actions, name=f'subnet_{i}') for i in range(num_networks)
    ]

  def call(self, state: tf.Tensor) -> MultiHeadNetworkType:
    """Maps states, (batch, ...), to the Q-values of every network."""
    q_heads = []
    for subnet, device in zip(
      self._subnets, itertools.cycle(self._devices), strict=False
    ):
      with tf.device(device):
        q_heads.append(subnet(state).q_values)
    q_heads = tf.stack(q_heads, axis=2)
    return MultiHeadNetworkType(q_heads, tf.reduce_mean(q_heads, axis=2))


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


def select_actions(values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
  """Picks the estimates of one action for each state.

  Args:
    values: Estimates, float32 (batch, num_actions, num_estimates).
    actions: Actions, integers (batch,).

  Returns:
    The estimates of the actions, float32 (batch, num_estimates).
  """
  one_hot = tf.one_hot(actions, tf.shape(values)[1], dtype=values.dtype)
  return tf.reduce_sum(values * one_hot[:, :, None], axis=1)


def bellman_targets(
  next_values: tf.Tensor,
  rewards: tf.Tensor,
  terminals: tf.Tensor,
  discount: float,
) -> tf.Tensor:
  """Computes r + discount * (1 - terminal) * next_values, without gradient.

  Args:
    next_values: Values of the next states, float32 (batch, num_estimates).
    rewards: Sums of the discounted n-step rewards, float32 (batch,).
    terminals: 1 if the episode ends within the n steps, else 0; (batch,).
    discount: Discount factor of the next state, gamma ** n.

  Returns:
    The targets, float32 (batch, num_estimates).
  """
  discounts = discount * (1.0 - tf.cast(terminals, tf.float32))
  return tf.stop_gradient(rewards[:, None] + discounts[:, None] * next_values)


# --- for code written for the 2020 API ---------------------------------------

NatureDQNNetwork = atari_lib.NatureDQNNetwork
DQNNetworkType = atari_lib.DQNNetworkType


class MixedNetworkType(NamedTuple):
  """Output of a network of 2020 that mixes its Q-functions.

  Attributes:
    q_heads: Q-values of the mixtures, float32 (batch, num_actions, num_mixtures).
    unordered_q_heads: Those of the heads, float32 (batch, num_actions, num_heads).
    q_values: Mean over the heads, float32 (batch, num_actions).
  """

  q_heads: tf.Tensor
  unordered_q_heads: tf.Tensor
  q_values: tf.Tensor

  @property
  def q_networks(self) -> tf.Tensor:
    """Same as `q_heads`."""
    return self.q_heads

  @property
  def unordered_q_networks(self) -> tf.Tensor:
    """Same as `unordered_q_heads`."""
    return self.unordered_q_heads


class MulitNetworkQNetwork(MultiNetworkQNetwork):
  """A `MultiNetworkQNetwork` with the arguments of 2020.

  Args:
    num_actions: Number of actions.
    num_networks: Number of networks.
    transform_strategy: Mixing of the networks, see `combine_q_functions`; None for the
      networks themselves, which the agents here mix in the loss.
    name: Scope of the variables.
    transform_matrix: Weights of the mixtures, see `combine_q_functions`.
    device_fn: Function that returns the device of the network with a number; None to
      keep the device scope of the caller.
  """

  def __init__(
    self,
    num_actions: int,
    num_networks: int,
    transform_strategy: str | None = None,
    name: str | None = None,
    transform_matrix: tf.Tensor | None = None,
    device_fn: Callable[[int], str] | None = None,
  ):
    devices = list(map(device_fn, range(num_networks))) if device_fn else ()
    super().__init__(num_actions, num_networks, devices, name=name)
    self._mixing = transform_strategy, transform_matrix

  def call(self, state: tf.Tensor) -> Any:
    """Maps states, (batch, ...), to the Q-values of every network or mixture."""
    return _mix_as_in_2020(super().call(state), *self._mixing)


def _mix_as_in_2020(outputs, transform_strategy, transform_matrix):
  """Returns a network's outputs, as `MixedNetworkType` if a strategy mixes them."""
  if transform_strategy in (None, 'IDENTITY'):
    return outputs
  mixed, q_values = combine_q_functions(
    outputs.q_heads, transform_strategy, transform_matrix=transform_matrix
  )
  return MixedNetworkType(mixed, outputs.q_heads, q_values)


def combine_q_functions(
  q_functions: tf.Tensor, transform_strategy: str, **kwargs: Any
) -> tuple[tf.Tensor, tf.Tensor]:
  """Mixes Q-functions as a network of 2020 did. For code written for the 2020 API.

  Networks and agents here mix heads in the loss instead.

  Args:
    q_functions: Q-values, float32 (batch, num_actions, num_heads).
    transform_strategy: 'IDENTITY', or 'STOCHASTIC' with a `transform_matrix`.
    **kwargs: `transform_matrix`, the weights of the mixtures, float32
      (num_heads, num_mixtures), e.g. a `random_stochastic_matrix`.

  Returns:
    The Q-values of the heads or mixtures, float32 (batch, num_actions, n), and the
    mean over the heads, float32 (batch, num_actions).

  Raises:
    ValueError: If the strategy is another one, or STOCHASTIC lacks the matrix.
  """
  q_values = tf.reduce_mean(q_functions, axis=-1)
  if transform_strategy == 'IDENTITY':
    return q_functions, q_values
  if transform_strategy != 'STOCHASTIC':
    raise ValueError(
      f'transform_strategy={transform_strategy!r} is neither IDENTITY nor STOCHASTIC.'
    )
  if kwargs.get('transform_matrix') is None:
    raise ValueError(
      'transform_strategy=STOCHASTIC needs transform_matrix: pass e.g. '
      'random_stochastic_matrix(num_heads).'
    )
  mixtures = kwargs['transform_matrix']
  return tf.tensordot(q_functions, mixtures, axes=1), q_values
