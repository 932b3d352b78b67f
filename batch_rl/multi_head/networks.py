"""Networks with several outputs for each action.

The mixins `MultiHead`, `Quantile` and `Categorical` give a Q-network several outputs
an action, and keep its torso and variable names. `MultiNetworkQNetwork` has separate
networks. `with_head` gives a plain network the outputs of an agent: a function or Keras
model `(num_actions, name=...)` whose call returns `.q_values`, e.g. `MinAtarNetwork`. Its
other parameters have defaults.
"""

import math
from typing import Any, NamedTuple

import gin
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.agents import graph_checks, heads


class MultiHeadNetworkType(NamedTuple):
  """Output of a network of `num_heads` Q-functions.

  Attributes:
    q_heads: Q-values of the heads, float32 (batch, num_actions, num_heads).
    q_values: Mean over the heads, float32 (batch, num_actions).
  """

  q_heads: tf.Tensor
  q_values: tf.Tensor

  @property
  def q_networks(self) -> tf.Tensor:
    """Name of 2020 for `q_heads`."""
    return self.q_heads


for _name in ('unordered_q_heads', 'unordered_q_networks'):  # also of 2020
  setattr(MultiHeadNetworkType, _name, MultiHeadNetworkType.q_networks)


class QuantileNetworkType(NamedTuple):
  """Output of a network of `num_atoms` quantiles of the return.

  Attributes:
    quantile_values: Quantiles, float32 (batch, num_actions, num_atoms).
    q_values: Mean over the quantiles, float32 (batch, num_actions).
  """

  quantile_values: tf.Tensor
  q_values: tf.Tensor

  @property
  def logits(self) -> tf.Tensor:
    """Name of 2020 for `quantile_values`."""
    return self.quantile_values


KerasModel: Any = object  # for type checkers a model, which the mixins precede


class _SeveralOutputs(KerasModel):
  """Base of the mixins: gives a Q-network several outputs an action.

  A mixin precedes the network among the base classes: any Keras model with the
  constructor `(num_actions, name=None)` whose `call(state)` returns `.q_values` of shape
  (batch, num_actions).

  Args:
    num_actions: Number of actions.
    num_outputs: Number of outputs an action.
    name: Scope of the variables.
  """

  def __init__(
    self, num_actions: int, num_outputs: int, name: str | None = None
  ):
    super().__init__(num_actions * num_outputs, name=name)
    self._outputs_shape = num_actions, num_outputs

  def values_by_action(self, state: tf.Tensor) -> tf.Tensor:
    """Returns the network's values, (batch, num_actions, num_outputs).

    Raises:
      ValueError: If the network does not return `num_actions * num_outputs` values.
    """
    outputs = super().call(state)
    count = math.prod(self._outputs_shape)
    graph_checks.check_outputs(
      getattr(self, 'q_network', self), outputs, {'q_values': (count,)}
    )
    return tf.reshape(outputs.q_values, (-1, *self._outputs_shape))


class MultiHead(_SeveralOutputs):
  """Mixin that gives a Q-network `num_heads` Q-functions on one torso."""

  def __init__(self, num_actions: int, num_heads: int, name: str | None = None):
    super().__init__(num_actions, num_heads, name=name)

  def call(self, state: tf.Tensor) -> MultiHeadNetworkType:
    """Maps states, (batch, ...), to the Q-values of every head."""
    q_heads = self.values_by_action(state)
    return MultiHeadNetworkType(q_heads, tf.reduce_mean(q_heads, axis=2))


class Quantile(_SeveralOutputs):
  """Mixin that gives a Q-network `num_atoms` quantiles of each action's return."""

  def __init__(self, num_actions: int, num_atoms: int, name: str | None = None):
    super().__init__(num_actions, num_atoms, name=name)

  def call(self, state: tf.Tensor) -> QuantileNetworkType:
    """Maps states, (batch, ...), to the quantiles of every action."""
    quantiles = self.values_by_action(state)
    return QuantileNetworkType(quantiles, tf.reduce_mean(quantiles, axis=2))


class Categorical(_SeveralOutputs):
  """Mixin that gives a Q-network a distribution of each action's return (C51)."""

  def __init__(
    self,
    num_actions: int,
    num_atoms: int,
    support: tf.Tensor,
    name: str | None = None,
  ):
    super().__init__(num_actions, num_atoms, name=name)
    self._support = support

  def call(self, state: tf.Tensor) -> atari_lib.RainbowNetworkType:
    """Maps states, (batch, ...), to Q-values, logits and probabilities."""
    logits = self.values_by_action(state)
    probabilities = tf.nn.softmax(logits)
    q_values = tf.reduce_sum(self._support * probabilities, axis=2)
    return atari_lib.RainbowNetworkType(q_values, logits, probabilities)


@gin.configurable(denylist=['num_actions', 'num_networks', 'name'])
class MultiNetworkQNetwork(tf.keras.Model):
  """Several Q-networks that share no weights."""

  def __init__(
    self,
    num_actions: int,
    num_networks: int,
    network: heads.Network = atari_lib.NatureDQNNetwork,
    name: str | None = None,
  ):
    """Creates the networks `subnet_0`, `subnet_1` and so on.

    Args:
      num_actions: Number of actions.
      num_networks: Number of networks.
      network: Function `(num_actions, name=...)` that builds a network, whose `call`
        returns `.q_values`.
      name: Scope of the variables, as in `Online/subnet_0/Conv/kernel`.
    """
    super().__init__(name=name)
    self._num_actions = num_actions
    self._subnets = [
      network(num_actions, name=f'subnet_{i}') for i in range(num_networks)
    ]

  def call(self, state: tf.Tensor) -> MultiHeadNetworkType:
    """Maps states, (batch, ...), to the Q-values of every network."""
    outputs = [net(state) for net in self._subnets]
    expected = {'q_values': (self._num_actions,)}
    graph_checks.check_outputs(self._subnets[0], outputs[0], expected)
    q_heads = tf.stack([found.q_values for found in outputs], axis=2)
    return MultiHeadNetworkType(q_heads, tf.reduce_mean(q_heads, axis=2))


def with_head(network: heads.Network, head: type) -> type:
  """Returns a class of networks with the outputs of an agent.

  Args:
    network: Plain network `(num_actions, name=...)`.
    head: Mixin of this module.
  """

  class Plain(tf.keras.Model):
    """Base class for the mixin."""

    def __init__(self, num_outputs: int, name: str | None = None):
      super().__init__(name=name)
      self.q_network = network(num_outputs, name='q_network')

    def call(self, state: tf.Tensor) -> Any:
      """Maps states, (batch, ...), to `num_outputs` values."""
      return self.q_network(state)

  name = f'{head.__name__}{getattr(network, "__name__", "Network")}'
  return type(name, (head, Plain), {})
