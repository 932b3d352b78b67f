"""What makes a Dopamine agent log everything it experiences."""

import os

from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset.shards import replay_log

# What an agent knows of its episode, beside `state`.
_EPISODE = ('action', '_observation', '_last_observation')


def log_directory(replay_log_dir: str) -> str:
  """Where a run's shards go: `replay_logs` inside the run's directory."""
  if os.path.basename(os.path.normpath(replay_log_dir)) == 'replay_logs':
    return replay_log_dir
  return os.path.join(replay_log_dir, 'replay_logs')


class LoggedAgentMixin:
  """Put before a Dopamine agent, it makes the agent's replay memory a log.

  Args:
    sess: `tf.compat.v1.Session`, or None for the agent to make its own.
    num_actions: number of actions.
    replay_log_dir: the run's directory; shards go to its `replay_logs`.
    **kwargs: as the agent's.
  """

  def __init__(self, sess, num_actions, replay_log_dir, **kwargs):
    self._log_dir = log_directory(replay_log_dir)
    super().__init__(sess, num_actions, **kwargs)

  @property
  def replay_log(self) -> replay_log.ReplayLog:
    """The log of the run; the runner tells it unclipped rewards and metadata."""
    return self._replay.memory.log

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict | None:
    """Dopamine's, and what the agent has to know within an episode."""
    bundle = super().bundle_and_checkpoint(checkpoint_dir, iteration_number)
    if bundle is not None:
      bundle['episode'] = {name: vars(self).get(name) for name in _EPISODE}
    return bundle

  def unbundle(
    self,
    checkpoint_dir: str,
    iteration_number: int,
    bundle_dictionary: dict | None,
  ) -> bool:
    """Comes back to a checkpoint. False if it is not whole."""
    if not super().unbundle(
      checkpoint_dir, iteration_number, bundle_dictionary
    ):
      return False
    vars(self).update((bundle_dictionary or {}).get('episode', {}))
    return True

  def _build_replay_buffer(self, use_staging):
    return logged_replay_buffer.WrappedLoggedReplayBuffer(
      log_dir=self._log_dir,
      observation_shape=self.observation_shape,
      stack_size=self.stack_size,
      use_staging=use_staging,
      update_horizon=self.update_horizon,
      gamma=self.gamma,
      observation_dtype=self.observation_dtype.as_numpy_dtype,
    )

  def _store_transition(
    self, last_observation, action, reward, is_terminal, priority=None
  ):
    del priority  # Rainbow's; the memory of a logged agent samples uniformly
    if not self.eval_mode:
      self._replay.add(last_observation, action, reward, is_terminal)
