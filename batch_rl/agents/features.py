"""Features of a network: the inputs of its last layers."""

import functools
from typing import Any, NamedTuple

import tensorflow as tf


class NoFeaturesError(ValueError):
  """The last layer of a network is not found."""


class Inputs(NamedTuple):
  """Inputs of layers in one call of a network.

  Attributes:
    last: Inputs of the last layer, of each network inside.
    hidden: Inputs of the layer before it, or of the last one if it is the only one.
  """

  last: list[tf.Tensor]
  hidden: list[tf.Tensor]


def _chains(
  network: tf.keras.layers.Layer,
) -> list[list[tf.keras.layers.Layer]]:
  """Returns the layers of a network, or of each network inside it, in order.

  Layers without weights, such as activations, do not count.
  """
  if isinstance(network, tf.keras.Sequential) or getattr(
    network, '_is_graph_network', False
  ):
    named = list(enumerate(network.layers))
  else:
    named = [
      (name, layer)
      for name, part in vars(network).items()
      for layer in (part if isinstance(part, (list, tuple)) else [part])
      if isinstance(layer, tf.keras.layers.Layer)
    ]
  named = [(name, layer) for name, layer in named if _has_weights(layer)]
  if not named:
    return []
  group = [layer for name, layer in named if name == named[-1][0]]
  if all(layer.submodules for layer in group):
    return [chain for layer in group for chain in _chains(layer)]
  chain = []
  for _, layer in named:
    chain += _chains(layer)[-1] if layer.submodules else [layer]
  return [chain]


def _has_weights(layer: tf.keras.layers.Layer) -> bool:
  """Returns whether a layer has weights, or makes them when it is called."""
  inside = [
    part for part in layer.submodules if isinstance(part, tf.keras.layers.Layer)
  ]
  if inside:
    return any(map(_has_weights, inside))
  # Keras replaces `Layer` in a graph, so compare with a layer that makes none.
  plain = tf.keras.layers.Activation('linear', name='linear')
  return bool(type(layer).build is not type(plain).build or layer.weights)


def hidden_layers(
  network: tf.keras.layers.Layer,
) -> list[tf.keras.layers.Layer]:
  """Returns the layer before the last one, of each network inside.

  It is the last one itself if that is the only one.
  """
  return [chain[-2:][0] for chain in _chains(network)]


class Recorder:
  """Calls a network, and tells the inputs of its last layers.

  Args:
    network: A Keras model.
  """

  def __init__(self, network: tf.keras.Model):
    self._network = network
    self._inputs = Inputs([], [])
    for chain in _chains(network):
      _intercept(chain[-1], self._inputs.last)
      _intercept(chain[-2:][0], self._inputs.hidden)

  def __call__(self, *inputs: Any) -> tuple[Any, Inputs]:
    """Returns the network's outputs, and the inputs of its last layers."""
    for recorded in self._inputs:
      recorded.clear()
    outputs = self._network(*inputs)
    return outputs, Inputs(*map(list, self._inputs))


def _intercept(layer, recorded):
  """Lets a layer append its inputs to a list."""
  layer.call = functools.partial(_record, recorded, layer.call)


@tf.autograph.experimental.do_not_convert
def _record(recorded, call, inputs, *args, **kwargs):
  recorded.append(inputs)
  return call(inputs, *args, **kwargs)


def join(inputs: list[tf.Tensor], network: tf.keras.Model) -> tf.Tensor:
  """Returns features as one tensor, float32 (n, k).

  Args:
    inputs: Inputs of a layer, of each network inside.
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
