"""Networks that compute in bfloat16, for speed, and keep their weights in float32."""

from collections.abc import Callable

import tensorflow as tf

_POLICY = 'mixed_bfloat16'


def build(create: Callable[[], tf.keras.Model]) -> tf.keras.Model:
  """Builds a network whose layers compute in bfloat16.

  Weights are float32, and so is what the last layer gives: losses are computed
  as ever. bfloat16 has the exponents of float32, so that gradients need no scale.

  Args:
    create: builds the network. Of it, and of each network in it, the layer that
      was made last gives the output.

  Returns:
    The network.
  """
  layers = tf.compat.v1.keras.layers
  layers.enable_v2_dtype_behavior()  # importing Dopamine has disabled it
  tf.keras.mixed_precision.set_global_policy(_POLICY)
  try:
    network = create()
  finally:
    tf.keras.mixed_precision.set_global_policy(None)
    layers.disable_v2_dtype_behavior()
  _give_float32(network)
  return network


def _give_float32(network: tf.keras.layers.Layer) -> None:
  """Makes the layers that give the output compute in float32."""
  layers = [
    (name, layer)
    for name, part in vars(network).items()
    for layer in (part if isinstance(part, list) else [part])
    if isinstance(layer, tf.keras.layers.Layer)
  ]
  networks = {id(part): part for _, part in layers if part.submodules}
  for part in networks.values():
    _give_float32(part)
  if not networks:
    name, last = layers[-1]
    exact = type(last).from_config({**last.get_config(), 'dtype': 'float32'})
    attribute = getattr(network, name)
    if isinstance(attribute, list):
      # A new list: Keras does not save one in which an element was replaced.
      exact = [exact if layer is last else layer for layer in attribute]
    setattr(network, name, exact)
