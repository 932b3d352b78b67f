"""Networks that compute in bfloat16, for speed, with weights in float32."""

from collections.abc import Callable

import tensorflow as tf

from batch_rl.agents import features

_POLICY = 'mixed_bfloat16'


def build(create: Callable[[], tf.keras.Model]) -> tf.keras.Model:
  """Builds a network whose layers compute in bfloat16.

  Weights and outputs are float32, so losses are computed in float32. Gradients need
  no scaling, since bfloat16 has the exponents of float32. An output layer that is not
  found computes in bfloat16.

  Args:
    create: Function that builds the network. Its output layer, and that of each
      network inside it, must be the last one created.
  """
  layers = tf.compat.v1.keras.layers
  layers.enable_v2_dtype_behavior()  # importing Dopamine has disabled it
  tf.keras.mixed_precision.set_global_policy(_POLICY)
  try:
    network = create()
  finally:
    tf.keras.mixed_precision.set_global_policy(None)
    layers.disable_v2_dtype_behavior()
  _use_float32_outputs(network)
  return network


def check_built(network: tf.keras.Model, agent: type) -> None:
  """Checks that `build` has built an agent's network.

  Args:
    network: Network of the agent.
    agent: Class of the agent.

  Raises:
    ValueError: If it computes in another precision.
  """
  if network.compute_dtype != 'bfloat16':
    raise ValueError(
      f'With mixed_precision, {agent.__name__}._create_network has to call '
      'super()._create_network(name), which makes networks that compute in bfloat16: '
      'change self.network in _build_networks instead, or set mixed_precision to False.'
    )


def _use_float32_outputs(network: tf.keras.layers.Layer) -> None:
  """Replaces the output layers by ones that compute in float32."""
  for part, name, last in features.output_layers(network):
    if not name:
      continue  # Keras does not let us replace layers of its own networks.
    replacement = type(last).from_config(
      {**last.get_config(), 'dtype': 'float32'}
    )
    attribute = getattr(part, name)
    if isinstance(attribute, list):
      # A new list, since Keras does not save a list with a replaced element.
      replacement = [
        replacement if layer is last else layer for layer in attribute
      ]
    setattr(part, name, replacement)
