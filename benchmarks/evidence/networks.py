"""The network of Mnih et al., 2013, for agents that learn Pong on two cores.

It has 16 filters of 8x8 with stride 4, 32 of 4x4 with stride 2, and 256 units: a quarter
of the arithmetic of Nature DQN's network.
"""

import gin
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.multi_head import networks


@gin.configurable(denylist=['num_actions', 'name'])
class SmallDQNNetwork(tf.keras.Model):
  """A network of two convolutions, a dense layer and a Q-value for each action."""

  def __init__(self, num_actions: int, name: str | None = None):
    super().__init__(name=name)
    relu, layers = tf.keras.activations.relu, tf.keras.layers
    self._layers_in_order = [
      layers.Conv2D(16, 8, 4, 'same', activation=relu, name='Conv'),
      layers.Conv2D(32, 4, 2, 'same', activation=relu, name='Conv'),
      layers.Flatten(),
      layers.Dense(256, activation=relu, name='fully_connected'),
      layers.Dense(num_actions, name='fully_connected'),
    ]

  def call(self, state: tf.Tensor) -> atari_lib.DQNNetworkType:
    """Maps states, uint8 (batch, 84, 84, 4), to Q-values, (batch, num_actions)."""
    x = tf.cast(state, tf.float32) / 255
    for layer in self._layers_in_order:
      x = layer(x)
    return atari_lib.DQNNetworkType(x)


@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class SmallMultiHeadQNetwork(networks.MultiHead, SmallDQNNetwork):
  """A network with `num_heads` Q-values for each action."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class SmallQuantileNetwork(networks.Quantile, SmallDQNNetwork):
  """A network with `num_atoms` quantiles of each action's return."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'support', 'name'])
class SmallRainbowNetwork(networks.Categorical, SmallDQNNetwork):
  """A network with a distribution over `num_atoms` returns for each action (C51)."""
