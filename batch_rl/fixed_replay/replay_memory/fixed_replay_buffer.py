"""A replay memory that holds a logged run and never changes."""

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import frame_stacks, store_directory
from batch_rl.dataset.store import store as store_lib
from batch_rl.fixed_replay.replay_memory import (
  loaded_buffers,
  shard_replay_buffer,
)
from batch_rl.fixed_replay.replay_memory import prefetch as prefetch_lib
from batch_rl.utils import gin_signatures, seeding

# Of uncompressed buffers that a subclass loads, so many at a time.
_DEFAULT_UNCOMPRESSED = 5


_SMALL_ELEMENTS = (
  'action',
  'reward',
  'next_action',
  'next_reward',
  'terminal',
  'indices',
)
# Dopamine's, in its order.
_GRAPH_ELEMENTS = (
  'state',
  'action',
  'reward',
  'next_state',
  'next_action',
  'next_reward',
  'terminal',
  'indices',
)


@gin.configurable(denylist=['data_dir', 'replay_suffix'])
@gin_signatures.forwards_to(circular_replay_buffer.OutOfGraphReplayBuffer)
class FixedReplayBuffer:
  """A logged run, sampled uniformly over its valid transitions.

  The run is compressed in memory, or in a directory that is memory-mapped. Which
  rows are valid, and that a batch is a function of the seed and its number, see
  `batch_rl.dataset.sampler`.

  Args:
    data_dir: the directory of the shards (`<run>/replay_logs`), or a store made
      by `python -m batch_rl.dataset convert`.
    replay_suffix: the one shard to use; None for all in the range below.
    *args: as `OutOfGraphReplayBuffer`. Of each shard, `replay_capacity` rows are
      used.
    replay_file_start_index: first shard to use, counted from 0.
    replay_file_end_index: one past the last; None for all.
    num_buffers: so many random shards are sampled from at a time, as in the paper
      (5); `reload_buffer` draws others. None for all.
    subset: which part of the data to use, e.g. 'random_trajectories(0.1)'; see
      `batch_rl.dataset.subsets`. None for all.
    cache_dir: where compressed runs are kept for other processes and the next
      time, memory-mapped. None to keep this one in memory only.
    preload: whether to read it from there into memory at once, where disks are
      slow at random access.
    deterministic: whether to wait for all the shards, so that batches depend on
      the seed alone. If not, training starts with the first shard, the others
      arrive in the background. None: if somebody chose the seed.
    skip_damaged: whether to do without damaged shards, with a warning, rather
      than fail. Waits for all shards, to know which are whole.
    seed: of the choice of shards and transitions; None for one by chance.
    **kwargs: as `OutOfGraphReplayBuffer`.

  Raises:
    ValueError: if there is no such shard, it cannot be read, the run does not fit
      into memory, or holds no whole transition.
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
    deterministic=None,
    skip_damaged=False,
    seed=None,
    **kwargs,
  ):
    self._args = args
    self._kwargs = kwargs
    self._data_dir = data_dir
    # Before anything slow.
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
    if deterministic is None:
      deterministic = seed is not None and not seeding.is_drawn()
    # What the data is depends on which shards are whole.
    self._deterministic = deterministic or skip_damaged
    self._skip_damaged = skip_damaged
    self._store: store_lib.Store | None = None
    self._source: Any = None
    suffixes = store_lib.list_shards(data_dir, skip_damaged)
    self._suffixes = suffixes[replay_file_start_index:replay_file_end_index]
    self._num_buffers = None
    if not self._suffixes:
      raise ValueError(
        f'No shard between replay_file_start_index={replay_file_start_index} '
        f'and replay_file_end_index={replay_file_end_index}: {data_dir} has '
        f'{len(suffixes)}, numbered {suffixes[0]} to {suffixes[-1]}.'
      )
    idle = {
      'subset': subset,
      'cache_dir': cache_dir,
      'preload': preload,
      'skip_damaged': skip_damaged,
    }
    if self.loads_uncompressed and any(idle.values()):
      names = ', '.join(name for name, value in idle.items() if value)
      raise ValueError(
        f'{type(self).__name__} loads whole shards by itself: {names} would have '
        'no effect.'
      )
    self._seed = seed
    self._random = np.random.default_rng(seed)
    self._alone = False
    if replay_suffix is not None:
      self.load_single_buffer(replay_suffix)
    else:
      if num_buffers is None and self.loads_uncompressed:
        num_buffers = _DEFAULT_UNCOMPRESSED
      self._num_buffers = num_buffers
      self.reload_buffer(num_buffers)

  # --- what the data is ------------------------------------------------------

  def load_single_buffer(self, suffix: int) -> None:
    """Makes one shard the data.

    Args:
      suffix: its number.

    Raises:
      ValueError: if there is no such shard, it cannot be read, or it holds no
        whole transition.
    """
    self._alone = True  # the others are not wanted in memory
    self._use([suffix])
    if not self._source.num_transitions:
      raise ValueError(
        f'No whole transition in shard {suffix} of {self._data_dir}.'
      )

  def reload_buffer(self, num_buffers: int | None = None) -> None:
    """Makes randomly chosen shards the data; nothing is read twice.

    Args:
      num_buffers: how many; None for all, fewer if there are fewer.

    Raises:
      ValueError: if a shard cannot be read, memory does not suffice, or no shard
        holds a whole transition.
    """
    self._alone = False
    candidates = self._suffixes
    while candidates:
      count = min(num_buffers or len(candidates), len(candidates))
      chosen = self._random.choice(candidates, count, replace=False)
      self._use(sorted(int(suffix) for suffix in chosen))
      if self._source.num_transitions:
        return
      # The final shard of a run may be a row or two.
      candidates = [s for s in candidates if s not in chosen]
    raise ValueError(f'No whole transition in any shard of {self._data_dir}.')

  def reseed(self, seed: int | None) -> None:
    """Restarts the random choice of shards and transitions from a seed."""
    self._random = np.random.default_rng(seed)
    self._source.reseed(seed)

  def skip(self, batches: int) -> None:
    """Leaves out so many random batches."""
    self._source.skip(batches, self._batch_size())

  def redraw(self) -> None:
    """Draws other shards, if `num_buffers` has it that not all are the data."""
    if self._num_buffers and self._num_buffers < self.num_shards:
      self.reload_buffer(self._num_buffers)

  def close(self) -> None:
    """Stops reading shards in the background; what is there can be sampled."""
    if self._store is not None:
      self._store.close()

  @property
  def loads_uncompressed(self) -> bool:
    """Whether a subclass loads shards by itself."""
    return type(self)._load_buffer is not FixedReplayBuffer._load_buffer

  def _load_buffer(self, suffix):
    """For subclasses: returns a replay memory with the shard, or None.

    One that overrides this has its uncompressed memories sampled in place of the
    store; `OutOfGraphReplayBuffer(*self._args, **self._kwargs)` is what to fill.
    """
    return shard_replay_buffer.ShardReplayBuffer(
      self._store, suffix, *self._args, **self._kwargs
    )

  def _use(self, suffixes: list[int]) -> None:
    if self.loads_uncompressed:
      self._source = self._load_uncompressed(suffixes)
    else:
      self._use_store(suffixes)
    logging.info(
      'Replay: %d transitions in %d of %d shards (%s).',
      self._source.num_transitions,
      len(suffixes),
      len(self._suffixes),
      self._data_dir,
    )

  def _load_uncompressed(self, suffixes):
    before: Mapping = getattr(self._source, 'by_suffix', {})
    # Forget first: old and new shards need not fit into memory together.
    self._source = None
    by_suffix = {s: before[s] for s in suffixes if s in before}
    del before
    for suffix in suffixes:
      if suffix not in by_suffix:
        by_suffix[suffix] = self._load_buffer(suffix)
      if by_suffix[suffix] is None:
        raise ValueError(f'There is no shard {suffix} in {self._data_dir}.')
    rings = [
      shard_reader.read_header(
        os.path.join(self._data_dir, shard_files.file_name('terminal', s))
      ).shape[0]
      for s in suffixes
    ]
    source = loaded_buffers.LoadedBuffers(
      [by_suffix[s] for s in suffixes], rings, self._seed
    )
    source.by_suffix = by_suffix
    return source

  def _use_store(self, suffixes):
    if self._store is None:
      self._open_store(suffixes)
    elif not set(self._wanted(suffixes)) <= set(self._store.asked_for):
      self._store.close()
      self._open_store(suffixes)
    # Without those that are skipped as damaged.
    suffixes = [s for s in suffixes if s in self._store.suffixes]
    if self._skip_damaged:
      self._store.wait()
    self._store.prefer(suffixes)
    enough = len(suffixes) if self._deterministic else 1
    self._store.wait(suffixes, enough)
    self._source.restrict(suffixes)
    while not self._source.num_transitions and enough < len(suffixes):
      enough += 1  # a shard may hold no whole transition
      self._store.wait(suffixes, enough)
      self._source.restrict(suffixes)

  def _wanted(self, suffixes):
    """The shards that should be in the store."""
    return suffixes if self._alone else self._suffixes

  def _open_store(self, suffixes):
    constructor = circular_replay_buffer.OutOfGraphReplayBuffer.__init__
    bound = inspect.signature(constructor).bind(
      None, *self._args, **self._kwargs
    )
    bound.apply_defaults()
    arguments = bound.arguments
    directory = self._cache_dir and os.path.join(
      self._cache_dir, store_directory.cache_name(self._data_dir)
    )
    if directory:
      try:
        os.makedirs(directory, exist_ok=True)
      except OSError as error:
        raise ValueError(
          f'cache_dir {self._cache_dir} cannot be written: {error.strerror}.'
        ) from error
    self._store = store_lib.Store(
      self._data_dir,
      self._wanted(suffixes),
      directory,
      max_rows=arguments['replay_capacity'],
      preload=self._preload,
      skip_damaged=self._skip_damaged,
      pack=False,
    )
    if arguments['replay_capacity'] < max(self._store.ring_sizes()):
      logging.warning(
        'Of each shard in %s only the first %d of %d rows are used: see '
        'replay_capacity.',
        self._data_dir,
        arguments['replay_capacity'],
        max(self._store.ring_sizes()),
      )
    found = (self._store.frame_shape, self._store.frame_dtype)
    expected = (
      tuple(arguments['observation_shape']),
      np.dtype(arguments['observation_dtype']),
    )
    if found != expected:
      raise ValueError(
        f'{self._data_dir} holds observations of shape {found[0]} {found[1]}, '
        f'the agent expects {expected[0]} {expected[1]}.'
      )
    self._source = _StoreSource(
      self._store,
      sampler_lib.Sampler(
        self._store,
        arguments['stack_size'],
        arguments['update_horizon'],
        arguments['gamma'],
        self._subset,
        self._seed,
      ),
      self,
    )
    self._store.start(suffixes)

  # --- what it says of itself ------------------------------------------------

  @property
  def _replay_buffers(self) -> list[Any]:
    """The shards that are sampled from, as replay memories."""
    return self._source.buffers

  @property
  def add_count(self) -> np.ndarray:
    """Transitions that can be sampled, int64 ()."""
    return np.array(self._source.num_transitions)

  @property
  def num_shards(self) -> int:
    """Shards to choose from."""
    return len(self._suffixes)

  def describe(self) -> dict[str, Any]:
    """What the data is, for the record of a run; {} of uncompressed buffers."""
    return {} if self._store is None else self._source.describe()

  def raise_error(self) -> None:
    """Raises what went wrong in the background, if anything did.

    Raises:
      batch_rl.dataset.packer.DataError: if a shard is damaged, or there is no
        room.
    """
    if self._store is not None:
      self._store.raise_error()

  def action_range(self) -> tuple[int, int]:
    """The smallest and the largest action in the data."""
    return self._source.action_range()

  def valid_indices(self) -> np.ndarray:
    """Indices of all transitions that can be sampled now, int64."""
    return self._source.valid_indices()

  def get_transition_elements(
    self, batch_size: int | None = None
  ) -> list[circular_replay_buffer.ReplayElement]:
    """Names, shapes and types of a batch; see `OutOfGraphReplayBuffer`."""
    return self._replay_buffers[0].get_transition_elements(batch_size)

  # --- sampling --------------------------------------------------------------

  def sample_index_batch(self, batch_size: int) -> np.ndarray:
    """Valid indices, uniform with replacement: int64 (batch_size,)."""
    return self._source.draw(batch_size)

  def sample_transition_batch(
    self,
    batch_size: int | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
  ) -> tuple[np.ndarray, ...]:
    """A batch of transitions, as Dopamine's `OutOfGraphReplayBuffer` gives it.

    Args:
      batch_size: number of transitions; None for the constructor's.
      indices: rows of the rings of the shards, laid end to end in ascending order
        of their numbers; None for uniformly random valid ones.

    Returns:
      A tuple of arrays, described by `get_transition_elements`.

    Raises:
      ValueError: if indices and batch size disagree, or there is no such row.
    """
    if batch_size is None:
      batch_size = self._batch_size()
    if indices is None:
      indices = self._source.draw(batch_size)
    if len(indices) != batch_size:
      raise ValueError(f'{len(indices)} indices for batch_size={batch_size}.')
    return self._source.transitions(np.asarray(indices, np.int64))

  def sample_stacks(self, number: int | None = None) -> tuple[np.ndarray, ...]:
    """A random batch, as `sample_transition_batch` gives it.

    Args:
      number: of the batch since the last `reseed`; None for the next one.
    """
    return self._source.stacks(number)

  def sample_windows(self, number: int | None = None) -> tuple[np.ndarray, ...]:
    """A random batch with state and next state in one window of frames.

    Args:
      number: of the batch since the last `reseed`; None for the next one.

    Returns:
      Windows (n, stack_size + update_horizon, *observation_shape), steps to the
      next state int64 (n,), then action, reward, next action, next reward,
      terminal and indices as in `sample_transition_batch`.
    """
    return self._source.windows(number)

  def sample(
    self, size: int | None = None, *, with_sample_metadata: bool = False
  ) -> Any:
    """A batch of transitions, as Dopamine's JAX replay buffer gives it.

    Args:
      size: number of transitions; None for the constructor's.
      with_sample_metadata: whether to return the keys of the transitions, too.

    Returns:
      Dopamine's `ReplayElement` with `state`, `action`, `reward`, `next_state`,
      `is_terminal` and `episode_end`, or it and a `SampleMetadata`.
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
    """The data does not change, so a checkpoint of it is nothing."""

  def load(self, checkpoint_dir, suffix) -> None:
    """The data does not change, so a checkpoint of it is nothing."""


