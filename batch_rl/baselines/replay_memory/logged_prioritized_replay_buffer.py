"""Name of 2020 for the logged memory, which gin files import and bind.

There is no prioritised memory that logs: agents get a `WrappedLoggedReplayBuffer`.
"""

import gin

from batch_rl.baselines.replay_memory import logged_replay_buffer


@gin.configurable(denylist=logged_replay_buffer.DENYLIST)
class WrappedLoggedPrioritizedReplayBuffer(
  logged_replay_buffer.WrappedLoggedReplayBuffer
):
  """A `WrappedLoggedReplayBuffer` under its name of 2020; it samples uniformly.

  The training program binds its parameters for `WrappedLoggedReplayBuffer`.
  """
