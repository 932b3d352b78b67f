"""Agent that acts uniformly at random and logs its experience."""

import inspect
from collections.abc import Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.baselines.agents import logged_agent
from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset.shards import replay_log
from batch_rl.utils import seeding
from batch_rl.utils.user_code import gin_signatures


@gin.configurable
@gin_signatures.forwards_to(dqn_agent.DQNAgent)
class RandomAgent(gin_signatures.ForwardedParameters):
  """Agent with Dopamine's interface, random actions and no network.

  Args:
    sess: TensorFlow session, kept for Dopamine's runner; None creates one.
    num_actions: Number of actions.
    replay_log_dir: Run directory; shards go to its `replay_logs`.
    observation_shape: Shape of one observation.
    observation_dtype: `tf.DType` of an observation.
    stack_size: Number of frames in a state of the agents that will train on the
      log. Each episode starts with `stack_size - 1` rows of padding.
    shard_capacity: Number of rows in a shard.
    summary_writer: Directory or writer of the TensorBoard files; None for no files.
    seed: Seed of the run, from which the actions are drawn; None for an unseeded
      agent.
    **unused: Other arguments of `DQNAgent`, the base class in 2020. They have no
      effect.

  Attributes:
    replay_log: Log of the run.
  """

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    replay_log_dir: str,
    observation_shape: Sequence[int] = dqn_agent.NATURE_DQN_OBSERVATION_SHAPE,
    observation_dtype: tf.DType = dqn_agent.NATURE_DQN_DTYPE,
    stack_size: int = dqn_agent.NATURE_DQN_STACK_SIZE,
    shard_capacity: int = 1_000_000,
    summary_writer: Any = None,
    seed: int | None = None,
    **unused: Any,
  ):
    inspect.signature(dqn_agent.DQNAgent).bind_partial(**unused)  # their names
    self._sess = sess or tf.compat.v1.Session()
    self.num_actions = num_actions
    self.eval_mode = False
    self.summary_writer = summary_writer
    if isinstance(summary_writer, str):
      self.summary_writer = tf.compat.v1.summary.FileWriter(summary_writer)
    self.observation_shape = tuple(observation_shape)
    self.observation_dtype = observation_dtype
    self._observation: Any = None
    self._action = 0
    self._random = np.random.default_rng(seeding.derive(seed, 'exploration'))
    directory = logged_agent.log_directory(replay_log_dir)
    frame = self.observation_shape, observation_dtype.as_numpy_dtype
    self.replay_log = replay_log.ReplayLog(
      directory, *frame, shard_capacity, stack_size
    )

  def log_final_buffer(self) -> None:
    """Writes the last, partial shard. For code written for the 2020 API."""
    self.replay_log.close()

  def begin_episode(self, observation: np.ndarray) -> int:
    """Returns the first action of an episode."""
    return self._act(observation)

  def step(self, reward: float, observation: np.ndarray) -> int:
    """Logs the last transition and returns the next action."""
    self._store(reward, terminal=False)
    return self._act(observation)

  def end_episode(self, reward: float) -> None:
    """Logs the end of an episode."""
    self._store(reward, terminal=True)

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict[str, Any]:
    """Checkpoints the log; returns the states of generator and episode."""
    logged_replay_buffer.save_log(
      self.replay_log, checkpoint_dir, iteration_number
    )
    return {
      'random_state': self._random.bit_generator.state,
      'episode': (self._observation, self._action),
    }

  def unbundle(
    self, checkpoint_dir: str, iteration_number: int, bundle: dict | None
  ) -> bool:
    """Restores a checkpoint; returns False if there is none."""
    if bundle is None:
      return False
    logged_replay_buffer.load_log(
      self.replay_log, checkpoint_dir, iteration_number
    )
    self._random.bit_generator.state = bundle['random_state']
    self._observation, self._action = bundle.get('episode', (None, 0))
    return True

  def _act(self, observation) -> int:
    # The environment may reuse its array.
    self._observation = np.array(observation).reshape(self.observation_shape)
    self._action = int(self._random.integers(self.num_actions))
    return self._action

  def _store(self, reward, terminal: bool) -> None:
    if not self.eval_mode:
      row = self._observation, self._action, reward, terminal
      unclipped = getattr(reward, 'unclipped', None)
      self.replay_log.add(*row, unclipped_reward=unclipped)