class _StoreSource:
  """Samples a store for a `FixedReplayBuffer`."""

  def __init__(
    self,
    store: store_lib.Store,
    sampler: sampler_lib.Sampler,
    buffer: FixedReplayBuffer,
  ):
    self.sampler = sampler
    self._store = store
    self._buffer = buffer
    self._suffixes: list[int] = []
    self._buffers: list[Any] = []

  def restrict(self, suffixes: list[int]) -> None:
    self._suffixes = suffixes
    self._buffers = []
    self.sampler.restrict(suffixes)
    capacities = [self._store.capacity(suffix) for suffix in suffixes]
    # Index i is row i - first_index[j] of the ring of the shard j it falls into.
    self._first_index = np.concatenate([[0], np.cumsum(capacities)])

  def reseed(self, seed: int | None) -> None:
    self.sampler.reseed(seed)

  def skip(self, batches: int, batch_size: int) -> None:
    self.sampler.skip(batches)

  @property
  def buffers(self) -> list[Any]:
    if not self._buffers:
      self._buffers = [self._buffer._load_buffer(s) for s in self._suffixes]
    return self._buffers

  @property
  def num_transitions(self) -> int:
    return self.sampler.num_transitions

  def action_range(self) -> tuple[int, int]:
    return self._store.action_range()

  def describe(self) -> dict[str, Any]:
    return {
      'subset': self.sampler.subset,
      'subset_hash': self.sampler.subset_hash(),
      'shards': sorted(set(self._store.suffixes) - self._store.damaged),
      'trajectories': self.sampler.num_trajectories,
    }

  def valid_indices(self) -> np.ndarray:
    return self.indices_of(self.sampler.valid_rows())

  def draw(self, count: int) -> np.ndarray:
    sampler = self.sampler
    return self.indices_of(sampler.draw(sampler.next_number(), count))

  def indices_of(self, rows: np.ndarray) -> np.ndarray:
    """Indices of rows of the run."""
    shard_of, ring = self._store.ring_of(rows)
    numbers = np.asarray(self._store.suffixes)[shard_of]
    return self._first_index[np.searchsorted(self._suffixes, numbers)] + ring

  def transitions(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Dopamine's arrays for indices, int64 (n,).

    Indices that are no whole transition get what Dopamine's memory would give.
    """
    if len(indices) and not (
      0 <= min(indices) and max(indices) < self._first_index[-1]
    ):
      raise ValueError(
        f'Indices are in [0, {self._first_index[-1]}), not {indices.tolist()}.'
      )
    which = np.searchsorted(self._first_index, indices, side='right') - 1
    self._wait({self._suffixes[i] for i in np.unique(which)})
    ring = indices - self._first_index[which]
    rows = self._store.rows_of(np.asarray(self._suffixes)[which], ring)
    whole = self.sampler.is_valid(rows)
    if whole.all():
      return self._whole_transitions(rows, indices)
    elements = self._buffer.get_transition_elements(len(indices))
    batch = tuple(np.empty(e.shape, e.type) for e in elements)
    if whole.any():
      part = self._whole_transitions(rows[whole], indices[whole])
      for array, values in zip(batch, part, strict=True):
        array[whole] = values
    for i in np.flatnonzero(~whole):
      try:
        one = self.buffers[which[i]].sample_transition_batch(1, [int(ring[i])])
      except AssertionError as error:
        raise ValueError(f'Index {indices[i]}: {error}') from error
      for element, array, value in zip(elements, batch, one, strict=True):
        array[i] = indices[i] if element.name == 'indices' else value[0]
    return batch

  def _wait(self, suffixes: set[int]) -> None:
    """Until the shards of indices that a user asks for are there."""
    if not suffixes <= set(self._store.packed):
      self._store.prefer(suffixes)
      self._store.wait(suffixes)
      self.sampler.refresh()

  def _whole_transitions(self, rows, indices):
    batch = self.sampler.gather(rows)
    stack_size = self.sampler.stack_size
    next_action, next_reward = self.sampler.next_action_and_reward(batch)
    first = np.zeros_like(batch.steps)
    values = {
      'state': frame_stacks.channels_last(batch.windows, first, stack_size),
      'action': batch.action,
      'reward': batch.reward,
      'next_state': frame_stacks.channels_last(
        batch.windows, batch.steps, stack_size
      ),
      'next_action': next_action,
      'next_reward': next_reward,
      'terminal': batch.terminal,
      'indices': indices,
    }
    return tuple(
      np.asarray(values[element.name], element.type)
      for element in self._buffer.get_transition_elements(len(indices))
    )

  def _rows(self, number):
    """Rows of a batch; None for the next one."""
    if number is None:
      number = self.sampler.next_number()
    return self.sampler.draw(number, self._buffer._batch_size())

  def stacks(self, number: int | None) -> tuple[np.ndarray, ...]:
    """A random batch as Dopamine's arrays."""
    rows = self._rows(number)
    return self._whole_transitions(rows, self.indices_of(rows))

  def windows(self, number: int | None) -> tuple[np.ndarray, ...]:
    """A random batch with windows of frames."""
    sampler = self.sampler
    batch = sampler.gather(self._rows(number))
    return (
      batch.windows,
      batch.steps,
      batch.action.astype(np.int32),
      batch.reward,
      *sampler.next_action_and_reward(batch),
      batch.terminal,
      self.indices_of(batch.rows).astype(np.int32),
    )


@gin.configurable(
  denylist=['data_dir', 'observation_shape', 'stack_size', 'update_horizon']
)
@gin_signatures.forwards_to(
  FixedReplayBuffer, without=('data_dir', 'replay_suffix', 'seed')
)
@gin_signatures.forwards_to(
  circular_replay_buffer.WrappedReplayBuffer, without=('wrapped_memory',)
)
class WrappedFixedReplayBuffer(circular_replay_buffer.WrappedReplayBuffer):
  """Dopamine's in-graph replay memory around a `FixedReplayBuffer`.

  Args:
    data_dir: the directory of the shards, or a store.
    replay_suffix: the one shard to use; None for all.
    observation_shape: of one frame.
    stack_size: frames in a state.
    use_staging: has no effect in current Dopamine.
    replay_capacity: at most so many rows of each shard are used.
    batch_size: transitions in a batch.
    update_horizon: the 'n' of n-step returns.
    gamma: discount factor.
    observation_dtype: NumPy dtype of a frame.
    prefetch: batches that are prepared ahead; 0 to prepare each when it is asked
      for. The batches are the same.
    prefetch_threads: that prepare them.
    stack_on_device: whether windows of frames become states on the agent's device,
      which takes half of what is sent there; if not, the threads do it, in a
      fraction of a CPU's time. None: if there is a GPU.
    **kwargs: as `FixedReplayBuffer` and Dopamine's `OutOfGraphReplayBuffer`.

  Attributes:
    feed: where batches come from (`feed.Feed`); None if they are not prefetched.
    batch: the tensors that come from there.

  Raises:
    ValueError: if `prefetch` or `prefetch_threads` is too small, or as
      `FixedReplayBuffer`.
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
    prefetch=8,
    prefetch_threads=2,
    stack_on_device=None,
    **kwargs,
  ):
    for name, value, least in (
      ('prefetch', prefetch, 0),
      ('prefetch_threads', prefetch_threads, 1),
    ):
      if value != int(value) or value < least:
        raise ValueError(f'{name}={value} is not a number from {least} on.')
    self._prefetch = int(prefetch)
    self._prefetch_threads = int(prefetch_threads)
    if stack_on_device is None:
      stack_on_device = bool(tf.config.list_physical_devices('GPU'))
    self._stack_on_device = stack_on_device
    self.feed = None
    self.batch = []
    self._drawn = True
    self._stack_size = stack_size
    self._window = stack_size + update_horizon
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

  def create_sampling_ops(self, use_staging) -> None:
    """Makes `transition`: each `session.run` of its tensors draws a batch.

    Args:
      use_staging: has no effect.
    """
    elements = self.memory.get_transition_elements()
    names = tuple(element.name for element in elements)
    if names != _GRAPH_ELEMENTS or self.memory.loads_uncompressed:
      super().create_sampling_ops(use_staging)
      return
    with tf.name_scope('sample_replay'):
      if self._stack_on_device:
        tensors = self._stack_windows(elements)
      else:
        tensors = self._draw(
          self.memory.sample_stacks,
          [element.type for element in elements],
          [element.shape for element in elements],
        )
      self._set_transition_shape(tensors, elements)
      self.unpack_transition(tensors, elements)

  def _stack_windows(self, elements):
    """A window crosses into the graph; state and next state are cut out of it."""
    types = {element.name: element for element in elements}
    state = types['state']
    batch, *frame_shape, _ = state.shape
    windows, steps, *rest = self._draw(
      self.memory.sample_windows,
      [state.type, np.int64] + [types[name].type for name in _SMALL_ELEMENTS],
      [(batch, self._window, *frame_shape), (batch,)]
      + [types[name].shape for name in _SMALL_ELEMENTS],
    )
    permutation = (0, *range(2, 2 + len(frame_shape)), 1)

    def stack(first):
      places = first[:, None] + tf.range(self._stack_size, dtype=tf.int64)
      frames = tf.gather(windows, places, batch_dims=1)
      return tf.transpose(frames, permutation)

    tensors = dict(zip(_SMALL_ELEMENTS, rest, strict=True))
    tensors['state'] = stack(tf.zeros_like(steps))
    tensors['next_state'] = stack(steps)
    return [tensors[element.name] for element in elements]

  def _draw(self, draw, dtypes, shapes):
    """Tensors of what `draw` returns, given the number of the batch or None."""
    if self._prefetch:
      self.feed = prefetch_lib.Feed(
        draw, dtypes, shapes, self._prefetch, self._prefetch_threads
      )
      with tf.control_dependencies([self.feed.ready]):
        self.batch = self.feed.next()
      return self.batch
    with tf.device('/cpu:*'):
      arrays = tf.numpy_function(draw, [], dtypes, name='replay_sample_py_func')
    return [
      tf.ensure_shape(array, shape)
      for array, shape in zip(arrays, shapes, strict=True)
    ]

  def begin_iteration(self, iteration: int, first_batch: int = 0) -> None:
    """Draws the iteration's shards, if `num_buffers` is set, and batches.

    Args:
      iteration: with the run's seed, it decides the shards and the batches.
      first_batch: number of the iteration's batch to begin with.
    """
    seed = seeding.derive('replay', iteration)
    # Without a seed the draw at construction is as good as another.
    drawn, self._drawn = self._drawn, False
    if seed is None and drawn:
      return
    self.memory.reseed(seed)
    self.memory.redraw()
    self.memory.skip(first_batch)
    if self.feed is not None:
      self.feed.restart(first_batch)
