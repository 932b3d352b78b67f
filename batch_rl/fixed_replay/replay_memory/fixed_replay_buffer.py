"""Replay memory with the data of a logged run, for Python and for the graph."""

import inspect
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import gin
import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.dataset.sampling import row_sampler, subsets
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.store import store as store_lib
from batch_rl.dataset.store import store_directory
from batch_rl.fixed_replay.replay_memory import (
  buffer_of_2020,
  graph_replay,
  shard_replay_buffer,
  store_replay,
)
from batch_rl.utils.user_code import gin_signatures

# Default `num_buffers` of a subclass that loads uncompressed shards.
_DEFAULT_UNCOMPRESSED = 5
# Parameters that agents give, not gin.
_NOT_BOUND = 'data_dir replay_suffix check_raw_frames columns deferred'.split()


@gin.configurable(denylist=_NOT_BOUND)
@gin_signatures.forwards_to(circular_replay_buffer.OutOfGraphReplayBuffer)
class FixedReplayBuffer(buffer_of_2020.BufferOf2020):
  """A logged run, sampled uniformly over its valid transitions.

  The run is compressed, in memory or in a memory-mapped directory.
  `batch_rl.dataset.sampling.sampler` defines the valid transitions and draws the
  batches, each a function of the seed and its number.

  Args:
    data_dir: Directory of the shards (`<run>/replay_logs`), or a store made by
      `python -m batch_rl.dataset convert`.
    replay_suffix: Number of a single shard to use; None for all shards in the
      range of `replay_file_start_index` and `replay_file_end_index`. A missing shard
      gives a warning, and an error at the first use of the data.
    *args: Arguments of `OutOfGraphReplayBuffer`. Its `replay_capacity` limits
      the rows used of each shard; those of whole episodes, as imports make them,
      are used whole.
    replay_file_start_index: Index of the first shard to use, from 0.
    replay_file_end_index: Index after the last shard to use; None for all.
    num_buffers: Number of random shards to sample from, 5 in the paper;
      `reload_buffer` draws new ones. None for all shards.
    subset: Part of the data to use, e.g. 'random_trajectories(0.1)'; see
      `batch_rl.dataset.sampling.subsets`. None for all.
    cache_dir: Directory for compressed runs, memory-mapped and shared with other
      processes and later runs. None to keep this run in memory only.
    preload: Whether to read the cached run into memory in advance, for disks with
      slow random access.
    skip_damaged: Whether to skip damaged shards, with a warning, rather than
      fail. Waits for all shards, to know which are damaged.
    seed: Seed of the choice of shards and transitions; None draws one.
    check_raw_frames: Function that receives the number of frames in use before
      shards are packed, and raises ValueError if it is too large; None for no check.
    columns: Names of further columns of the batches for the graph, e.g.
      'return_to_go'; see `batch_rl.dataset.sampling.columns`.
    deferred: Whether to leave the wait for all shards, and errors of their content, to
      `finish`. It has no effect with `replay_suffix`, `num_buffers` or `skip_damaged`.
    **kwargs: Keyword arguments of `OutOfGraphReplayBuffer`.

  Raises:
    ValueError: If there is no shard, or one is unreadable, the run does not fit into
      memory, no transition is valid, an argument is of the wrong type, or asks for
      more than the shards hold.
  """

  def __init__(
    self,
    data_dir: str | os.PathLike[str],
    replay_suffix: int | None,
    *args: Any,
    replay_file_start_index: int = 0,
    replay_file_end_index: int | None = None,
    num_buffers: int | None = None,
    subset: str | None = None,
    cache_dir: str | None = None,
    preload: bool = False,
    skip_damaged: bool = False,
    seed: int | None = None,
    check_raw_frames: Callable[[int], None] | None = None,
    columns: Sequence[str] = (),
    deferred: bool = False,
    **kwargs: Any,
  ):
    self._args = args
    self._kwargs = kwargs
    self._data_dir = os.fspath(data_dir)
    # Checked before anything slow.
    self._columns = columns_lib.check(columns)
    if subset is not None:
      subsets.parse(subset)
    self._subset = subset
    self._cache_dir = cache_dir
    self._preload = preload
    self._check_raw_frames = check_raw_frames
    self._skip_damaged = skip_damaged
    self._store: store_lib.Store | None = None
    self._packed: store_replay.StoreReplay | None = None
    self._opening = threading.Lock()
    self._hashes: dict[str, str] = {}  # of files of uncompressed shards
    self._loaded: dict[int, Any] = {}  # uncompressed shards in memory
    self._replay_suffix = replay_suffix
    self._replay_indices = self._get_checkpoint_suffixes(
      replay_file_start_index, replay_file_end_index
    )
    self._num_buffers = None
    chooses = replay_suffix is not None or num_buffers or skip_damaged
    loads = self.loads_uncompressed or self._overrides('_load_replay_buffers')
    self._is_deferred = deferred and not (chooses or loads)
    if self._draws_itself:
      self._check_unused()
    self._seed = seed
    self._random = np.random.default_rng(seed)
    if replay_suffix is not None:
      self.load_single_buffer(replay_suffix)
    else:
      if num_buffers is None and loads:
        num_buffers = min(_DEFAULT_UNCOMPRESSED, len(self._replay_indices))
      self._num_buffers = num_buffers
      self.reload_buffer(num_buffers)

  # --- choice of shards -------------------------------------------------------

  def load_single_buffer(self, suffix: int | str) -> None:
    """Samples from one shard only.

    Args:
      suffix: Number of the shard. A missing one gives a warning.

    Raises:
      ValueError: If the shard is unreadable, or none of its transitions is valid.
    """
    self._loaded_buffers = False
    suffix = int(suffix)  # It was a part of file names in 2020.
    try:
      self._use([suffix], [suffix])
    except buffer_of_2020.MissingShardError as error:
      self._source = error
      logging.warning('%s', error)
      return
    if not self._backend.num_transitions:
      raise ValueError(
        f'No valid transition in shard {suffix} of {self._data_dir}.'
      )
    self.on_reload()

  def reload_buffer(self, num_buffers: int | None = None) -> None:
    """Samples from randomly chosen shards; shards in memory are not read again.

    A buffer with a `replay_suffix` stays with its shard.

    Args:
      num_buffers: Number of shards, or all if there are fewer; None for all.

    Raises:
      ValueError: If `num_buffers` is below 1, a shard is unreadable, memory does not
        suffice, or no transition is valid.
    """
    if num_buffers is not None:
      row_sampler.check_counts(num_buffers=num_buffers)
    if self._replay_suffix is not None:
      return
    self._draw_shards(num_buffers)
    self.on_reload()

  def _load_replay_buffers(self, num_buffers: int | None = None) -> None:
    """Chooses shards; see `reload_buffer`.

    A subclass may override it and assign `_replay_buffers` (see `BufferOf2020`).
    """
    candidates = self._replay_indices
    while candidates:
      count = min(num_buffers or len(candidates), len(candidates))
      chosen = self._random.choice(candidates, count, replace=False)
      self._use(sorted(chosen.tolist()), self._replay_indices)
      if self._is_deferred or self._backend.num_transitions:
        return
      # The final shard of a run may hold only a row or two.
      candidates = [s for s in candidates if s not in chosen]
    raise self._nothing_valid()

  def _nothing_valid(self):
    return ValueError(f'No valid transition in any shard of {self._data_dir}.')

  def finish(self) -> None:
    """Waits for the shards of a `deferred` memory; raises as others' constructors."""
    if self._is_deferred:
      self._is_deferred = False
      self._use(*self._in_use)
      if not self._backend.num_transitions:
        raise self._nothing_valid()

  def reseed(self, seed: int | None) -> None:
    """Restarts the random choice of shards and transitions from a seed."""
    self._seed = seed  # of the memories that are loaded next
    self._random = np.random.default_rng(seed)
    self._backend.reseed(seed)

  def reseed_from_itself(self) -> None:
    """Restarts with a seed drawn from the current random numbers."""
    self.reseed(int(self._random.integers(2**63)))

  def skip(self, batches: int) -> None:
    """Skips this many random batches."""
    self._backend.skip(batches)

  def redraw(self) -> bool:
    """Draws new random shards, if `num_buffers` excludes some; returns whether."""
    if not self._num_buffers or self._num_buffers >= len(self._replay_indices):
      return False
    self._draw_shards(self._num_buffers)
    return True

  @property
  def loads_uncompressed(self) -> bool:
    """Whether memories that a subclass has loaded are sampled, not a store."""
    return self._overrides('_load_buffer') or self._assigned is not None

  @property
  def _draws_itself(self) -> bool:
    """Whether batches for the graph come from `sample_transition_batch`."""
    return self.loads_uncompressed or self._overrides('sample_transition_batch')

  def _overrides(self, method: str) -> bool:
    # An attribute of the object may replace the method, too.
    function = getattr(getattr(self, method), '__func__', None)
    return function is not getattr(FixedReplayBuffer, method)

  def _check_unused(self):
    loads = self.loads_uncompressed
    without_effect = {
      'subset': loads and self._subset,
      'cache_dir': loads and self._cache_dir,
      'preload': loads and self._preload,
      'skip_damaged': loads and self._skip_damaged,
      'frames_on_device': self._check_raw_frames,
      'columns': self._columns,
    }
    if names := ', '.join(name for name, v in without_effect.items() if v):
      raise ValueError(
        f'{type(self).__name__} {"loads shards" if loads else "draws batches"} by '
        f'itself, so {names} would have no effect: leave {names} at the default.'
      )

  def _load_buffer(self, suffix):
    """Returns a replay memory with the shard, or None if there is no such shard.

    Subclasses may override this. Their uncompressed memories, for example a filled
    `OutOfGraphReplayBuffer(*self._args, **self._kwargs)`, are then sampled instead
    of the store.
    """
    with self._opening:  # Subclasses load shards in parallel.
      store = self._store
      if store is None or suffix not in store.requested:
        if suffix not in self._all_suffixes():
          return None
        store = self._open_store(sorted({suffix, *self._replay_indices})).store
        store.start([suffix])
    return shard_replay_buffer.ShardReplayBuffer(
      store, suffix, *self._args, **self._kwargs
    )

  def _use(self, suffixes: list[int], stored: list[int]) -> None:
    """Samples from shards, of a store with others that may be used later."""
    self._assigned, self._in_use = None, (suffixes, stored)
    if self.loads_uncompressed:
      self._load_uncompressed(suffixes)
    else:
      self._use_store(suffixes, stored)
    self._loaded_buffers = True
    if self._is_deferred:
      return
    logging.info(
      'Replay: %d transitions in %d of %d shards (%s).',
      self._backend.num_transitions,
      len(suffixes),
      len(self._replay_indices),
      self._data_dir,
    )

  def _load_uncompressed(self, suffixes):
    # Others are dropped first: old and new shards need not fit into memory together.
    self._loaded = {s: m for s, m in self._loaded.items() if s in suffixes}
    self._source = None
    for suffix in suffixes:
      if suffix not in self._loaded:
        memory = self._load_buffer(suffix)
        if memory is None:
          raise self._missing(suffix)
        self._loaded[suffix] = memory
    memories = [self._loaded[suffix] for suffix in suffixes]
    self._source = self._source_of(memories, suffixes)

  def _use_store(self, suffixes, stored):
    packed = self._packed
    if packed is None or not set(stored) <= set(packed.store.requested):
      if suffixes[0] not in self._all_suffixes():
        raise self._missing(suffixes[0])
      packed = self._open_store(stored)
      if self._check_raw_frames is not None:
        self._check_raw_frames(packed.sampler.num_selected(suffixes))
      packed.store.start(suffixes)
    self._source = packed
    if self._skip_damaged:
      # The data depends on which of the shards are damaged.
      packed.wait(packed.store.suffixes)
    packed.use(suffixes, wait=not self._is_deferred)

  def _open_store(self, suffixes: Sequence[int]) -> store_replay.StoreReplay:
    if self._store is not None:
      self._store.close()  # It may still be packing shards.
    constructor = circular_replay_buffer.OutOfGraphReplayBuffer.__init__
    bound = inspect.signature(constructor).bind(
      None, *self._args, **self._kwargs
    )
    bound.apply_defaults()
    arguments = bound.arguments
    row_sampler.check_counts(batch_size=arguments['batch_size'])
    for name in ('extra_storage_types', 'action_shape', 'reward_shape'):
      if arguments[name]:
        raise ValueError(
          f'{name}={arguments[name]} is not in the shards, which hold one action '
          f'and one reward a step: leave {name} at the default.'
        )
    directory, capacity = self._data_dir, arguments['replay_capacity']
    store = self._store = store_lib.Store(
      directory,
      suffixes,
      self._cache_dir and store_directory.in_cache(self._cache_dir, directory),
      max_rows=capacity,
      preload=self._preload,
      skip_damaged=self._skip_damaged,
      pack=False,
    )
    rows = max(placement.capacity for placement in store.placements)
    if not store.has_whole_episodes and capacity < rows:
      logging.warning(
        'Only the first %d of %d rows of each shard in %s are used: raise '
        'WrappedFixedReplayBuffer.replay_capacity to use all.',
        *(capacity, rows, directory),
      )
    store.check_frames(
      arguments['observation_shape'], arguments['observation_dtype']
    )
    own = {n: arguments[n] for n in ('stack_size', 'update_horizon', 'gamma')}
    sampler = sampler_lib.Sampler(
      store, subset=self._subset, seed=self._seed, **own
    )
    self._packed = store_replay.StoreReplay(sampler, self._load_buffer)
    return self._packed

  # --- description of the data ------------------------------------------------

  @property
  def sampler(self) -> sampler_lib.Sampler:
    """Sampler of the packed shards; uncompressed shards have none."""
    return self._backend.sampler

  def describe(self) -> dict[str, Any]:
    """Describes the data for the run's record; {} for uncompressed shards."""
    if self.loads_uncompressed or self._store is None:
      return {}
    return {
      'subset': self._subset,
      'subset_hash': self.sampler.subset_hash(),
      'shards': sorted(set(self._store.suffixes) - self._store.damaged),
      'trajectories': self.sampler.num_trajectories,
    }

  def file_hashes(self) -> dict[str, str]:
    """Returns the hash of each file of the shards read so far, by file name.

    See `Store.file_hashes`. The files of uncompressed shards are read once more, at
    the first call.
    """
    if self._store is not None:
      return self._store.file_hashes()
    return self._backend.file_hashes(self._hashes)

  def raise_error(self) -> None:
    """Raises the error of a background thread, if there is one.

    Raises:
      batch_rl.dataset.shards.shard_reader.DataError: If a shard is damaged, or
        memory or disk space does not suffice.
    """
    if self._store is not None:
      self._store.raise_error()

  def action_range(self) -> tuple[int, int]:
    """Returns the smallest and the largest action in the data."""
    return self._backend.store.action_range()

  def valid_indices(self) -> np.ndarray:
    """Returns the indices of all transitions that can be sampled now, int64."""
    return self._backend.valid_indices()

  def get_transition_elements(
    self, batch_size: int | None = None
  ) -> list[circular_replay_buffer.ReplayElement]:
    """Returns names, shapes and types of a batch; see `OutOfGraphReplayBuffer`."""
    return self._replay_buffers[0].get_transition_elements(batch_size)

  # --- sampling --------------------------------------------------------------

  def sample_index_batch(self, batch_size: int) -> np.ndarray:
    """Draws valid indices uniformly with replacement, int64 (batch_size,)."""
    return self._backend.draw(batch_size)

  def sample_transition_batch(
    self,
    batch_size: int | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
  ) -> tuple[np.ndarray, ...]:
    """Returns a batch of transitions, as `OutOfGraphReplayBuffer` does.

    Args:
      batch_size: Number of transitions; None for the constructor's.
      indices: Indices of rows in the concatenated rings of the shards, by ascending
        shard number; None for uniformly random valid rows.

    Returns:
      A tuple of arrays; `get_transition_elements` describes them.

    Raises:
      ValueError: If the number of indices is not the batch size, or an index is
        out of range.
    """
    if batch_size is None:
      batch_size = self._replay_buffers[0]._batch_size
    if indices is None:
      return self._backend.sample(batch_size)
    if len(indices) != batch_size:
      raise ValueError(f'{len(indices)} indices for batch_size={batch_size}.')
    return self._backend.transitions(row_sampler.as_rows(indices))

  def sample(
    self, size: int | None = None, *, with_sample_metadata: bool = False
  ) -> Any:
    """Returns a batch of transitions, as Dopamine's JAX replay buffer does.

    Args:
      size: Number of transitions; None for the constructor's.
      with_sample_metadata: Whether to return the keys of the transitions, too.

    Returns:
      Dopamine's `ReplayElement` with `state`, `action`, `reward`, `next_state`,
      `is_terminal` and `episode_end`; with metadata, a pair of it and a
      `SampleMetadata`.
    """
    from dopamine.jax.replay_memory import elements, samplers

    names = [e.name for e in self.get_transition_elements()]
    batch = dict(zip(names, self.sample_transition_batch(size), strict=True))
    terminal = batch['terminal'].astype(bool)
    element = elements.ReplayElement(
      **{n: batch[n] for n in ('state', 'action', 'reward', 'next_state')},
      is_terminal=terminal,
      episode_end=terminal,
    )
    if not with_sample_metadata:
      return element
    return element, samplers.SampleMetadata(keys=batch['indices'])

  def indices_of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the indices of rows of the sampler's run, int64 (n,)."""
    return self._backend.indices_of(rows)


@gin.configurable(
  denylist=(
    *('data_dir', 'observation_shape', 'stack_size'),
    *('update_horizon', 'seed', 'columns', 'deferred'),
  )
)
@gin_signatures.forwards_to(FixedReplayBuffer, without=(*_NOT_BOUND, 'seed'))
@gin_signatures.forwards_to(
  circular_replay_buffer.WrappedReplayBuffer, without=('wrapped_memory',)
)
class WrappedFixedReplayBuffer(graph_replay.GraphReplay):
  """Dopamine's in-graph replay memory around a `FixedReplayBuffer`.

  Takes the arguments of `GraphReplay` and `FixedReplayBuffer`.
  """

  memory_class = FixedReplayBuffer
