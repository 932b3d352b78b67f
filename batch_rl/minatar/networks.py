"""The network for MinAtar, for every agent."""

# ruff: noqa: E402
from batch_rl import dopamine_compat

dopamine_compat.activate()

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import atari_lib


@gin.configurable(module='batch_rl.minatar', denylist=['num_actions', 'name'])
class MinAtarNetwork(tf.keras.Model):
  """The network of Young and Tian, 2019: 16 filters 3x3, and 128 hidden units.

  It is a plain network, from which each agent makes its own (`multi_head.networks`).

  Args:
    num_actions: Number of outputs.
    name: Scope of the variables.
  """

  def __init__(self, num_actions: int, name: str | None = None):
    super().__init__(name=name)
    layers, relu = tf.keras.layers, tf.keras.activations.relu
    self._layers_in_order = [
      layers.Conv2D(16, 3, activation=relu, name='Conv'),
      layers.Flatten(),
      layers.Dense(128, activation=relu, name='fully_connected'),
      layers.Dense(num_actions, name='fully_connected'),
    ]

  def call(self, state: tf.Tensor) -> atari_lib.DQNNetworkType:
    """Maps states, (n, 10, 10, planes, stack_size), to Q-values, (n, num_actions)."""
    *size, planes, frames = state.shape[1:]
    x = tf.reshape(state, (-1, *size, int(np.prod((planes, frames)))))
    x = tf.cast(x, tf.float32)
    for layer in self._layers_in_order:
      x = layer(x)
    return atari_lib.DQNNetworkType(x)
