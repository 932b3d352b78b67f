"""Networks, losses and agents with several outputs per action: ensembles, REM, QR-DQN."""

from typing import TYPE_CHECKING

from batch_rl import dopamine_compat
from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .atari_helpers import MultiHeadQNetwork, QuantileNetwork
  from .atoms import Categorical, HLGauss, TwoHot
  from .ensembles import Ensemble, SeparateNetworks
  from .implicit_quantiles import ImplicitQuantiles
  from .multi_head_dqn_agent import MultiHeadDQNAgent
  from .multi_network_dqn_agent import MultiNetworkDQNAgent
  from .quantile_agent import QuantileAgent
  from .quantiles import Quantiles

__all__ = [
  'Categorical', 'Ensemble', 'HLGauss', 'ImplicitQuantiles',
  'MultiHeadDQNAgent', 'MultiHeadQNetwork', 'MultiNetworkDQNAgent',
  'QuantileAgent', 'QuantileNetwork', 'Quantiles', 'SeparateNetworks', 'TwoHot',
]  # fmt: skip
lazy_exports.install(__name__)
dopamine_compat.activate()
