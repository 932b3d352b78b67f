"""MinAtar (Young and Tian, 2019): five small games, a network, configs."""

from typing import TYPE_CHECKING

from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .environment import MinAtarEnvironment
  from .networks import MinAtarNetwork

__all__ = ['MinAtarEnvironment', 'MinAtarNetwork']
lazy_exports.install(__name__)
