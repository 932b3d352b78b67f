"""Sampling from replay memories that were loaded from shards, uncompressed.

What `FixedReplayBuffer` uses for a subclass that loads Dopamine's own memories.
"""

from collections.abc import Sequence

import numpy as np
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.shards import stitching


class LoadedBuffers:
  """Replay memories, each with a shard, sampled as one.

  Args:
    buffers: in order; the indices of a batch count their rows, end to end.
    rings: rows of the shard on disk of each, which may be more than it has.
    seed: of the choice of transitions.
  """

  def __init__(
    self,
    buffers: Sequence[circular_replay_buffer.OutOfGraphReplayBuffer],
    rings: Sequence[int],
    seed: int | None = None,
  ):
    self.buffers = list(buffers)
    for buffer in buffers:
      # Or Dopamine's memory would go around a ring that it doesn't have.
      rows = len(buffer._store['terminal'])
      buffer._replay_capacity = min(buffer._replay_capacity, rows)
    self.reseed(seed)
    capacities = [buffer._replay_capacity for buffer in buffers]
    self._first_rows = np.concatenate([[0], np.cumsum(capacities)])
    self._valid = np.concatenate(
      [
        first + valid_indices(buffer, ring)
        for first, buffer, ring in zip(
          self._first_rows, buffers, rings, strict=False
        )
      ]
    )

  def reseed(self, seed: int | None) -> None:
    """Restarts the random choice from a seed."""
    self._random = np.random.default_rng(seed)

  def skip(self, batches: int, batch_size: int) -> None:
    """Leaves out so many batches."""
    for _ in range(batches):
      self.draw(batch_size)

  @property
  def num_transitions(self) -> int:
    """Transitions that can be sampled."""
    return len(self._valid)

  def valid_indices(self) -> np.ndarray:
    """Indices of all of them, int64."""
    return self._valid

  def action_range(self) -> tuple[int, int]:
    """The smallest and the largest action."""
    actions = [buffer._store['action'] for buffer in self.buffers]
    return (
      min(int(column.min()) for column in actions),
      max(int(column.max()) for column in actions),
    )

  def draw(self, count: int) -> np.ndarray:
    """Valid indices, uniform with replacement: int64 (count,)."""
    return self._valid[self._random.integers(len(self._valid), size=count)]

  def transitions(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Dopamine's arrays for indices, int64 (n,)."""
    which = np.searchsorted(self._first_rows, indices, side='right') - 1
    elements = self.buffers[0].get_transition_elements(len(indices))
    batch = tuple(np.empty(element.shape, element.type) for element in elements)
    for j in np.unique(which):
      places = np.flatnonzero(which == j)
      part = self.buffers[j].sample_transition_batch(
        len(places), (indices[places] - self._first_rows[j]).tolist()
      )
      for whole, piece in zip(batch, part, strict=True):
        whole[places] = piece
    for element, array in zip(elements, batch, strict=True):
      if element.name == 'indices':
        array[:] = indices
    return batch


def valid_indices(
  buffer: circular_replay_buffer.OutOfGraphReplayBuffer, ring: int
) -> np.ndarray:
  """Rows of a loaded shard that are the state of a whole transition.

  As `batch_rl.dataset.sampler` has it, but that the next state must be there even
  where an episode ends before it: Dopamine's memory would fail without.

  Args:
    buffer: with the shard, or with some rows that follow one another in its ring.
    ring: rows of the shard on disk.

  Returns:
    int64 (n,), ascending in time.
  """
  # pylint: disable=protected-access
  stack_size, horizon = buffer._stack_size, buffer._update_horizon
  terminal = buffer._store['terminal']
  observation = buffer._store['observation']
  rows = min(buffer._replay_capacity, len(terminal))
  if rows < ring:
    # The ring's last row, if it came along, comes before the others in time.
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
  valid &= row + horizon < count

  padding = padding_rows(observation, order, ends)
  for start in np.flatnonzero(ends) + 1:
    valid[start : start + padding] = False
  # The shard may start within the padding of an episode.
  first_rows = order[:padding]
  axes = tuple(range(1, observation.ndim))
  valid[:padding] &= observation[first_rows].any(axis=axes)
  return order[valid]


def padding_rows(observation: np.ndarray, order: np.ndarray, ends) -> int:
  """How many all-zero rows this data has at the start of each episode.

  It is the logger's `stack_size - 1`: three in the DQN Replay Dataset. More are
  never assumed, since a game's first screens may be black.

  Args:
    observation: (capacity, ...), rows of the ring.
    order: (n,), ring positions in time order.
    ends: bool (n,), whether an episode ends with the row, in time order.

  Returns:
    The largest number, at most 3, that holds for every episode start seen.
  """
  starts = np.flatnonzero(ends[:-3])[:1000] + 1
  for rows in (3, 2, 1):
    if not any(observation[order[s : s + rows]].any() for s in starts):
      return rows
  return 0
