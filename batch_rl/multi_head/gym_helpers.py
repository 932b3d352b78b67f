"""The networks of `atari_helpers`, for CartPole: small enough for a CPU."""

from collections.abc import Sequence

import gin
from dopamine.discrete_domains import gym_lib

from batch_rl.multi_head import atari_helpers


@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class CartpoleMultiHeadQNetwork(
  atari_helpers.MultiHead, gym_lib.CartpoleDQNNetwork
):
  """CartPole's network with `num_heads` heads."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class CartpoleQuantileNetwork(
  atari_helpers.Quantile, gym_lib.CartpoleDQNNetwork
):
  """CartPole's network with `num_atoms` quantiles an action."""


@gin.configurable(denylist=['num_actions', 'num_networks', 'devices', 'name'])
class CartpoleMultiNetworkQNetwork(atari_helpers.MultiNetworkQNetwork):
  """Several of CartPole's networks."""

  def __init__(
    self,
    num_actions: int,
    num_networks: int,
    devices: Sequence[str] = (),
    name: str | None = None,
  ):
    """Creates the networks; see `MultiNetworkQNetwork` for the arguments."""
    super().__init__(
      num_actions,
      num_networks,
      devices,
      network=gym_lib.CartpoleDQNNetwork,
      name=name,
    )
