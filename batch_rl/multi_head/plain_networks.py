"""Networks of all agents, made from one plain Q-network.

A plain network is a function or Keras model `(num_actions, name=...)` whose call returns
`.q_values`, e.g. `MinAtarNetwork`. Further parameters have defaults. Bound as the
`network` of any agent, it becomes that agent's: with several outputs an action, or
several times.
"""

import inspect
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from batch_rl.multi_head import atari_helpers

Network = Callable[..., tf.keras.Model]


def with_head(network: Network, head: type, *arguments: Any) -> Network:
  """Returns a network with the outputs of an agent.

  Args:
    network: The agent's network `(num_actions, *arguments, name=...)`, or a plain one.
    head: Mixin of `atari_helpers` that gives a plain network the outputs.
    *arguments: Arguments of the head, e.g. the number of heads.

  Returns:
    `network` itself, unless it is plain.
  """
  if not _is_plain(network, *arguments):
    return network

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


def several(network: Network, *arguments: Any) -> Network:
  """Returns several networks for an agent with separate ones.

  Args:
    network: The agent's network `(num_actions, *arguments, name=...)`, or a plain one.
    *arguments: Number of networks and devices.

  Returns:
    `network` itself, unless it is plain.
  """
  if not _is_plain(network, *arguments):
    return network

  def make(*args: Any, name: str | None = None) -> tf.keras.Model:
    return atari_helpers.MultiNetworkQNetwork(*args, network=network, name=name)

  return make


def signature_of(network: Network) -> inspect.Signature:
  """Returns the parameters of a network's function or constructor."""
  if not isinstance(network, type):
    return inspect.signature(network)
  # Python 3.10 returns the signature of `Model.__new__` for a Keras class that inherits
  # its constructor.
  return inspect.signature(types.MethodType(network.__init__, network))


class RainbowNetworks:
  """Mixin before Dopamine's `RainbowAgent`, which then takes plain networks, too."""

  network: Network
  num_actions: int
  _num_atoms: int
  _support: tf.Tensor

  def _create_network(self, name: str) -> tf.keras.Model:
    arguments = self._num_atoms, self._support
    network = with_head(self.network, atari_helpers.Categorical, *arguments)
    return network(self.num_actions, *arguments, name=name)


def _is_plain(network: Network, *arguments: Any) -> bool:
  """Returns whether a network takes no number of outputs an action.

  A parameter with a default is a setting of a plain network, e.g. the size of a layer,
  unless its name is `num_...`.
  """
  signature = signature_of(network)
  try:
    signature.bind(1, *arguments, name='')
  except TypeError:
    return True
  _, second, *_ = [*signature.parameters.values(), None]
  return (
    second is not None
    and second.kind is second.POSITIONAL_OR_KEYWORD
    and second.default is not second.empty
    and not second.name.startswith('num_')
  )
