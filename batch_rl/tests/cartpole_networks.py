"""The networks of `networks` for CartPole.

Agents make them for other environments, such as Acrobot, from Dopamine's own networks.
"""

import gin
from dopamine.discrete_domains import gym_lib

from batch_rl.multi_head import networks


@gin.configurable(denylist=['num_actions', 'num_heads', 'name'])
class CartpoleMultiHeadQNetwork(networks.MultiHead, gym_lib.CartpoleDQNNetwork):
  """CartPole's network with several heads."""


@gin.configurable(denylist=['num_actions', 'num_atoms', 'name'])
class CartpoleQuantileNetwork(networks.Quantile, gym_lib.CartpoleDQNNetwork):
  """CartPole's network with several quantiles per action."""


@gin.configurable(denylist=['num_actions', 'num_networks', 'name'])
class CartpoleMultiNetworkQNetwork(networks.MultiNetworkQNetwork):
  """Several of CartPole's networks."""

  def __init__(self, num_actions, num_networks, name=None):
    network = gym_lib.CartpoleDQNNetwork
    super().__init__(num_actions, num_networks, network, name)
