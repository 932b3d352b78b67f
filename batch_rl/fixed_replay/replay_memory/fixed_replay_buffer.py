"""A replay memory that holds logged shards and never changes."""

import concurrent.futures
import inspect
import os
from collections.abc import Sequence

import gin
import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl import seeding, signatures
from batch_rl.dataset import shard


class ShardReplayBuffer(circular_replay_buffer.OutOfGraphReplayBuffer):
  """One shard in memory, with Dopamine's interface.

  Its size is that of the shard, or the first `replay_capacity` rows of it. Takes
  the arguments of `OutOfGraphReplayBuffer`; nothing is allocated before `load`.
  """

  def _create_storage(self):
    self._store = {}

  def load(self, checkpoint_dir: str, suffix: int) -> None:
    """Reads the shard.

    Args:
      checkpoint_dir: the directory of the shards.
      suffix: the number of the shard.

    Raises:
      ValueError: if the shard is missing or damaged, or its frames are not
        `observation_shape`.
    """
    loaded = shard.read_shard(
      checkpoint_dir, suffix, max_rows=self._replay_capacity
    )
    frames = loaded.columns['observation']
    found = (frames.shape[1:], frames.dtype)
    expected = (self._observation_shape, np.dtype(self._observation_dtype))
    if found != expected:
      raise ValueError(
        f'Shard {suffix} in {checkpoint_dir} holds observations of shape '
        f'{found[0]} {found[1]}, the agent expects {expected[0]} {expected[1]}.'
      )
    self._store = dict(loaded.columns)
    self._replay_capacity = loaded.capacity
    self.add_count = np.array(loaded.add_count)
    if loaded.capacity < loaded.rows_on_disk:
      # Of a longer shard, rows up to the cursor are in order: a memory that
      # hasn't wrapped.
      in_order = (loaded.add_count - 1) % loaded.rows_on_disk + 1
      self.add_count = np.array(min(in_order, loaded.capacity))
    self.invalid_range = circular_replay_buffer.invalid_range(
      self.cursor(),
      self._replay_capacity,
      self._stack_size,
      self._update_horizon,
    )
    self.episode_end_indices = set(
      np.flatnonzero(self._store['terminal']).tolist()
    )

  def sample_transition_batch(
    self,
    batch_size: int | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
  ) -> tuple[np.ndarray, ...]:
    """See the base class; gathers the batch without a loop over transitions."""
    batch_size = self._batch_size if batch_size is None else batch_size
    if indices is None:
      indices = self.sample_index_batch(batch_size)
    if len(indices) != batch_size:
      raise ValueError(f'{len(indices)} indices for batch_size={batch_size}.')
    rows = np.asarray(indices, np.int64)
    reward, terminal, steps = self._n_step(rows)
    next_rows = (rows + steps) % self._replay_capacity
    values = {
      'state': lambda: self._stacks(rows),
      'action': lambda: self._store['action'][rows],
      'reward': lambda: reward,
      'next_state': lambda: self._stacks(next_rows),
      'next_action': lambda: self._store['action'][next_rows],
      'next_reward': lambda: self._store['reward'][next_rows],
      'terminal': lambda: terminal,
      'indices': lambda: rows,
    }
    return tuple(
      np.ascontiguousarray(values[element.name](), element.type)
      for element in self.get_transition_elements(batch_size)
    )

  def _n_step(self, rows):
    """Returns of up to `update_horizon` steps, ends of episodes, steps taken.

    R = sum_{j < n} gamma^j r_{t+j}, cut after the first terminal; n is
    `update_horizon`. All are (batch,).
    """
    horizon = self._update_horizon
    window = (rows[:, None] + np.arange(horizon)) % self._replay_capacity
    ends = self._store['terminal'][window] != 0
    ended_before = np.cumsum(ends, axis=1) - ends > 0
    discounts = np.where(ended_before, 0, self._cumulative_discount_vector)
    reward = np.sum(discounts * self._store['reward'][window], axis=1)
    return reward, ends.any(axis=1), horizon - ended_before.sum(axis=1)

  def _stacks(self, rows):
    """States, (batch, *observation_shape, stack_size)."""
    window = rows[:, None] + np.arange(1 - self._stack_size, 1)
    stacks = self._store['observation'][window % self._replay_capacity]
    return np.moveaxis(stacks, 1, -1)


