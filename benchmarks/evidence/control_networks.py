"""Networks of `control.py`: two layers of 128 units instead of Dopamine's 512.

An update takes a third of the time. Observations are scaled by Dopamine's ranges.
"""

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import atari_lib, gym_lib

from batch_rl.multi_head import networks

_RANGES = {
  low.size: (low, high)
  for low, high in (
    (gym_lib.CARTPOLE_MIN_VALS, gym_lib.CARTPOLE_MAX_VALS),
    (gym_lib.ACROBOT_MIN_VALS, gym_lib.ACROBOT_MAX_VALS),
  )
}


@gin.configurable(denylist=['num_actions', 'name'])
class ControlDQNNetwork(tf.keras.Model):
  """A network of two dense layers and a Q-value for each action."""

  def __init__(self, num_actions: int, name: str | None = None):
    super().__init__(name=name)
    layers, relu = tf.keras.layers, tf.keras.activations.relu
    self._layers_in_order = [
      layers.Dense(128, activation=relu, name='fully_connected'),
      layers.Dense(128, activation=relu, name='fully_connected'),
      layers.Dense(num_actions, name='fully_connected'),
    ]

  def call(self, state: tf.Tensor) -> atari_lib.DQNNetworkType:
    """Maps states, (batch, size, 1, 1), to Q-values, (batch, num_actions)."""
    size = int(np.prod(state.shape[1:]))
    low, high = (tf.constant(end, tf.float32) for end in _RANGES[size])
    x = tf.reshape(tf.cast(state, tf.float32), (-1, size))
    x = 2 * (x - low) / (high - low) - 1
    for layer in self._layers_in_order:
      x = layer(x)
    return atari_lib.DQNNetworkType(x)


@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class ControlMultiHeadQNetwork(networks.MultiHead, ControlDQNNetwork):
  """A network with `num_heads` Q-values for each action."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class ControlQuantileNetwork(networks.Quantile, ControlDQNNetwork):
  """A network with `num_atoms` quantiles of each action's return."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'support', 'name'])
class ControlRainbowNetwork(networks.Categorical, ControlDQNNetwork):
  """A network with a distribution over `num_atoms` returns for each action (C51)."""
