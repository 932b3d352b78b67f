"""Networks for Atari with several outputs for each action.

Names at the end are for code written for the 2020 API.
"""

import math
from typing import Any, NamedTuple

import gin
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.multi_head import ensembles, networks


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
    """Another name of `q_heads`."""
    return self.q_heads

  @property
  def unordered_q_networks(self) -> tf.Tensor:
    """Another name of `unordered_q_heads`."""
    return self.unordered_q_heads


class _MixesAsIn2020(networks.KerasModel):
  """Mixin with the arguments of 2020, for networks with `q_heads`.

  Args:
    num_actions: Number of actions.
    num_heads: Number of heads.
    transform_strategy: Mixing of the heads, see `combine_q_functions`. None for the
      heads themselves, which the agents here mix in the loss.
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
    outputs, (strategy, matrix) = super().call(state), self._mixing
    if strategy in (None, 'IDENTITY'):
      return outputs
    mixed, q_values = combine_q_functions(
      outputs.q_heads, strategy, transform_matrix=matrix
    )
    return MixedNetworkType(mixed, outputs.q_heads, q_values)


class _NatureNetwork(atari_lib.NatureDQNNetwork):
  """Nature DQN's network with initial weights of 2020: U(-x, x), x^2 = sqrt(3) / fan-in.

  Dopamine's C51 has these, too, rather than Keras' Glorot uniform weights.
  """

  def __init__(self, *args: Any, **kwargs: Any):
    super().__init__(*args, **kwargs)
    for layer in self.layers:
      if hasattr(layer, 'kernel_initializer'):
        # One for each, since an initialiser repeats its values.
        layer.kernel_initializer = tf.keras.initializers.VarianceScaling(
          1 / math.sqrt(3), 'fan_in', 'uniform'
        )


# The agent passes the denied parameters, which would override a binding.
@gin.configurable(
  denylist=(
    *('num_actions', 'num_heads', 'name'),
    *('transform_strategy', 'transform_matrix'),
  )
)
class MultiHeadQNetwork(_MixesAsIn2020, networks.MultiHead, _NatureNetwork):
  """Nature DQN's network with several heads."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class QuantileNetwork(networks.Quantile, _NatureNetwork):
  """Nature DQN's network with several quantiles per action."""


# --- for code written for the 2020 API ---------------------------------------

NatureDQNNetwork = atari_lib.NatureDQNNetwork
DQNNetworkType = atari_lib.DQNNetworkType
MultiHeadNetworkType = networks.MultiHeadNetworkType
QuantileNetworkType = networks.QuantileNetworkType
MultiNetworkQNetwork = networks.MultiNetworkQNetwork
random_stochastic_matrix = ensembles.random_stochastic_matrix


class MulitNetworkQNetwork(_MixesAsIn2020, networks.MultiNetworkQNetwork):
  """A `MultiNetworkQNetwork` with the arguments of 2020."""


def combine_q_functions(
  q_functions: tf.Tensor, transform_strategy: str, **kwargs: Any
) -> tuple[tf.Tensor, tf.Tensor]:
  """Mixes Q-functions as a network of 2020 did.

  Networks here return the Q-functions themselves, and agents mix them in the loss.

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
  matrix = kwargs.get('transform_matrix')
  if transform_strategy != 'STOCHASTIC' or matrix is None:
    raise ValueError(
      f'transform_strategy={transform_strategy!r} is neither IDENTITY nor STOCHASTIC '
      'with a transform_matrix, e.g. random_stochastic_matrix(num_heads).'
    )
  return ensembles.mix_heads(q_functions, matrix), q_values
