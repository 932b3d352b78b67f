"""Shards of a compressed store, sampled as one of Dopamine's replay memories."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import columns, row_sampler
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store as store_lib
from batch_rl.dataset.store import store_directory


class StoreReplay:
  """Samples the packed shards of a store for a `FixedReplayBuffer`.

  An index is that of a row in the concatenated rings of the shards, by ascending
  shard number.

  Args:
    store: Store of the run.
    sampler: Sampler of the store.
    load_buffer: Function from a shard number to one of Dopamine's replay
      memories with that shard.
    transition_elements: Function from a batch size to the names, shapes and
      dtypes of the arrays of a batch.
  """

  def __init__(
    self,
    store: store_lib.Store,
    sampler: sampler_lib.Sampler,
    load_buffer: Callable[[int], Any],
    transition_elements: Callable[
      [int], list[circular_replay_buffer.ReplayElement]
    ],
  ):
    self.sampler = sampler
    self._store = store
    self._load_buffer = load_buffer
    self._transition_elements = transition_elements
    self._suffixes: list[int] = []
    self._buffers: list[Any] = []

  def use(self, suffixes: Sequence[int], wait_for_all: bool) -> None:
    """Samples from these shards only, once enough of them are packed.

    Args:
      suffixes: Shard numbers, ascending. Shards that the store skips as damaged
        are ignored.
      wait_for_all: Whether to wait for all of these shards, rather than for a
        single one with a valid transition.
    """
    suffixes = [s for s in suffixes if s in self._store.suffixes]
    self._store.prefer(suffixes)
    enough = len(suffixes) if wait_for_all else 1
    self.wait(suffixes, enough)
    self._restrict(suffixes)
    while not self.num_transitions and enough < len(suffixes):
      enough += 1  # a shard may hold no valid transition
      self._store.wait(suffixes, enough)
      self._restrict(suffixes)

  def wait(self, suffixes: Sequence[int], count: int | None = None) -> None:
    """Waits until shards are packed, and says how to avoid that next time.

    Args:
      suffixes: Shard numbers.
      count: Number of these shards to wait for; None for all.
    """
    wanted = set(suffixes) - self._store.damaged
    enough = min(count or len(wanted), len(wanted))
    if (missing := enough - len(wanted & set(self._store.packed))) > 0:
      self._announce(missing)
    self._store.wait(suffixes, count)

  def _announce(self, missing: int) -> None:
    advice = ''
    if not self._store.is_on_disk:
      run_dir = self._store.data_dir.removesuffix(f'/{shard_files.REPLAY_LOGS}')
      advice = (
        ' To start at once next time, bind FixedReplayBuffer.cache_dir, or make a '
        f'store for --replay_dir: python -m batch_rl.dataset convert {run_dir} STORE'
      )
    logging.info(
      'Replay: waiting for %d shard%s of %s to be packed.%s',
      missing,
      's' if missing > 1 else '',
      self._store.data_dir,
      advice,
    )

  def _restrict(self, suffixes: list[int]) -> None:
    self._suffixes = suffixes
    self._buffers = []
    self.sampler.restrict(suffixes)
    capacities = [self._store.capacity(suffix) for suffix in suffixes]
    # Index i is row i - first_index[j] of the ring of shard j.
    self._first_index = np.concatenate([[0], np.cumsum(capacities)])
    self._first_of_shard = self._first_index[
      np.searchsorted(suffixes, self._store.suffixes)
    ]

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

  def action_range(self) -> tuple[int, int]:
    """Returns the smallest and the largest action."""
    return self._store.action_range()

  def describe(self) -> dict[str, Any]:
    """Returns subset, subset hash, shards and number of trajectories."""
    return {
      'subset': self.sampler.subset,
      'subset_hash': self.sampler.subset_hash(),
      'shards': sorted(set(self._store.suffixes) - self._store.damaged),
      'trajectories': self.sampler.num_trajectories,
    }

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
    shard_of, ring = self._store.ring_of(rows)
    return self._first_of_shard[shard_of] + ring

  def transitions(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns Dopamine's arrays for indices, int64 (n,).

    Invalid transitions are read as Dopamine's memory reads them.

    Raises:
      ValueError: If an index is out of range, or Dopamine's memory refuses it.
    """
    if len(indices) and not (
      0 <= min(indices) and max(indices) < self._first_index[-1]
    ):
      raise ValueError(
        f'Indices {indices.tolist()} are not all in [0, {self._first_index[-1]}).'
      )
    shard_of = np.searchsorted(self._first_index, indices, side='right') - 1
    self._wait({self._suffixes[i] for i in np.unique(shard_of)})
    ring = indices - self._first_index[shard_of]
    rows = self._store.rows_of(np.asarray(self._suffixes)[shard_of], ring)
    valid = self.sampler.is_valid(rows)
    if valid.all():
      return self._dopamines(self.sampler.gather(rows, 'stacks'))
    elements = self._transition_elements(len(indices))
    batch = tuple(np.empty(e.shape, e.type) for e in elements)
    if valid.any():
      part = self._dopamines(self.sampler.gather(rows[valid], 'stacks'))
      for array, values in zip(batch, part, strict=True):
        array[valid] = values
    for i in np.flatnonzero(~valid):
      memory = self.buffers[shard_of[i]]
      try:
        single = memory.sample_transition_batch(1, [int(ring[i])])
      except AssertionError as error:
        raise ValueError(f'Index {indices[i]}: {error}') from error
      for element, array, value in zip(elements, batch, single, strict=True):
        array[i] = indices[i] if element.name == 'indices' else value[0]
    return batch

  def _wait(self, suffixes: set[int]) -> None:
    """Waits until the frames of these shards are packed."""
    if not suffixes <= set(self._store.packed):
      self._store.prefer(suffixes)
      self._store.wait(suffixes)
      self.sampler.refresh()

  def _dopamines(self, batch: columns.Batch) -> tuple[np.ndarray, ...]:
    """Returns a batch in the order and dtypes of Dopamine's arrays."""
    indices = self.indices_of(batch.rows)
    return tuple(
      np.asarray(indices if name == 'indices' else getattr(batch, name), dtype)
      for name, _, dtype in self._transition_elements(len(indices))
    )


