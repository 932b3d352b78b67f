"""The networks of `networks` for CartPole and Acrobot."""

from collections.abc import Callable, Sequence

import gin
import tensorflow as tf
from dopamine.discrete_domains import gym_lib

from batch_rl.multi_head import networks


class _MultiNetwork(networks.MultiNetworkQNetwork):
  """Several networks of the class `_network`, which subclasses set."""

  _network: Callable[..., tf.keras.Model]

  def __init__(
    self,
    num_actions: int,
    num_networks: int,
    devices: Sequence[str] = (),
    name: str | None = None,
  ):
    """Creates the networks; see `MultiNetworkQNetwork` for the arguments."""
    super().__init__(
      num_actions, num_networks, devices, network=self._network, name=name
    )


@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class CartpoleMultiHeadQNetwork(networks.MultiHead, gym_lib.CartpoleDQNNetwork):
  """CartPole's network with `num_heads` heads."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class CartpoleQuantileNetwork(networks.Quantile, gym_lib.CartpoleDQNNetwork):
  """CartPole's network with `num_atoms` quantiles per action."""


@gin.configurable(denylist=['num_actions', 'num_networks', 'devices', 'name'])
class CartpoleMultiNetworkQNetwork(_MultiNetwork):
  """Several of CartPole's networks."""

  _network = gym_lib.CartpoleDQNNetwork


@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class AcrobotMultiHeadQNetwork(networks.MultiHead, gym_lib.AcrobotDQNNetwork):
  """Acrobot's network with `num_heads` heads."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class AcrobotQuantileNetwork(networks.Quantile, gym_lib.AcrobotDQNNetwork):
  """Acrobot's network with `num_atoms` quantiles per action."""


@gin.configurable(denylist=['num_actions', 'num_networks', 'devices', 'name'])
class AcrobotMultiNetworkQNetwork(_MultiNetwork):
  """Several of Acrobot's networks."""

  _network = gym_lib.AcrobotDQNNetwork
