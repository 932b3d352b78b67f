"""Sampling from uncompressed replay memories loaded from shards.

`FixedReplayBuffer` uses it for subclasses that load Dopamine's own memories.
"""

import os
from collections.abc import Iterable, Sequence

import numpy as np
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.fixed_replay.replay_memory import shard_replay_buffer
from batch_rl.utils import files


def ring_sizes(data_dir: str, suffixes: Iterable[int]) -> list[int]:
  """Returns the number of rows in each shard's files."""
  names = (shard_files.file_name('terminal', suffix) for suffix in suffixes)
  return [
    shard_reader.read_header(os.path.join(data_dir, name)).shape[0]
    for name in names
  ]


def file_hashes(data_dir: str, suffix: int) -> dict[str, str]:
  """Returns the hash of each file of a shard (see `Store.file_hashes`)."""
  names = (shard_files.file_name(name, suffix) for name in shard_files.FILES)
  return {
    name: files.sha256(os.path.join(data_dir, name))[:16] for name in names
  }


class LoadedBuffers:
  """Replay memories, each with one shard, sampled as one.

  Args:
    buffers: Replay memories. An index is that of a row in their concatenation.
    ring_sizes: Number of rows of each shard on disk; a memory may hold fewer.
    seed: Seed of the choice of transitions; None draws one.
    padding: Number of padding rows at the start of each episode; None to count the
      all-zero ones.
    truncated: Rows of each memory at which an episode was truncated; None for none.
  """

  def __init__(
    self,
    buffers: Sequence[circular_replay_buffer.OutOfGraphReplayBuffer],
    ring_sizes: Sequence[int],
    seed: int | None = None,
    padding: int | None = None,
    truncated: Sequence[Sequence[int] | np.ndarray] | None = None,
  ):
    self.buffers = list(buffers)
    for buffer in buffers:
      # Otherwise Dopamine's memory would index rows that it does not have.
      rows = len(buffer._store['terminal'])
      buffer._replay_capacity = min(buffer._replay_capacity, rows)
    self.reseed(seed)
    capacities = [buffer._replay_capacity for buffer in buffers]
    self._first_rows = np.concatenate([[0], np.cumsum(capacities)])
    self._valid = np.concatenate(
      [
        first + valid_indices(buffer, ring_size, padding, cut)
        for first, buffer, ring_size, cut in zip(
          self._first_rows,
          buffers,
          ring_sizes,
          truncated or [()] * len(self.buffers),
          strict=False,
        )
      ]
    )

  def reseed(self, seed: int | None) -> None:
    """Restarts the random choice of transitions from a seed."""
    self._random = np.random.default_rng(seed)

  def skip(self, batches: int) -> None:
    """Skips this many batches."""
    for _ in range(batches):
      self.draw(self.buffers[0]._batch_size)

  @property
  def num_transitions(self) -> int:
    """Number of transitions that can be sampled."""
    return len(self._valid)

  def valid_indices(self) -> np.ndarray:
    """Returns the indices of all transitions that can be sampled, int64."""
    return self._valid

  def action_range(self) -> tuple[int, int]:
    """Returns the smallest and the largest action."""
    actions = [buffer._store['action'] for buffer in self.buffers]
    return (
      min(int(column.min()) for column in actions),
      max(int(column.max()) for column in actions),
    )

  def draw(self, count: int) -> np.ndarray:
    """Draws valid indices uniformly with replacement, int64 (count,)."""
    return self._valid[self._random.integers(len(self._valid), size=count)]

  def sample(self, count: int) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for randomly drawn indices."""
    return self.transitions(self.draw(count))

  def transitions(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for indices, int64 (n,)."""
    buffer_of = np.searchsorted(self._first_rows, indices, side='right') - 1
    elements = self.buffers[0].get_transition_elements(len(indices))
    batch = tuple(np.empty(element.shape, element.type) for element in elements)
    for j in np.unique(buffer_of):
      positions = np.flatnonzero(buffer_of == j)
      part = self.buffers[j].sample_transition_batch(
        len(positions), (indices[positions] - self._first_rows[j]).tolist()
      )
      for array, values in zip(batch, part, strict=True):
        array[positions] = values
    for element, array in zip(elements, batch, strict=True):
      if element.name == 'indices':
        array[:] = indices
    return batch


