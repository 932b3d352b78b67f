"""Replay memory with the data of a logged run, for Python and for the graph."""

import inspect
from collections.abc import Sequence
from typing import Any

import gin
import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import store as store_lib
from batch_rl.fixed_replay.replay_memory import (
  graph_replay,
  loaded_buffers,
  shard_replay_buffer,
  store_replay,
)
from batch_rl.utils.user_code import gin_signatures

# Default `num_buffers` of a subclass that loads uncompressed shards.
_DEFAULT_UNCOMPRESSED = 5


@gin.configurable(denylist=['data_dir', 'replay_suffix', 'check_raw_frames'])
@gin_signatures.forwards_to(circular_replay_buffer.OutOfGraphReplayBuffer)
class FixedReplayBuffer:
  """A logged run, sampled uniformly over its valid transitions.

  The run is compressed, in memory or in a memory-mapped directory.
  `batch_rl.dataset.sampling.sampler` defines the valid transitions and draws the
  batches, each a function of the seed and its number.

  Args:
    data_dir: Directory of the shards (`<run>/replay_logs`), or a store made by
      `python -m batch_rl.dataset convert`.
    replay_suffix: Number of a single shard to use; None for all shards in the
      range of `replay_file_start_index` and `replay_file_end_index`.
    *args: Arguments of `OutOfGraphReplayBuffer`. Its `replay_capacity` limits
      the rows used of each shard.
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
    start_early: Whether to sample as soon as one shard is packed, rather than all
      of those to sample from. Early batches then see only a part of the data, and
      depend on the speed of packing, whatever the seed.
    deterministic: Older name of the opposite of `start_early`; None if unused.
    skip_damaged: Whether to skip damaged shards, with a warning, rather than
      fail. Waits for all shards, to know which are damaged.
    seed: Seed of the choice of shards and transitions; None draws one.
    check_raw_frames: Function that receives the number of frames in use before
      shards are packed, and raises ValueError if it is too large; None for no check.
    **kwargs: Keyword arguments of `OutOfGraphReplayBuffer`.

  Raises:
    ValueError: If a shard is missing or unreadable, the run does not fit into
      memory, no transition is valid, or `deterministic` contradicts
      `start_early`.
  """

  def __init__(
    self,
    data_dir,
    replay_suffix,
    *args,
    replay_file_start_index=0,
    replay_file_end_index=None,
    num_buffers=None,
    subset=None,
    cache_dir=None,
    preload=False,
    start_early=False,
    deterministic=None,
    skip_damaged=False,
    seed=None,
    check_raw_frames=None,
    **kwargs,
  ):
    self._args = args
    self._kwargs = kwargs
    self._data_dir = data_dir
    # Checked before anything slow.
    if subset is not None:
      subsets.parse(subset)
    if num_buffers is not None and (
      num_buffers != int(num_buffers) or num_buffers < 1
    ):
      raise ValueError(
        f'num_buffers={num_buffers} is neither a number of shards nor None.'
      )
    self._subset = subset
    self._cache_dir = cache_dir
    self._preload = preload
    if start_early and deterministic:
      raise ValueError(
        'start_early=True contradicts deterministic=True, which means '
        'start_early=False: remove one of them.'
      )
    self._start_early = start_early or deterministic is False
    self._check_raw_frames = check_raw_frames
    if self._start_early and check_raw_frames:
      raise ValueError('start_early=True contradicts frames_on_device=True.')
    self._skip_damaged = skip_damaged
    self._store: store_lib.Store | None = None
    self._backend: Any = None  # a StoreReplay or LoadedBuffers
    self._uncompressed: dict[int, Any] = {}
    self._uncompressed_hashes: dict[int, dict[str, str]] = {}
    suffixes = store_lib.list_shards(data_dir, skip_damaged)
    self._suffixes = suffixes[replay_file_start_index:replay_file_end_index]
    self._num_buffers = None
    if not self._suffixes:
      raise ValueError(
        f'No shard between replay_file_start_index={replay_file_start_index} '
        f'and replay_file_end_index={replay_file_end_index}: {data_dir} has '
        f'{len(suffixes)}, numbered {suffixes[0]} to {suffixes[-1]}.'
      )
    without_effect = {
      'subset': subset,
      'cache_dir': cache_dir,
      'preload': preload,
      'skip_damaged': skip_damaged,
      'frames_on_device': check_raw_frames,
    }
    if self.loads_uncompressed and any(without_effect.values()):
      names = ', '.join(name for name, value in without_effect.items() if value)
      raise ValueError(
        f'{type(self).__name__} overrides _load_buffer, so {names} would have no '
        f'effect: leave {names} at the default.'
      )
    self._seed = seed
    self._random = np.random.default_rng(seed)
    self._single = False
    if replay_suffix is not None:
      self.load_single_buffer(replay_suffix)
    else:
      if num_buffers is None and self.loads_uncompressed:
        num_buffers = _DEFAULT_UNCOMPRESSED
      self._num_buffers = num_buffers
      self.reload_buffer(num_buffers)

  # --- choice of shards -------------------------------------------------------

  def load_single_buffer(self, suffix: int) -> None:
    """Samples from one shard only.

    Args:
      suffix: Number of the shard.

    Raises:
      ValueError: If the shard is missing or unreadable, or none of its transitions
        is valid.
    """
    self._single = True
    self._use([suffix])
    if not self._backend.num_transitions:
      raise ValueError(
        f'No valid transition in shard {suffix} of {self._data_dir}.'
      )

  def reload_buffer(self, num_buffers: int | None = None) -> None:
    """Samples from randomly chosen shards; shards in memory are not read again.

    Args:
      num_buffers: Number of shards, or all if there are fewer; None for all.

    Raises:
      ValueError: If a shard is unreadable, memory does not suffice, or no
        transition is valid.
    """
    self._single = False
    candidates = self._suffixes
    while candidates:
      count = min(num_buffers or len(candidates), len(candidates))
      chosen = self._random.choice(candidates, count, replace=False)
      self._use(sorted(int(suffix) for suffix in chosen))
      if self._backend.num_transitions:
        return
      # The final shard of a run may hold only a row or two.
      candidates = [s for s in candidates if s not in chosen]
    raise ValueError(f'No valid transition in any shard of {self._data_dir}.')

  def reseed(self, seed: int | None) -> None:
    """Restarts the random choice of shards and transitions from a seed."""
    self._random = np.random.default_rng(seed)
    self._backend.reseed(seed)

  def skip(self, batches: int) -> None:
    """Skips this many random batches."""
    self._backend.skip(batches)

  def redraw(self) -> bool:
    """Draws new random shards, if `num_buffers` excludes some; returns whether."""
    if not self._num_buffers or self._num_buffers >= self.num_shards:
      return False
    self.reload_buffer(self._num_buffers)
    return True

  def close(self) -> None:
    """Stops reading shards in the background; packed shards can be sampled."""
    if self._store is not None:
      self._store.close()

  @property
  def loads_uncompressed(self) -> bool:
    """Whether a subclass overrides `_load_buffer`."""
    return type(self)._load_buffer is not FixedReplayBuffer._load_buffer

  def _load_buffer(self, suffix):
    """Returns a replay memory with the shard, or None if there is no such shard.

    Subclasses may override this. Their uncompressed memories, for example a filled
    `OutOfGraphReplayBuffer(*self._args, **self._kwargs)`, are then sampled instead
    of the store.
    """
    return shard_replay_buffer.ShardReplayBuffer(
      self._store, suffix, *self._args, **self._kwargs
    )

  def _use(self, suffixes: list[int]) -> None:
    if self.loads_uncompressed:
      self._load_uncompressed(suffixes)
    else:
      self._use_store(suffixes)
    logging.info(
      'Replay: %d transitions in %d of %d shards (%s).',
      self._backend.num_transitions,
      len(suffixes),
      len(self._suffixes),
      self._data_dir,
    )

  def _load_uncompressed(self, suffixes):
    # Dropped first: old and new shards need not fit into memory together.
    self._backend = None
    self._uncompressed = {
      s: memory for s, memory in self._uncompressed.items() if s in suffixes
    }
    for suffix in suffixes:
      if suffix not in self._uncompressed:
        memory = self._load_buffer(suffix)
        if memory is None:
          raise ValueError(f'There is no shard {suffix} in {self._data_dir}.')
        self._uncompressed[suffix] = memory
    self._backend = loaded_buffers.LoadedBuffers(
      [self._uncompressed[s] for s in suffixes],
      loaded_buffers.ring_sizes(self._data_dir, suffixes),
      self._seed,
      manifests.padding(manifests.read(self._data_dir)),
    )

  def _use_store(self, suffixes):
    stored = suffixes if self._single else self._suffixes
    if self._store is None or not set(stored) <= set(self._store.requested):
      self.close()
      self._open_store(stored)
      if self._check_raw_frames is not None:
        self._check_raw_frames(self.sampler.num_selected(suffixes))
      self._store.start(suffixes)
    if self._skip_damaged:
      # The data depends on which of the shards are damaged.
      self._backend.wait(self._store.suffixes)
    self._backend.use(suffixes, wait_for_all=not self._start_early)

  def _open_store(self, suffixes):
    constructor = circular_replay_buffer.OutOfGraphReplayBuffer.__init__
    bound = inspect.signature(constructor).bind(
      None, *self._args, **self._kwargs
    )
    bound.apply_defaults()
    arguments = bound.arguments
    self._store = store_replay.open_store(
      self._data_dir,
      suffixes,
      self._cache_dir,
      arguments['replay_capacity'],
      arguments['observation_shape'],
      arguments['observation_dtype'],
      self._preload,
      self._skip_damaged,
    )
    self._backend = store_replay.StoreReplay(
      self._store,
      sampler_lib.Sampler(
        self._store,
        arguments['stack_size'],
        arguments['update_horizon'],
        arguments['gamma'],
        self._subset,
        self._seed,
      ),
      self._load_buffer,
      self.get_transition_elements,
    )

  # --- description of the data ------------------------------------------------

  @property
  def sampler(self) -> sampler_lib.Sampler:
    """Sampler of the packed shards; uncompressed shards have none."""
    return self._backend.sampler

  @property
  def _replay_buffers(self) -> list[Any]:
    """The shards that are sampled from, as replay memories."""
    return self._backend.buffers

  @property
  def add_count(self) -> np.ndarray:
    """Number of transitions that can be sampled now, int64 ()."""
    return np.array(self._backend.num_transitions)

  @property
  def num_shards(self) -> int:
    """Number of shards to choose from."""
    return len(self._suffixes)

  def describe(self) -> dict[str, Any]:
    """Describes the data for the run's record; {} for uncompressed shards."""
    return {} if self._store is None else self._backend.describe()

  def file_hashes(self) -> dict[str, str]:
    """Returns the hash of each file of the shards read so far, by file name.

    It is that of `Store.file_hashes`. For uncompressed shards, the six files of
    the shard in `data_dir` are read once more at the first call.
    """
    if not self.loads_uncompressed:
      return {} if self._store is None else self._store.file_hashes()
    hashes = self._uncompressed_hashes
    for suffix in self._uncompressed.keys() - hashes.keys():
      hashes[suffix] = loaded_buffers.file_hashes(self._data_dir, suffix)
    return {name: h for shard in hashes.values() for name, h in shard.items()}

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
    return self._backend.action_range()

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
      batch_size = self._batch_size()
    if indices is None:
      return self._backend.sample(batch_size)
    if len(indices) != batch_size:
      raise ValueError(f'{len(indices)} indices for batch_size={batch_size}.')
    return self._backend.transitions(np.asarray(indices, np.int64))

  def sample_stacks(self, number: int | None = None) -> tuple[np.ndarray, ...]:
    """Returns a random batch, in the arrays of `sample_transition_batch`.

    Args:
      number: Number of the batch since the last `reseed`; None for the next one.
    """
    return self._backend.stacks(number)

  def sample_windows(self, number: int | None = None) -> tuple[np.ndarray, ...]:
    """Returns a random batch with state and next state in one window of frames.

    Args:
      number: Number of the batch since the last `reseed`; None for the next one.

    Returns:
      Windows (n, stack_size + update_horizon, *observation_shape), number of steps
      to the next state int64 (n,), then action, reward, next action, next reward,
      terminal and indices as in `sample_transition_batch`.
    """
    return self._backend.windows(number)

  def sample_rows(
    self, number: int | None = None, count: int = 1
  ) -> tuple[np.ndarray, ...]:
    """Returns consecutive random batches, with rows in place of windows.

    Args:
      number: Number of the first batch since the last `reseed`; None for the next.
      count: Number of batches.

    Returns:
      Rows in the run, int64, then the arrays of `sample_windows`: (count, n) each.
    """
    return self._backend.without_frames(number, count)

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
      state=batch['state'],
      action=batch['action'],
      reward=batch['reward'],
      next_state=batch['next_state'],
      is_terminal=terminal,
      episode_end=terminal,
    )
    if not with_sample_metadata:
      return element
    return element, samplers.SampleMetadata(keys=batch['indices'])

  def _batch_size(self) -> int:
    return self._replay_buffers[0]._batch_size

  def save(self, checkpoint_dir, iteration_number) -> None:
    """Does nothing, since the data never changes."""

  def load(self, checkpoint_dir, suffix) -> None:
    """Does nothing, since the data never changes."""


@gin.configurable(
  denylist=[
    'data_dir',
    'observation_shape',
    'stack_size',
    'update_horizon',
    'seed',
  ]
)
@gin_signatures.forwards_to(
  FixedReplayBuffer,
  without=('data_dir', 'replay_suffix', 'seed', 'check_raw_frames'),
)
@gin_signatures.forwards_to(
  circular_replay_buffer.WrappedReplayBuffer, without=('wrapped_memory',)
)
class WrappedFixedReplayBuffer(graph_replay.GraphReplay):
  """Dopamine's in-graph replay memory around a `FixedReplayBuffer`.

  Takes the arguments of `GraphReplay` and `FixedReplayBuffer`.
  """

  memory_class = FixedReplayBuffer
