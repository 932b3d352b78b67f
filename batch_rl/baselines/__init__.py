"""Online agents, which log data for offline training."""

from typing import TYPE_CHECKING

from batch_rl import dopamine_compat
from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .agents.dqn_agent import LoggedDQNAgent
  from .agents.logged_agent import LoggedAgentMixin
  from .agents.quantile_agent import LoggedQuantileAgent
  from .agents.random_agent import RandomAgent
  from .replay_memory.logged_replay_buffer import WrappedLoggedReplayBuffer
  from .run_experiment import LoggedRunner

__all__ = [
  'LoggedAgentMixin', 'LoggedDQNAgent', 'LoggedQuantileAgent', 'LoggedRunner',
  'RandomAgent', 'WrappedLoggedReplayBuffer',
]  # fmt: skip
lazy_exports.install(__name__)
dopamine_compat.activate()