def valid_indices(
  buffer: circular_replay_buffer.OutOfGraphReplayBuffer,
  ring_size: int,
  padding: int | None = None,
  truncated: Sequence[int] | np.ndarray = (),
) -> np.ndarray:
  """Returns the rows of a loaded shard whose transitions are valid.

  Validity is that of `batch_rl.dataset.sampling.sampler`, except that the next
  state must be in memory even if the episode ends before it: Dopamine's memory
  fails without it.

  Args:
    buffer: Replay memory with the shard, or with consecutive rows of its ring.
    ring_size: Number of rows of the shard on disk.
    padding: Number of padding rows at the start of each episode; None to count the
      all-zero ones.
    truncated: Rows at which an episode was truncated; see `truncated_rows`.

  Returns:
    int64 (n,), ascending in time.
  """
  stack_size, horizon = buffer._stack_size, buffer._update_horizon
  terminal = buffer._store['terminal']
  observation = buffer._store['observation']
  rows = min(buffer._replay_capacity, len(terminal))
  if rows < ring_size:
    # The ring's last row, if loaded, precedes the others in time.
    end = len(terminal) < buffer._replay_capacity + stack_size
    order = np.arange(rows - (end and rows == len(terminal)))
    order = order[order < int(buffer.add_count)]
  else:
    order = stitching.time_order(int(buffer.add_count), rows)
  ends = terminal[order] != 0
  count = len(order)
  ends_before = np.concatenate([[0], np.cumsum(ends)])  # in rows [0, i)
  row = np.arange(count)
  stack_start = np.maximum(row - stack_size + 1, 0)
  valid = row >= stack_size - 1
  valid &= ends_before[row] == ends_before[stack_start]
  # The next state is in memory and, before a truncation, in the same episode.
  ends_at = np.flatnonzero(ends)
  is_truncated = np.isin(order[ends_at], truncated)
  limits = np.append(np.where(is_truncated, ends_at, count - 1), count - 1)
  valid &= row + horizon <= limits[ends_before[row]]

  if padding is None:
    padding = padding_rows(observation, order, ends)
  for start in np.flatnonzero(ends) + 1:
    valid[start : start + padding] = False
  # The shard may start within an episode's padding.
  first_rows = order[:padding]
  axes = tuple(range(1, observation.ndim))
  valid[:padding] &= observation[first_rows].any(axis=axes)
  return order[valid]


def truncated_rows(
  buffer: circular_replay_buffer.OutOfGraphReplayBuffer,
  ring_size: int,
  listed: Sequence[int],
  last_suffix: int,
  first_row: int = 0,
) -> np.ndarray:
  """Returns the rows of a loaded shard at which an episode was truncated.

  Args:
    buffer: Replay memory with the shard, or with consecutive rows of its ring.
    ring_size: Number of rows of the shard on disk.
    listed: Truncated rows of the run, in its manifest.
    last_suffix: Number of the run's last shard.
    first_row: Row of the ring that is the memory's first.

  Returns:
    int64 (n,). Some may be outside the memory.
  """
  if isinstance(buffer, shard_replay_buffer.ShardReplayBuffer):
    return buffer.truncated_rows
  count = int(buffer.add_count)
  if count < ring_size - 1:  # the cursor, in a last shard that is not full
    count += last_suffix * ring_size
  rows = np.array(listed, np.int64)
  held = (count - ring_size <= rows) & (rows < count)
  return rows[held] % ring_size - first_row


def padding_rows(observation: np.ndarray, order: np.ndarray, ends) -> int:
  """Counts the all-zero padding rows at the start of each episode.

  The logger writes `stack_size - 1` of them: three in the DQN Replay Dataset.
  More are never assumed, since a game's first screens may be black.

  Args:
    observation: Observations in ring order, (capacity, ...).
    order: Rows of the ring in time order, int64 (n,).
    ends: Whether an episode ends with the row, in time order, bool (n,).

  Returns:
    The largest number, at most 3, that holds for the first thousand episodes.
  """
  starts = np.flatnonzero(ends[:-3])[:1000] + 1
  for rows in (3, 2, 1):
    if not any(observation[order[s : s + rows]].any() for s in starts):
      return rows
  return 0
