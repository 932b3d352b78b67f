"""Features of a network: the inputs of its last layer."""

import functools
from typing import Any

import tensorflow as tf


class NoFeaturesError(ValueError):
  """The last layer of a network is not found."""


def _last_layers(
  network: tf.keras.layers.Layer,
) -> list[tf.keras.layers.Layer]:
  """Returns the last layer of a network, or of each network inside it.

  Layers without weights, such as activations, do not count.
  """
  if isinstance(network, tf.keras.Sequential) or getattr(
    network, '_is_graph_network', False
  ):
    return [layer for layer in network.layers if _has_weights(layer)][-1:]
  layers = [
    (name, layer)
    for name, part in vars(network).items()
    for layer in (part if isinstance(part, (list, tuple)) else [part])
    if isinstance(layer, tf.keras.layers.Layer) and _has_weights(layer)
  ]
  if not layers:
    return []
  name, last = layers[-1]
  group = [layer for other, layer in layers if other == name]
  if not any(layer.submodules for layer in group):
    return [last]
  return [found for layer in group for found in _last_layers(layer)]


def _has_weights(layer: tf.keras.layers.Layer) -> bool:
  """Returns whether a layer has weights, or makes them when it is called."""
  # Keras replaces `Layer` in a graph, so compare with a layer that makes none.
  plain = tf.keras.layers.Activation('linear', name='linear')
  makes_some = type(layer).build is not type(plain).build
  return bool(makes_some or layer.submodules or layer.weights)


class Recorder:
  """Calls a network, and tells the features that it has computed.

  Args:
    network: A Keras model.
  """

  def __init__(self, network: tf.keras.Model):
    self._network = network
    self._inputs: list[tf.Tensor] = []
    for layer in _last_layers(network):
      layer.call = functools.partial(self._record, layer.call)

  @tf.autograph.experimental.do_not_convert
  def _record(self, call, inputs, *args, **kwargs):
    self._inputs.append(inputs)
    return call(inputs, *args, **kwargs)

  def __call__(self, states: tf.Tensor) -> tuple[Any, list[tf.Tensor]]:
    """Returns the network's outputs, and the inputs of its last layers."""
    self._inputs.clear()
    outputs = self._network(states)
    return outputs, list(self._inputs)


def join(inputs: list[tf.Tensor], network: tf.keras.Model) -> tf.Tensor:
  """Returns features as one tensor, float32 (n, k).

  Args:
    inputs: Inputs of the last layers of a network.
    network: The network, for the message.

  Raises:
    NoFeaturesError: If the last layer of the network is not found.
  """
  if not inputs:
    raise NoFeaturesError(
      f'{type(network).__name__} has no features: its last layer is not found. Keep '
      'its layers as attributes of the model, the last one last.'
    )
  parts = [
    tf.reshape(tf.cast(part, tf.float32), (-1, part.shape[1:].num_elements()))
    for part in inputs
  ]
  return tf.concat(parts, axis=1)
