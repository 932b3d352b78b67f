"""Base of the online agents: a mixin that logs the experience of Dopamine agents."""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from batch_rl.agents import loss_agent, session_calls
from batch_rl.baselines.replay_memory import logged_replay_buffer, offline_rows
from batch_rl.dataset.shards import replay_log
from batch_rl.runs import initial_weights
from batch_rl.utils.user_code import gin_signatures

# Attributes of the current episode, besides `state`.
_EPISODE = ('action', '_observation', '_last_observation')


def log_directory(replay_log_dir: str) -> str:
  """Returns the directory of a run's shards, `<run>/replay_logs`."""
  if os.path.basename(os.path.normpath(replay_log_dir)) == 'replay_logs':
    return replay_log_dir
  return os.path.join(replay_log_dir, 'replay_logs')


class LoggedAgentMixin(
  gin_signatures.ForwardedParameters, loss_agent.DopamineAgent
):
  """Mixin that makes a Dopamine agent's replay memory also write a log.

  It precedes the agent among the base classes.

  Args:
    sess: TensorFlow session; None creates one.
    num_actions: Number of actions.
    replay_log_dir: Run directory; shards go to its `replay_logs`.
    seed: Seed of the run; None for an unseeded agent.
    init_checkpoint_dir: Directory of the initial weights: a run's `base_dir`, online
      or offline, or a folder of TensorFlow checkpoints. The newest checkpoint is used.
      The optimiser starts anew. None for random weights.
    **kwargs: Arguments of the agent.

  Raises:
    ValueError: If the checkpoint does not fit the networks, or the offline data of the
      memory does not fit.
  """

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    replay_log_dir: str,
    seed: int | None = None,
    init_checkpoint_dir: str | os.PathLike[str] | None = None,
    **kwargs: Any,
  ):
    # The second name is for code of 2020.
    self._log_dir = self._replay_log_dir = log_directory(replay_log_dir)
    self._seed = seed
    if gin_signatures.next_accepts(self, LoggedAgentMixin, 'seed'):
      kwargs['seed'] = seed
    super().__init__(sess, num_actions, **kwargs)
    session_calls.shorten(self._sess)
    if init_checkpoint_dir is not None:
      initial_weights.load(self._sess, os.fspath(init_checkpoint_dir))

  @property
  def replay_log(self) -> replay_log.ReplayLog:
    """Log of the run."""
    return self._replay.memory.log

  @property
  def offline_rows(self) -> offline_rows.OfflineRows | None:
    """Source of the logged transitions in each batch; None for none."""
    return getattr(self._replay.memory, 'offline', None)

  def log_final_buffer(self) -> None:
    """Writes the last, partial shard. For code written for the 2020 API."""
    self.replay_log.close()

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict | None:
    """Saves as the agent does, with the state of the current episode."""
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
    """Restores a checkpoint; returns False if it is incomplete."""
    if not super().unbundle(
      checkpoint_dir, iteration_number, bundle_dictionary
    ):
      return False
    vars(self).update((bundle_dictionary or {}).get('episode', {}))
    return True

  def _train_step(self):
    try:
      super()._train_step()
    except tf.errors.OpError:
      if self.offline_rows is not None:
        self.offline_rows.raise_error()  # one line instead of TensorFlow's report
      raise

  def _record_observation(self, observation):
    # The environment may reuse its array.
    super()._record_observation(np.array(observation))

  def _build_replay_buffer(self, use_staging):
    # An update needs a complete transition in memory.
    complete = self.stack_size + self.update_horizon - 1
    self.min_replay_history = max(self.min_replay_history, complete)
    replay = logged_replay_buffer.WrappedLoggedReplayBuffer(
      log_dir=self._log_dir,
      observation_shape=self.observation_shape,
      stack_size=self.stack_size,
      use_staging=use_staging,
      update_horizon=self.update_horizon,
      gamma=self.gamma,
      observation_dtype=self.observation_dtype.as_numpy_dtype,
      seed=self._seed,
    )
    if replay.memory.offline is not None:
      replay.memory.offline.check_actions(self.num_actions)
    return replay

  def _store_transition(
    self, last_observation, action, reward, is_terminal, priority=None
  ):
    del priority  # Rainbow's; the memory of logged agents samples uniformly
    if not self.eval_mode:
      self._replay.add(last_observation, action, reward, is_terminal)
