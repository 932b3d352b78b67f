"""Shards of a compressed store, sampled as one of Dopamine's replay memories."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from batch_rl.dataset.sampling import compiled_batches
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import shard_files


class StoreReplay:
  """Samples the packed shards of a store for a `FixedReplayBuffer`.

  An index counts the rows in the rings of all shards, by ascending shard number.

  Args:
    sampler: Sampler of the store.
    load_buffer: Function from a shard number to one of Dopamine's replay
      memories with that shard.
  """

  def __init__(
    self, sampler: sampler_lib.Sampler, load_buffer: Callable[[int], Any]
  ):
    self.sampler = sampler
    self.store = sampler.store
    self._load_buffer = load_buffer
    self._suffixes: list[int] = []
    self._buffers: list[Any] = []

  def use(self, suffixes: Sequence[int], wait: bool = True) -> None:
    """Samples from these shards only, once they are packed.

    Args:
      suffixes: Shard numbers, ascending. Shards that the store skips as damaged
        are ignored.
      wait: Whether to wait now, rather than at the first use of the sampler.
    """
    self._suffixes = [s for s in suffixes if s in self.store.suffixes]
    self.store.prefer(self._suffixes)
    if wait:
      self.wait(self._suffixes)
    self._buffers = []
    self.sampler.restrict(self._suffixes)
    capacities = [self.store.capacity(suffix) for suffix in self._suffixes]
    # Index i is row i - first_index[j] of the ring of shard j.
    self._first_index = np.concatenate([[0], np.cumsum(capacities)])
    places = np.searchsorted(self._suffixes, self.store.suffixes)
    self._first_of_shard = self._first_index[places]

  def wait(self, suffixes: Iterable[int]) -> None:
    """Waits until shards are packed, and says how to avoid that next time."""
    missing = {*suffixes} - self.store.damaged - {*self.store.packed}
    if missing:
      run_dir = self.store.data_dir.removesuffix(f'/{shard_files.REPLAY_LOGS}')
      logging.info(
        'Replay: waiting until %s is packed; shards left: %d.',
        run_dir,
        len(missing),
      )
    if missing and not self.store.is_on_disk:
      logging.info(
        'To start at once next time, bind FixedReplayBuffer.cache_dir, or make a '
        'store for --replay_dir: python -m batch_rl.dataset convert %s STORE',
        shlex.quote(run_dir),
      )
    self.store.wait(suffixes)

  def reseed(self, seed: int | None) -> None:
    """Restarts with batch 0 of a seed; None draws a seed."""
    self.sampler.reseed(seed)

  def skip(self, batches: int) -> None:
    """Skips this many batches."""
    self.sampler.skip(batches)

  @property
  def buffers(self) -> list[Any]:
    """The shards as Dopamine's replay memories."""
    if not self._buffers:
      self._buffers = [self._load_buffer(s) for s in self._suffixes]
    return self._buffers

  @property
  def num_transitions(self) -> int:
    """Number of transitions that can be sampled now."""
    return self.sampler.num_transitions

  def valid_indices(self) -> np.ndarray:
    """Returns the indices of all transitions that can be sampled now, int64."""
    return self.indices_of(self.sampler.valid_rows())

  def draw(self, count: int) -> np.ndarray:
    """Draws valid indices uniformly with replacement, int64 (count,)."""
    sampler = self.sampler
    return self.indices_of(sampler.draw(sampler.next_number(), count))

  def sample(self, count: int) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for the next batch, of `count` transitions."""
    number = self.sampler.next_number()
    return self._dopamines(*self.sampler.batches(number, count, 1, 'stacks'))

  def indices_of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the indices of rows of the run, int64 (n,)."""
    shard_of, ring = self.store.ring_of(rows)
    return self._first_of_shard[shard_of] + ring

  def transitions(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for indices, int64 (n,).

    Invalid transitions are read, too: a state may have frames of two trajectories.
    Frames that the store lacks are zero.

    Raises:
      ValueError: If an index is out of range, or its row was never logged.
    """
    shard_of = np.searchsorted(self._first_index, indices, side='right') - 1
    in_range = (indices >= 0) & (indices < self._first_index[-1])
    shard_of[~in_range] = 0
    suffixes = np.asarray(self._suffixes)[shard_of]
    rows = self.store.rows_of(suffixes, indices - self._first_index[shard_of])
    unlogged = indices[~in_range | (rows < 0)]
    if len(unlogged):
      raise ValueError(
        f'Index {unlogged[0]} has no logged row: indices are in '
        f'[0, {self._first_index[-1]}).'
      )
    [batch] = self.sampler.read(rows, 1, 'stacks')
    stack = np.arange(1 - self.sampler.stack_size, 1)
    for i in np.flatnonzero(~self.sampler.is_valid(rows)):
      # The sampler reads no frame after the first gap.
      ends = rows[i], rows[i] + batch.steps[i]
      for states, last in zip(batch.stacks, ends, strict=True):
        states[i] = np.moveaxis(self.store.frames(last + stack), 0, -1)
    return self._dopamines(batch)

  def _dopamines(self, batch: compiled_batches.Batch) -> tuple[np.ndarray, ...]:
    """Returns a batch in the order and dtypes of Dopamine's arrays."""
    indices = self.indices_of(batch.rows)
    return tuple(
      np.asarray(indices if name == 'indices' else getattr(batch, name), dtype)
      for name, _, dtype in self.buffers[0].get_transition_elements()
    )