def valid_indices(
  buffer: circular_replay_buffer.OutOfGraphReplayBuffer,
) -> np.ndarray:
  """Rows of a loaded shard that are the state of a whole transition.

  A row is valid if it is not padding, if none of the `stack_size - 1` rows before
  it, in time, ends an episode, and if the next state `update_horizon` rows later
  is in the shard or an episode ends before it: the last transition of an episode
  is valid, stale rows never are. Dopamine's own memory fails on a terminal row
  without a row after it, so there the next state must exist.

  Returns:
    int64 (n,), ascending in time.
  """
  # pylint: disable=protected-access
  stack_size, horizon = buffer._stack_size, buffer._update_horizon
  terminal = buffer._store['terminal']
  observation = buffer._store['observation']
  order = shard.time_order(
    int(buffer.add_count), min(buffer._replay_capacity, len(terminal))
  )
  ends = terminal[order] != 0
  count = len(order)
  ends_before = np.concatenate([[0], np.cumsum(ends)])  # in rows [0, i)
  row = np.arange(count)
  stack_start = np.maximum(row - stack_size + 1, 0)
  valid = row >= stack_size - 1
  valid &= ends_before[row] == ends_before[stack_start]
  after = row + horizon
  ends_within = ends_before[np.minimum(after, count)] > ends_before[row]
  if isinstance(buffer, ShardReplayBuffer):
    valid &= (after < count) | ends_within
  else:
    valid &= after < count

  padding = shard.padding_rows(observation, order, ends)
  for start in np.flatnonzero(ends) + 1:
    valid[start : start + padding] = False
  # The shard may start within the padding of an episode.
  first_rows = order[:padding]
  axes = tuple(range(1, observation.ndim))
  valid[:padding] &= observation[first_rows].any(axis=axes)
  return order[valid]


