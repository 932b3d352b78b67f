"""Offline training and evaluation."""

from typing import TYPE_CHECKING

from batch_rl import dopamine_compat
from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from ..utils.seeding import run_seed
  from .agents.bc_agent import FixedReplayBCAgent
  from .agents.dqn_agent import FixedReplayDQNAgent
  from .agents.fixed_replay_agent import FixedReplayAgentMixin
  from .agents.iql_agent import FixedReplayIQLAgent
  from .agents.iqn_agent import FixedReplayImplicitQuantileAgent
  from .agents.multi_head_dqn_agent import FixedReplayMultiHeadDQNAgent
  from .agents.multi_network_dqn_agent import FixedReplayMultiNetworkDQNAgent
  from .agents.quantile_agent import FixedReplayQuantileAgent
  from .agents.rainbow_agent import FixedReplayRainbowAgent
  from .frozen_policy import FrozenPolicy, PolicyOfRun
  from .replay_memory.fixed_replay_buffer import (
    FixedReplayBuffer,
    WrappedFixedReplayBuffer,
  )
  from .run_experiment import FixedReplayRunner

__all__ = [
  'FixedReplayAgentMixin', 'FixedReplayBCAgent', 'FixedReplayBuffer',
  'FixedReplayDQNAgent', 'FixedReplayIQLAgent', 'FixedReplayImplicitQuantileAgent',
  'FixedReplayMultiHeadDQNAgent', 'FixedReplayMultiNetworkDQNAgent',
  'FixedReplayQuantileAgent', 'FixedReplayRainbowAgent', 'FixedReplayRunner',
  'FrozenPolicy', 'PolicyOfRun', 'WrappedFixedReplayBuffer', 'run_seed',
]  # fmt: skip
lazy_exports.install(__name__)
dopamine_compat.activate()
