"""Dueling networks: a value of the state beside advantages of the actions."""

import math
from typing import Any

import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.agents import features, graph_checks


class DuelingNetwork(tf.keras.Model):
  """Q(s, a) = V(s) + A(s, a) - mean_b A(s, b).

  Wang et al., 2016 (arXiv 1511.06581), Eq. 9. A plain network computes A. V shares its
  torso, and has a hidden layer of its own, as wide as that network's.

  Args:
    network: Plain network `(num_outputs, name=...)`.
    num_actions: Number of actions.
    num_outputs: Number of outputs, a multiple of `num_actions`; with k outputs an
      action there are k values, too.
    name: Scope of the variables.

  Raises:
    ValueError: If the network has no dense hidden layer.
  """

  def __init__(
    self, network: Any, num_actions: int, num_outputs: int, name: str
  ):
    super().__init__(name=name)
    self._shape = num_actions, num_outputs // num_actions
    self._advantage = network(num_outputs, name='advantage')
    dense = tf.keras.layers.Dense
    # The first call tells the number of hidden units.
    layers = [
      dense(1, activation='relu', name='hidden'),
      dense(self._shape[1], name='value'),
    ]
    self._value = tf.keras.Sequential(layers, name='value')
    self._recorder = features.Recorder(self._advantage)

  def call(self, state: tf.Tensor) -> atari_lib.DQNNetworkType:
    """Maps states, (n, ...), to `q_values`, float32 (n, num_outputs)."""
    outputs, calls = self._recorder(state)
    expected = {'q_values': (math.prod(self._shape),)}
    graph_checks.check_outputs(self._advantage, outputs, expected)
    hidden = features.dense_hidden(calls, self._advantage, 'dueling')
    self._value.layers[0].units = hidden.outputs.shape[1]
    value = self._value(hidden.inputs)
    advantages = tf.reshape(outputs.q_values, (-1, *self._shape))
    mean = tf.reduce_mean(advantages, axis=1, keepdims=True)
    q_values = value[:, None, :] + advantages - mean
    q_values = tf.reshape(q_values, tf.shape(outputs.q_values))
    return atari_lib.DQNNetworkType(q_values)
