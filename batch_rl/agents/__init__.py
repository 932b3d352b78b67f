"""Agents: their base, and the agents by name."""

from typing import TYPE_CHECKING

from batch_rl import dopamine_compat
from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .batch import Batch
  from .loss_agent import LossAgent
  from .value_agent import ValueAgent

__all__ = ['Batch', 'LossAgent', 'ValueAgent']
lazy_exports.install(__name__)
dopamine_compat.activate()
