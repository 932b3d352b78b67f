"""Networks for Atari with several outputs for each action.

Names at the end are for code written for the 2020 API.
"""

from typing import Any

import gin
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.multi_head import ensembles, networks


# The agent passes the denied parameters, which would override a binding.
@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class MultiHeadQNetwork(networks.MultiHead, atari_lib.NatureDQNNetwork):
  """Nature DQN's network with several heads."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class QuantileNetwork(networks.Quantile, atari_lib.NatureDQNNetwork):
  """Nature DQN's network with several quantiles per action."""


# --- for code written for the 2020 API ---------------------------------------

NatureDQNNetwork = atari_lib.NatureDQNNetwork
DQNNetworkType = atari_lib.DQNNetworkType
MultiHeadNetworkType = networks.MultiHeadNetworkType
QuantileNetworkType = networks.QuantileNetworkType
MultiNetworkQNetwork = MulitNetworkQNetwork = networks.MultiNetworkQNetwork
random_stochastic_matrix = ensembles.random_stochastic_matrix


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
