"""Features of a network: the inputs of its last layers."""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from batch_rl.agents import graph_checks


class NoFeaturesError(graph_checks.NetworkError):
  """A network's last layers are not found, or not as they are needed."""


class Call(NamedTuple):
  """A call of a layer with a kernel.

  Attributes:
    layer: The layer.
    inputs: Its inputs.
    outputs: Its outputs.
  """

  layer: tf.keras.layers.Layer
  inputs: tf.Tensor
  outputs: tf.Tensor


class LastCalls(NamedTuple):
  """The last calls of layers with a kernel, such as Dense, on the way to the outputs.

  Layers without one, such as activations and normalisations, do not count. There are
  several calls if a network has parallel parts, e.g. separate networks.

  Attributes:
    last: Calls whose outputs no other layer reads.
    hidden: Calls before `last`; the same calls if there are none.
  """

  last: list[Call]
  hidden: list[Call]


class Recorder:
  """Calls a network, and returns the last calls of its layers.

  Args:
    network: A Keras model that has its layers as attributes.
  """

  def __init__(self, network: tf.keras.Model):
    self._network = network
    self._calls: list[Call] = []
    self._layers: set[tf.keras.layers.Layer] = set()
    self._record_layers()

  def _record_layers(self) -> bool:
    """Records the calls of all layers from now on; returns whether some are new."""
    parts = getattr(self._network, 'submodules', ())
    new = {*filter(_is_single_layer, parts)} - self._layers
    for layer in new:
      layer.call = functools.partial(_record, self._calls, layer)(layer.call)
    self._layers |= new
    return bool(new)

  def __call__(self, *inputs: Any) -> tuple[Any, LastCalls]:
    """Returns the network's outputs, and its last calls."""
    self._calls.clear()
    outputs = self._network(*inputs)
    if self._record_layers():  # made in this call, which is not recorded
      self._calls.clear()
      outputs = self._network(*inputs)
    calls = [
      call
      for call in self._calls
      if any(weight.shape.rank > 1 for weight in call.layer.weights)  # kernels
      and _is_single_layer(call.layer)
    ]
    last = _reached(filter(tf.is_tensor, tf.nest.flatten(outputs)), calls)
    hidden = _reached([call.inputs for call in last], calls)
    return outputs, LastCalls(last, hidden or last)


def _record(calls, layer, call):
  """Returns `call` of a layer, which appends its calls to a list."""

  @functools.wraps(call)
  @tf.autograph.experimental.do_not_convert
  def recorded(inputs, *args, **kwargs):
    outputs = call(inputs, *args, **kwargs)
    if tf.is_tensor(inputs) and tf.is_tensor(outputs):
      calls.append(Call(layer, inputs, outputs))
    return outputs

  return recorded


def _is_single_layer(module: tf.Module) -> bool:
  """Returns whether a part of a network is a layer without layers inside.

  A layer used as the activation does not count.
  """
  kind, own = tf.keras.layers.Layer, getattr(module, 'activation', None)
  parts = (part for part in module.submodules if part is not own)
  inside = any(isinstance(part, kind) for part in parts)
  return isinstance(module, kind) and not inside


def _reached(tensors: Iterable[tf.Tensor], calls: Iterable[Call]) -> list[Call]:
  """Returns the calls whose outputs tensors depend on, without calls in between."""
  by_output = {call.outputs.ref(): call for call in calls}
  waiting, seen = list(tensors), set()
  while waiting:
    tensor = waiting.pop()
    if tensor.ref() not in seen:
      seen.add(tensor.ref())
      if tensor.ref() not in by_output:
        waiting += tensor.op.inputs
  return [call for output, call in by_output.items() if output in seen]


def join(calls: Iterable[Call], network: tf.keras.Model) -> tf.Tensor:
  """Returns the inputs of calls as one tensor, float32 (n, k).

  An input of several calls counts once. Outputs have a gradient by the result only if
  it is a single input (n, k), which is returned itself.

  Args:
    calls: Calls of layers of a network.
    network: The network, for the message.

  Raises:
    NoFeaturesError: If there are no calls, or they are within a loop.
  """
  inputs = [*{call.inputs.ref(): call.inputs for call in calls}.values()]
  try:
    parts = [
      tf.reshape(tf.cast(part, tf.float32), (-1, part.shape[1:].num_elements()))
      for part in inputs
    ]
    if len(parts) == 1 and parts[0].shape.rank == inputs[0].shape.rank:
      return tf.cast(inputs[0], tf.float32)  # itself, if it is float32
    if parts:
      return tf.concat(parts, axis=1)
  except ValueError:  # A tensor of a loop cannot be read outside of it.
    pass
  raise NoFeaturesError(
    f'{type(network).__name__} has no features: its last layer is not found. Keep its '
    'layers as attributes of the model, and call them outside of loops.'
  )


def dense_hidden(
  calls: LastCalls, network: tf.keras.Model, purpose: str
) -> Call:
  """Returns the only call of a dense layer before the last one.

  Args:
    calls: Last calls of a network.
    network: The network, for the message.
    purpose: Feature that needs the layer, for the message.

  Raises:
    NoFeaturesError: If there is none, or several.
  """
  hidden = calls.hidden
  if (
    len(hidden) != 1
    or hidden == calls.last
    or hidden[0].inputs.shape.rank != 2
    or hidden[0].outputs.shape.rank != 2
  ):
    raise NoFeaturesError(
      f'{type(network).__name__} cannot be used for {purpose}, which needs one dense '
      'layer before the last layer: choose another network.'
    )
  return hidden[0]
