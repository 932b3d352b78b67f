"""Dopamine's replay memory, which logs every transition added to it."""

import functools
import os
from collections.abc import Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.baselines.replay_memory import offline_rows
from batch_rl.dataset.shards import replay_log
from batch_rl.dataset.store import frame_stacks
from batch_rl.utils import files
from batch_rl.utils.user_code import gin_signatures

# Parameters of the memory that the agent gives.
DENYLIST = 'log_dir observation_shape stack_size update_horizon seed'.split()
STATE_NAME = 'replay_log_ckpt.{}.json'


class ClippedReward(float):
  """A reward clipped to [-1, 1] that carries the unclipped one to the log.

  Dopamine's agents hand a reward to their replay memory as one value, unchanged,
  and have no other argument for the unclipped reward.

  Attributes:
    unclipped: Reward of the environment.
  """

  unclipped: float

  def __new__(cls, reward: float) -> 'ClippedReward':
    """Clips a reward of the environment."""
    unclipped = float(reward)
    clipped = super().__new__(cls, min(max(unclipped, -1.0), 1.0))
    clipped.unclipped = unclipped
    return clipped


class LoggedReplayBuffer(circular_replay_buffer.OutOfGraphReplayBuffer):
  """A circular replay memory whose checkpoint is the log itself.

  Dopamine writes the whole memory (7 GB for a million frames) at every
  checkpoint. Here the rows are on disk already: `save` makes the log durable and
  records its position, `load` returns to that position and refills the memory.

  Args:
    log: Log of the run; an attribute, too.
    *args: Positional arguments of Dopamine's `OutOfGraphReplayBuffer`.
    **kwargs: Keyword arguments of Dopamine's `OutOfGraphReplayBuffer`.

  Attributes:
    offline: Source of logged transitions that each batch also has, after those of the
      memory; None for none.
  """

  offline: offline_rows.OfflineRows | None = None

  def __init__(self, log: replay_log.ReplayLog, *args, **kwargs):
    self.log = log
    super().__init__(*args, **kwargs)
    if self._extra_storage_types:
      logging.warning(
        'The run cannot be resumed: the log lacks extra_storage_types.'
      )

  def log_final_buffer(self) -> None:
    """Writes the last, partial shard. For code written for the 2020 API.

    It closes the log, so nothing can be added afterwards.
    """
    self.log.close()

  def add(self, observation, action, reward, terminal, *args, **kwargs) -> None:
    """Adds a transition to the memory and to the log; see the base class."""
    super().add(observation, action, reward, terminal, *args, **kwargs)
    row = observation, action, reward, terminal
    truncated = kwargs.get('episode_end', False)
    unclipped = getattr(reward, 'unclipped', None)
    self.log.add(*row, truncated, unclipped_reward=unclipped)

  def sample_index_batch(self, batch_size: int) -> list[int]:
    """Returns random valid indices, the same as the base class would draw.

    Args:
      batch_size: Number of indices.

    Raises:
      RuntimeError: If there are too few rows, or too many draws are invalid.
    """
    newest = int(self.cursor()) - self._update_horizon
    oldest = self._stack_size - 1
    if self.is_full():
      oldest += int(self.cursor()) - self._replay_capacity
    elif newest <= oldest:
      return super().sample_index_batch(batch_size)  # raises the error
    indices: list[int] = []
    attempts = 0
    while len(indices) < batch_size and attempts < self._max_sample_attempts:
      drawn = np.random.randint(oldest, newest, batch_size - len(indices))
      drawn %= self._replay_capacity
      valid = drawn[self._are_valid(drawn)]
      attempts += len(drawn) - len(valid)
      indices += valid.tolist()
    if len(indices) != batch_size:
      raise RuntimeError(
        f'Only {len(indices)} of {batch_size} indices were valid after '
        f'{attempts} failed attempts (max_sample_attempts).'
      )
    return indices

  def _are_valid(self, indices: np.ndarray) -> np.ndarray:
    """Returns `is_valid_transition` of indices in the drawn range, bool (n,)."""
    capacity, terminal = self._replay_capacity, self._store['terminal']
    before = np.arange(1 - self._stack_size, 0)
    # `np.isin` takes several times as long.
    valid = ~(indices[:, None] == self.invalid_range).any(axis=1)
    valid &= ~terminal[(indices[:, None] + before) % capacity].any(axis=1)
    # Episodes may end without a terminal.
    for i, index in enumerate(indices.tolist()):
      for j in range(self._update_horizon):
        row = (index + j) % capacity
        if row in self.episode_end_indices and not terminal[row]:
          valid[i] = False
    return valid

  def sample_transition_batch(
    self, batch_size: int | None = None, indices: Sequence[int] | None = None
  ) -> tuple[np.ndarray, ...]:
    """Returns the batch of the base class, but several times as fast.

    Args:
      batch_size: Number of transitions; None for the constructor's.
      indices: Indices of the transitions; None for random valid ones, and those of
        `offline`.

    Raises:
      ValueError: If there are more or fewer indices than transitions.
    """
    if batch_size is None:
      batch_size = self._batch_size
    if indices is None and self.offline is not None:
      size = batch_size - self.offline.count
      own = self.sample_transition_batch(size, self.sample_index_batch(size))
      logged = self.offline.draw(self.get_transition_elements(batch_size))
      return tuple(map(np.concatenate, zip(own, logged, strict=True)))
    if indices is None:
      indices = self.sample_index_batch(batch_size)
    if len(indices) != batch_size:
      raise ValueError(f'{len(indices)} indices for {batch_size} transitions.')
    rows = np.asarray(indices, np.int64)
    store, capacity = self._store, self._replay_capacity
    horizon = self._update_horizon
    ahead = (rows[:, None] + np.arange(horizon)) % capacity
    terminals = store['terminal'][ahead] != 0
    terminal = terminals.any(axis=1)
    steps = np.where(terminal, terminals.argmax(axis=1) + 1, horizon)
    rewards = self._cumulative_discount_vector * store['reward'][ahead]
    rewards[np.arange(horizon) >= steps[:, None]] = 0
    offsets = np.arange(1 - self._stack_size, horizon + 1)
    windows = store['observation'][(rows[:, None] + offsets) % capacity]
    following = (rows + steps) % capacity
    stack = functools.partial(
      frame_stacks.channels_last, windows, stack_size=self._stack_size
    )
    values = {
      'state': stack(np.zeros_like(steps)),
      'action': store['action'][rows],
      'reward': rewards.sum(axis=1),
      'next_state': stack(steps),
      'next_action': store['action'][following],
      'next_reward': store['reward'][following],
      'terminal': terminal,
      'indices': rows,
    }
    # Memories with extra storage have more elements.
    return tuple(
      np.asarray(
        values[e.name] if e.name in values else store[e.name][rows], e.type
      )
      for e in self.get_transition_elements(batch_size)
    )

  def save(self, checkpoint_dir: str, iteration_number: int) -> None:
    """Makes the log durable and records its position.

    Args:
      checkpoint_dir: Directory of the agent's checkpoint.
      iteration_number: Number in the name of the checkpoint.
    """
    count = 0 if self.offline is None else self.offline.next_batch
    save_log(self.log, checkpoint_dir, iteration_number, offline_batches=count)

  def load(self, checkpoint_dir: str, suffix: int) -> None:
    """Restores the log from a checkpoint and refills the memory from the log.

    Args:
      checkpoint_dir: Directory of the agent's checkpoint.
      suffix: Iteration number of the checkpoint.

    Raises:
      tf.errors.NotFoundError: If there is no such checkpoint.
      ValueError: If the log is shorter than at the checkpoint, or lacks columns of the
        memory.
    """
    if self._extra_storage_types:
      raise ValueError(
        'A memory with extra_storage_types cannot be restored: the log lacks them.'
      )
    state = load_log(self.log, checkpoint_dir, suffix)
    if self.offline is not None:
      self.offline.next_batch = state.get('offline_batches', 0)
    capacity = self._replay_capacity
    for name, first_row, rows in self.log.read_back(capacity):
      slots = np.arange(first_row, first_row + len(rows)) % capacity
      self._store[name][slots] = rows
    # The log has terminals at the ends of truncated episodes, too.
    ends = np.array(self.log.truncated_rows, np.int64)
    truncated = ends[ends >= self.log.rows - capacity] % capacity
    terminals = self._store['terminal'][: min(self.log.rows, capacity)]
    self.episode_end_indices = {*np.flatnonzero(terminals).tolist()}
    terminals[truncated] = 0
    self.add_count = np.array(self.log.rows)
    self.invalid_range = circular_replay_buffer.invalid_range(
      self.cursor(), capacity, self._stack_size, self._update_horizon
    )
    self._next_experience_is_episode_start = self.log.at_episode_start