def check_arguments(arguments: Mapping[str, Any]) -> None:
  """Checks arguments of `OutOfGraphReplayBuffer`, by name.

  Raises:
    ValueError: If the batch size is no count, or an argument asks for values that
      shards do not hold.
  """
  row_sampler.check_counts(batch_size=arguments['batch_size'])
  for name in ('extra_storage_types', 'action_shape', 'reward_shape'):
    if arguments[name]:
      raise ValueError(
        f'{name}={arguments[name]} is not in the shards, which hold one action and '
        f'one reward a step: leave {name} at the default.'
      )


def open_store(
  data_dir: str,
  suffixes: Sequence[int],
  cache_dir: str | None,
  replay_capacity: int,
  frame_shape: tuple[int, ...],
  frame_dtype: np.dtype,
  preload: bool = False,
  skip_damaged: bool = False,
) -> store_lib.Store:
  """Opens a run as a store, without packing it yet.

  Args:
    data_dir: Directory of the shards, or a store.
    suffixes: Numbers of the shards to use, ascending.
    cache_dir: Directory of the packed shards of all runs; None to keep this run
      in memory only.
    replay_capacity: Maximum number of rows to use of each shard's ring.
    frame_shape: Shape of an observation that the agent expects.
    frame_dtype: Dtype of an observation that the agent expects.
    preload: Whether to read packed shards into memory in advance.
    skip_damaged: Whether to skip damaged shards, with a warning.

  Raises:
    ValueError: If the cache cannot be written, a shard is missing or damaged, or
      the observations are not those that the agent expects.
  """
  store = store_lib.Store(
    data_dir,
    suffixes,
    cache_dir and store_directory.in_cache(cache_dir, data_dir),
    max_rows=replay_capacity,
    preload=preload,
    skip_damaged=skip_damaged,
    pack=False,
  )
  if not store.has_whole_episodes and replay_capacity < max(store.ring_sizes()):
    logging.warning(
      'Only the first %d of %d rows of each shard in %s are used; raise '
      'replay_capacity to use all.',
      replay_capacity,
      max(store.ring_sizes()),
      data_dir,
    )
  logged = (store.frame_shape, store.frame_dtype)
  expected = (tuple(frame_shape), np.dtype(frame_dtype))
  if logged != expected:
    raise ValueError(
      f'{data_dir} holds observations of shape {logged[0]} {logged[1]}, '
      f'the agent expects {expected[0]} {expected[1]}.'
    )
  return store