@gin.configurable(denylist=['data_dir', 'replay_suffix'])
class FixedReplayBuffer:
  """Some shards of a run, sampled uniformly over their valid transitions.

  Args:
    data_dir: the directory of the shards (`<run>/replay_logs`).
    replay_suffix: the one shard to use; None for `num_buffers` random ones.
    *args: as `OutOfGraphReplayBuffer`, for each shard.
    replay_file_start_index: first shard to choose from, counted from 0.
    replay_file_end_index: one past the last; None for all.
    num_buffers: how many shards are in memory at a time; None for all.
    seed: of the choice of shards and transitions.
    **kwargs: as `OutOfGraphReplayBuffer`, for each shard.

  Raises:
    ValueError: if there is no such shard, or it cannot be read, or the shards
      would not fit into memory.
  """

  def __init__(
    self,
    data_dir,
    replay_suffix,
    *args,
    replay_file_start_index=0,
    replay_file_end_index=None,
    num_buffers=5,
    seed=None,
    **kwargs,
  ):
    self._args = args
    self._kwargs = kwargs
    self._data_dir = data_dir
    self._random = np.random.default_rng(seed)
    self._buffers_by_suffix = {}
    suffixes = shard.list_suffixes(data_dir)
    self._suffixes = suffixes[replay_file_start_index:replay_file_end_index]
    if not self._suffixes:
      raise ValueError(
        f'No shard between replay_file_start_index={replay_file_start_index} '
        f'and replay_file_end_index={replay_file_end_index}: {data_dir} has '
        f'{len(suffixes)}, numbered {suffixes[0]} to {suffixes[-1]}.'
      )
    for gap in shard.find_gaps(data_dir, self._suffixes):
      logging.warning('%s', gap)
    if replay_suffix is not None:
      self.load_single_buffer(replay_suffix)
    else:
      self.reload_buffer(num_buffers)

  def load_single_buffer(self, suffix: int) -> None:
    """Makes one shard the data.

    Args:
      suffix: its number.

    Raises:
      ValueError: if there is no such shard, it cannot be read, or it holds no
        whole transition.
    """
    self._load([suffix])
    if not len(self._valid):
      raise ValueError(
        f'No whole transition in shard {suffix} of {self._data_dir}.'
      )

  def reload_buffer(self, num_buffers: int | None = None) -> None:
    """Makes randomly chosen shards the data; those in memory are not read again.

    Args:
      num_buffers: how many; None for all, fewer if there are fewer.

    Raises:
      ValueError: if a shard cannot be read, memory does not suffice, or no shard
        holds a whole transition.
    """
    while self._suffixes:
      count = min(num_buffers or len(self._suffixes), len(self._suffixes))
      chosen = self._random.choice(self._suffixes, count, replace=False)
      self._load(sorted(int(suffix) for suffix in chosen))
      if len(self._valid):
        return
      # The final shard of a run may be a row or two.
      self._suffixes = [s for s in self._suffixes if s not in chosen]
    raise ValueError(f'No whole transition in any shard of {self._data_dir}.')

  def reseed(self, seed: int | None) -> None:
    """Restarts the random choice of shards and transitions from a seed."""
    self._random = np.random.default_rng(seed)

  def _load(self, suffixes: list[int]) -> None:
    # Forget first: old and new shards need not fit into memory together.
    self._replay_buffers = []
    self._buffers_by_suffix = {
      suffix: buffer
      for suffix, buffer in self._buffers_by_suffix.items()
      if suffix in suffixes
    }
    missing = [s for s in suffixes if s not in self._buffers_by_suffix]
    shard.check_memory(self._data_dir, missing, self._rows_of_a_shard())
    # Inflating releases the interpreter's lock, so threads do.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
      for suffix, buffer in zip(
        missing, pool.map(self._load_buffer, missing), strict=True
      ):
        if buffer is None:
          raise ValueError(f'There is no shard {suffix} in {self._data_dir}.')
        self._buffers_by_suffix[suffix] = buffer
    self._replay_buffers = [self._buffers_by_suffix[s] for s in suffixes]
    capacities = [b._replay_capacity for b in self._replay_buffers]
    # Row i of the data is row i - first_row[j] of the shard j it falls into.
    self._first_rows = np.concatenate([[0], np.cumsum(capacities)])
    self._valid = np.concatenate(
      [
        first + valid_indices(buffer)
        for first, buffer in zip(
          self._first_rows, self._replay_buffers, strict=False
        )
      ]
    )
    logging.info(
      'Replay: %d transitions in %d of %d shards (%s).',
      len(self._valid),
      len(suffixes),
      len(self._suffixes),
      self._data_dir,
    )

  def _rows_of_a_shard(self):
    """At most so many rows of a shard are kept: `replay_capacity`."""
    arguments = inspect.signature(ShardReplayBuffer.__init__).bind(
      None, *self._args, **self._kwargs
    )
    return arguments.arguments['replay_capacity']

  def _load_buffer(self, suffix):
    """Reads one shard; subclasses may return another buffer, or None."""
    buffer = ShardReplayBuffer(*self._args, **self._kwargs)
    buffer.load(self._data_dir, suffix)
    return buffer

  @property
  def add_count(self) -> np.ndarray:
    """Transitions that can be sampled, int64 ()."""
    return np.array(len(self._valid))

  @property
  def num_shards(self) -> int:
    """Shards to choose from."""
    return len(self._suffixes)

  def action_range(self) -> tuple[int, int]:
    """The smallest and the largest action in the shards in memory."""
    actions = [buffer._store['action'] for buffer in self._replay_buffers]
    return (
      min(int(column.min()) for column in actions),
      max(int(column.max()) for column in actions),
    )

  def get_transition_elements(
    self, batch_size: int | None = None
  ) -> list[circular_replay_buffer.ReplayElement]:
    """Names, shapes and types of a batch; see `OutOfGraphReplayBuffer`."""
    return self._replay_buffers[0].get_transition_elements(batch_size)

  def sample_index_batch(self, batch_size: int) -> np.ndarray:
    """Valid indices, uniform with replacement: int64 (batch_size,)."""
    return self._valid[self._random.integers(len(self._valid), size=batch_size)]

  def sample_transition_batch(
    self,
    batch_size: int | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
  ) -> tuple[np.ndarray, ...]:
    """A batch of transitions, as Dopamine's `OutOfGraphReplayBuffer` gives it.

    Args:
      batch_size: number of transitions; None for the constructor's.
      indices: rows of the shards in memory, laid end to end in ascending order
        of their numbers; None for uniformly random valid ones.

    Returns:
      A tuple of arrays, described by `get_transition_elements`.
    """
    if batch_size is None:
      batch_size = self._replay_buffers[0]._batch_size
    if indices is None:
      indices = self.sample_index_batch(batch_size)
    if len(self._replay_buffers) == 1:
      return self._replay_buffers[0].sample_transition_batch(
        batch_size, indices
      )
    indices = np.asarray(indices)
    if len(indices) != batch_size:
      raise ValueError(f'{len(indices)} indices for batch_size={batch_size}.')
    which = np.searchsorted(self._first_rows, indices, side='right') - 1
    batch = tuple(
      np.empty(element.shape, element.type)
      for element in self.get_transition_elements(batch_size)
    )
    for j in np.unique(which):
      places = np.flatnonzero(which == j)
      part = self._replay_buffers[j].sample_transition_batch(
        len(places), indices[places] - self._first_rows[j]
      )
      for whole, piece in zip(batch, part, strict=True):
        whole[places] = piece
    for element, array in zip(
      self.get_transition_elements(batch_size), batch, strict=True
    ):
      if element.name == 'indices':
        array[:] = indices
    return batch

  def save(self, checkpoint_dir, iteration_number) -> None:
    """The data does not change, so a checkpoint of it is nothing."""

  def load(self, checkpoint_dir, suffix) -> None:
    """The data does not change, so a checkpoint of it is nothing."""