class OutOfGraphLoggedReplayBuffer(LoggedReplayBuffer):
  """A circular replay memory that opens its own log. For the 2020 API.

  New code uses `ReplayLog`, which needs no such memory. As in 2020, a shard is written
  after `replay_capacity` rows, and the last one by `log_final_buffer`. Unlike then, no
  shard is skipped, and a directory with shards is refused rather than overwritten.

  Args:
    log_dir: Directory of the shards; empty, or not there yet.
    *args: Positional arguments of Dopamine's `OutOfGraphReplayBuffer`, whose
      `replay_capacity` is also the shards' capacity.
    **kwargs: Keyword arguments of Dopamine's `OutOfGraphReplayBuffer`.

  Raises:
    ValueError: If `log_dir` holds shards, or an argument is invalid.
  """

  def __init__(self, log_dir: str | os.PathLike, *args, **kwargs):
    # Dopamine's memory takes arguments from gin, too, so it comes before the log.
    super(LoggedReplayBuffer, self).__init__(*args, **kwargs)
    directory = os.fspath(log_dir)
    replay_log.check_log_directory(directory, None)
    frame = self._observation_shape, self._observation_dtype
    sizes = self._replay_capacity, self._stack_size, self._update_horizon
    self.log = replay_log.ReplayLog(directory, *frame, *sizes)


