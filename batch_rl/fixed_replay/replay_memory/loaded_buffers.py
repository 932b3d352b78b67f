"""Sampling from uncompressed replay memories loaded from shards.

`FixedReplayBuffer` uses it for subclasses that load Dopamine's own memories.
"""

import os
from collections.abc import Sequence

import numpy as np
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files


class LoadedBuffers:
  """Replay memories, each with one shard, sampled as one.

  Args:
    store: Store of the run, which may lack the frames.
    buffers: Replay memories with shards, or with consecutive rows of their rings. An
      index counts the rows of all memories, in this order.
    suffixes: Number of each memory's shard.
    first_row: Row of the ring that is the first of each memory.
    seed: Seed of the choice of transitions; None draws one.
  """

  def __init__(
    self,
    store: store_lib.Store,
    buffers: Sequence[circular_replay_buffer.OutOfGraphReplayBuffer],
    suffixes: Sequence[int],
    first_row: int = 0,
    seed: int | None = None,
  ):
    self.store, self.buffers = store, list(buffers)
    self._suffixes = list(suffixes)
    for buffer in buffers:
      # Otherwise Dopamine's memory would index rows that it does not have.
      rows = len(buffer._store['terminal'])
      buffer._replay_capacity = min(buffer._replay_capacity, rows)
    self.reseed(seed)
    capacities = [buffer._replay_capacity for buffer in buffers]
    self._first_rows = np.concatenate([[0], np.cumsum(capacities)])
    trajectories = subsets.trajectories(store)
    placed = zip(self._first_rows, buffers, suffixes, strict=False)
    valid = [
      first + _valid_rows(store, trajectories, buffer, suffix, first_row)
      for first, buffer, suffix in placed
    ]
    self._valid = np.concatenate(valid)

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

  def file_hashes(self, known: dict[str, str]) -> dict[str, str]:
    """Returns `known` hashes of files, to which it adds these shards' files."""
    for suffix in self._suffixes:
      for name in shard_files.FILES:
        path = shard_files.path(self.store.data_dir, name, suffix)
        if os.path.basename(path) not in known:
          known[os.path.basename(path)] = files.sha256(path)[:16]
    return known

  def valid_indices(self) -> np.ndarray:
    """Returns the indices of all transitions that can be sampled, int64."""
    return self._valid

  def draw(self, count: int) -> np.ndarray:
    """Draws valid indices uniformly with replacement, int64 (count,)."""
    return self._valid[self._random.integers(len(self._valid), size=count)]

  def sample(self, count: int) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for randomly drawn indices."""
    return self.transitions(self.draw(count))

  def transitions(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for indices, int64 (n,).

    Raises:
      ValueError: If an index is out of range.
    """
    if not ((indices >= 0) & (indices < self._first_rows[-1])).all():
      raise ValueError(f'Not all of these rows exist: {indices.tolist()}.')
    buffer_of = np.searchsorted(self._first_rows, indices, side='right') - 1
    elements = self.buffers[0].get_transition_elements(len(indices))
    batch = tuple(np.empty(element.shape, element.type) for element in elements)
    for j in np.unique(buffer_of):
      positions = np.flatnonzero(buffer_of == j)
      own = indices[positions] - self._first_rows[j]
      part = self.buffers[j].sample_transition_batch(len(own), own.tolist())
      for element, array, values in zip(elements, batch, part, strict=True):
        is_index = element.name == 'indices'
        array[positions] = indices[positions] if is_index else values
    return batch


def _valid_rows(store, trajectories, buffer, suffix, first_row) -> np.ndarray:
  """Returns the rows of a memory whose transitions are valid, in time order.

  `batch_rl.dataset.sampling.sampler` defines validity. In addition, the next
  state must be in memory even if the episode ends before it: Dopamine's memory
  fails without it.
  """
  stack_size, horizon = buffer._stack_size, buffer._update_horizon
  rows = store.rows_of(suffix, first_row + np.arange(buffer._replay_capacity))
  if not store.rows:
    return rows[:0]
  rows[int(buffer.add_count) :] = -1  # Dopamine's memory refuses stale rows.
  of = np.searchsorted(trajectories.begin, rows, side='right') - 1
  begin, stop = trajectories.begin[of], trajectories.stop[of]
  terminates = np.isin(stop - 1, store.terminals)
  # A shard may begin within an episode's padding.
  padding = np.where(
    trajectories.at_reset[of],
    trajectories.steps_begin[of] - begin,
    store.first_padding(),
  )
  valid = rows >= begin + np.maximum(padding, stack_size - 1)
  valid &= terminates | (rows + horizon < stop)
  for offset in range(1 - stack_size, horizon + 1):
    # The memory reads rows modulo its capacity, whatever their place in time.
    valid &= np.roll(rows, -offset) == rows + offset
  found = np.flatnonzero(valid)
  return found[np.argsort(rows[found])]