@gin.configurable(
  denylist=['data_dir', 'observation_shape', 'stack_size', 'update_horizon']
)
@signatures.forwards_to(
  circular_replay_buffer.WrappedReplayBuffer, without=('wrapped_memory',)
)
class WrappedFixedReplayBuffer(circular_replay_buffer.WrappedReplayBuffer):
  """Dopamine's in-graph replay memory around a `FixedReplayBuffer`.

  Args:
    data_dir: the directory of the shards.
    replay_suffix: the one shard to use; None for `num_buffers` random ones.
    observation_shape: of one frame.
    stack_size: frames in a state.
    use_staging: has no effect in current Dopamine.
    replay_capacity: at most so many rows of each shard are used.
    batch_size: transitions in a batch.
    update_horizon: the 'n' of n-step returns.
    gamma: discount factor.
    observation_dtype: NumPy dtype of a frame.
    num_buffers: shards in memory at a time; drawn anew every iteration, as in the
      paper. None for all.
    replay_file_start_index: first shard to choose from, counted from 0.
    replay_file_end_index: one past the last; None for all.
    **kwargs: as Dopamine's `OutOfGraphReplayBuffer`.
  """

  def __init__(
    self,
    data_dir,
    replay_suffix,
    observation_shape,
    stack_size,
    use_staging=False,
    replay_capacity=1_000_000,
    batch_size=32,
    update_horizon=1,
    gamma=0.99,
    observation_dtype=np.uint8,
    num_buffers=5,
    replay_file_start_index=0,
    replay_file_end_index=None,
    **kwargs,
  ):
    # A single shard is never drawn again.
    self._num_buffers = num_buffers if replay_suffix is None else None
    self._drawn = True
    memory = FixedReplayBuffer(
      data_dir,
      replay_suffix,
      observation_shape,
      stack_size,
      replay_capacity,
      batch_size,
      update_horizon,
      gamma,
      observation_dtype=observation_dtype,
      num_buffers=num_buffers,
      replay_file_start_index=replay_file_start_index,
      replay_file_end_index=replay_file_end_index,
      seed=seeding.derive('replay'),
      **kwargs,
    )
    super().__init__(
      observation_shape,
      stack_size,
      use_staging,
      replay_capacity,
      batch_size,
      update_horizon,
      gamma,
      wrapped_memory=memory,
    )

  def begin_iteration(self, iteration: int) -> None:
    """Draws the iteration's shards, if not all of them are in memory.

    Args:
      iteration: with the run's seed, it decides the shards and the batches.
    """
    seed = seeding.derive('replay', iteration)
    # Without a seed the draw at construction is as good as another.
    drawn, self._drawn = self._drawn, False
    if seed is None and drawn:
      return
    self.memory.reseed(seed)
    if self._num_buffers and self._num_buffers < self.memory.num_shards:
      self.memory.reload_buffer(self._num_buffers)