def save_log(
  log: replay_log.ReplayLog, checkpoint_dir: str, number: int, **further: int
) -> None:
  """Checkpoints a log, and further values, beside the agent's checkpoint."""
  path = os.path.join(checkpoint_dir, STATE_NAME.format(number))
  files.write_json(path, {**log.checkpoint(), **further}, durable=False)


def load_log(
  log: replay_log.ReplayLog, checkpoint_dir: str, number: int
) -> dict:
  """Restores a log from the checkpoint with a number; returns all of its values.

  Raises:
    tf.errors.NotFoundError: If there is no such checkpoint.
    ValueError: If the log is shorter than at the checkpoint.
  """
  path = os.path.join(checkpoint_dir, STATE_NAME.format(number))
  with tf.io.gfile.GFile(path, 'rb') as file:
    state = files.parse_json(path, file.read(), dict)
  log.restore(state)
  return state


@gin.configurable(denylist=DENYLIST)
@gin_signatures.forwards_to(
  circular_replay_buffer.WrappedReplayBuffer, without=('wrapped_memory',)
)
class WrappedLoggedReplayBuffer(circular_replay_buffer.WrappedReplayBuffer):
  """Dopamine's in-graph replay memory around a `LoggedReplayBuffer`.

  Args:
    log_dir: Directory of the shards.
    observation_shape: Shape of one frame.
    stack_size: Number of frames in a state.
    use_staging: Unused, as in current Dopamine.
    replay_capacity: Number of rows in memory.
    batch_size: Number of transitions in a batch.
    update_horizon: n of the n-step return, in agent steps.
    gamma: Discount factor.
    observation_dtype: NumPy dtype of a frame.
    shard_capacity: Number of rows in a shard; None for `replay_capacity`, as in the
      dataset.
    offline_dir: Directory of a logged run, or a store, whose transitions each batch
      also has; None for none. The log receives the agent's own experience only.
    offline_fraction: Fraction of each batch drawn from `offline_dir`, 0 (none) to 1.
    offline_subset: Part of that run to use, e.g. 'random_trajectories(0.1)'; see
      `batch_rl.dataset.sampling.subsets`. None for all.
    offline_cache_dir: Directory for compressed runs, as `cache_dir` of
      `FixedReplayBuffer`.
    seed: Seed of the run; None for an unseeded memory.
    **kwargs: Arguments of Dopamine's `OutOfGraphReplayBuffer`.

  Raises:
    ValueError: If `offline_fraction` is positive and `offline_dir` is missing or does
      not fit, see `OfflineRows`.
  """

  def __init__(
    self,
    log_dir: str,
    observation_shape: tuple[int, ...],
    stack_size: int,
    use_staging: bool = False,
    replay_capacity: int = 1_000_000,
    batch_size: int = 32,
    update_horizon: int = 1,
    gamma: float = 0.99,
    *,
    observation_dtype: Any = np.uint8,
    shard_capacity: int | None = None,
    offline_dir: str | None = None,
    offline_fraction: float = 0.0,
    offline_subset: str | None = None,
    offline_cache_dir: str | None = None,
    seed: int | None = None,
    **kwargs: Any,
  ):
    rows = shard_capacity or replay_capacity, stack_size, update_horizon
    log = replay_log.ReplayLog(
      log_dir, observation_shape, observation_dtype, *rows
    )
    frame = observation_shape, stack_size
    sizes = replay_capacity, batch_size, update_horizon, gamma
    memory = LoggedReplayBuffer(
      log, *frame, *sizes, observation_dtype=observation_dtype, **kwargs
    )
    if offline_fraction:
      data = offline_dir, offline_fraction, offline_subset, offline_cache_dir
      memory.offline = offline_rows.OfflineRows(memory, *data, seed)
    elif offline_dir is not None:
      logging.warning(
        'offline_dir has no effect: offline_fraction is 0. Bind it to e.g. 0.5.'
      )
    super().__init__(*frame, use_staging, *sizes, memory)
