"""Batches of a fixed replay as tensors of a TensorFlow graph."""

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.dataset.sampling import prefetch as prefetch_lib
from batch_rl.dataset.sampling import row_sampler
from batch_rl.fixed_replay.replay_memory import device_frames
from batch_rl.utils import seeding

# Batches that a thread loads at once if their frames are on the device.
_TOGETHER_WITHOUT_FRAMES = 32


class _Arrays:
  """The arrays of a batch for the graph.

  They have the frames as 'state' and 'next_state'; or as 'windows', or 'places' of
  frames on the device, each with 'steps' from the state to the next state.

  Args:
    replay: Replay of the batches. It is not held: threads that load batches hold this
      object, and end with the replay.

  Attributes:
    types: Dtype and shape of each array, by its name, in their order.
  """

  def __init__(self, replay: 'GraphReplay'):
    self._memory = memory = replay.memory
    self._frames = frames = replay._frames
    further, window = replay._further, replay._window
    has_windows = replay._stack_on_device and not memory._draws_itself
    self._form: str | None = 'stacks'
    self._shipped = [n for n in further if columns_lib.is_shipped(n)]
    self._users = [n for n in further if not columns_lib.is_shipped(n)]
    elements = memory.get_transition_elements()
    types = {e.name: (e.type, tuple(e.shape)) for e in elements}
    dtype, (size, *frame_shape, _) = types['state']
    if frames is not None or has_windows:
      del types['state'], types['next_state']
      types = {'steps': (np.int64, (size,)), **types}
    if frames is not None:
      self._form = None
      types = {'places': (np.int64, (size,)), **types}
    elif has_windows:
      self._form = 'windows'
      types = {'windows': (dtype, (size, window, *frame_shape)), **types}
    for name in further:
      types[name] = columns_lib.COLUMNS[name].dtype, (size,)
    self.types = types
    self._dtypes = [np.dtype(dtype) for dtype, _ in types.values()]
    self._size = size

  def load(self, number: int, count: int) -> list[tuple[np.ndarray, ...]]:
    """Returns consecutive batches, from batch `number` on."""
    sampler, size = self._memory.sampler, self._size
    batches = sampler.batches(number, size, count, self._form)
    rows = np.concatenate([batch.rows for batch in batches])
    columns = sampler.named_columns(rows, self._shipped)
    columns['indices'] = self._memory.indices_of(rows)
    if self._frames is not None:
      columns['places'] = self._frames.places.of(rows)
    loaded = []
    for i, batch in enumerate(batches):
      part = slice(i * size, (i + 1) * size)
      own = {name: column[part] for name, column in columns.items()}
      if self._users:  # Such a column may depend on all rows that it gets.
        own |= sampler.named_columns(batch.rows, self._users)
      arrays = [own[n] if n in own else getattr(batch, n) for n in self.types]
      loaded.append(tuple(map(np.asarray, arrays, self._dtypes)))
    return loaded

  def load_next(self) -> tuple[np.ndarray, ...]:
    """Returns the next batch."""
    if self._memory._draws_itself:
      return self._memory.sample_transition_batch()
    [batch] = self.load(self._memory.sampler.next_number(), 1)
    return batch


class GraphReplay(circular_replay_buffer.WrappedReplayBuffer):
  """Dopamine's in-graph replay memory around a fixed replay.

  Batches are prefetched, or drawn on demand, as tensors of the graph. A subclass
  sets `memory_class` to the class of the memory.

  Args:
    data_dir: Directory of the shards, or a store.
    replay_suffix: Number of a single shard to use; None for all shards.
    observation_shape: Shape of one frame.
    stack_size: Number of frames in a state.
    use_staging: Unused, as in current Dopamine.
    replay_capacity: Maximum number of rows to use of each shard; shards of whole
      episodes, as imports make them, are used whole.
    batch_size: Number of transitions in a batch.
    update_horizon: n of the n-step return, in agent steps.
    gamma: Discount factor.
    observation_dtype: NumPy dtype of a frame.
    prefetch: Number of batches prefetched, at least 0; 0 prepares each batch
      on demand. The batches are the same. A thread prepares several small ones at
      once, at most 128 transitions, or 32 batches with `frames_on_device`, so more
      batches may be ahead.
    prefetch_threads: Number of threads that prepare batches, at least 1.
    stack_on_device: Whether the agent's device builds the states from windows of
      frames, which halves the bytes sent to it. Otherwise the prefetching threads
      build them, which is much faster on a CPU. None selects True if there is a GPU.
    frames_on_device: Whether the agent's device keeps the raw frames of all
      transitions that can be drawn, and builds the states from them. The batches are
      bit-exactly the same.
    seed: Seed of the run; None for an unseeded memory.
    columns: Names of further columns, e.g. 'return_to_go', which `transition` and
      `unpack` then have; see `batch_rl.dataset.sampling.columns`.
    deferred: Whether to leave the wait for the shards to `finish`, before the first
      batch, so that the rest of the graph is built and checked meanwhile. It has no
      effect with `frames_on_device`, or if `memory_class` does not name it.
    **kwargs: Keyword arguments of `memory_class`.

  Attributes:
    ready: Operations to run before the tensors of `next_batch`.

  Raises:
    ValueError: If `prefetch` or `prefetch_threads` is too small, the byte order is
      foreign, the memory cannot be built, or `frames_on_device` is True and the frames
      do not fit, or the data is not packed in a store.
  """

  memory_class: Callable[..., Any]

  def __init__(
    self,
    data_dir: str,
    replay_suffix: int | None,
    observation_shape: tuple[int, ...],
    stack_size: int,
    use_staging: bool = False,
    replay_capacity: int = 1_000_000,
    batch_size: int = 32,
    update_horizon: int = 1,
    gamma: float = 0.99,
    *,
    observation_dtype: Any = np.uint8,
    prefetch: int = 8,
    prefetch_threads: int = 2,
    stack_on_device: bool | None = None,
    frames_on_device: bool = False,
    seed: int | None = None,
    columns: Sequence[str] = (),
    deferred: bool = False,
    **kwargs: Any,
  ):
    self._further = columns_lib.check(columns)
    # Checked before the memory reads shards.
    row_sampler.check_counts(prefetch_threads=prefetch_threads)
    row_sampler.check_counts(0, prefetch=prefetch)
    if not (dtype := np.dtype(observation_dtype)).isnative:
      raise ValueError(
        f'TensorFlow would misread observations of {dtype}, a foreign byte order: run '
        f'`batch-rl dataset export {data_dir} NEW --format=shards`, and set '
        f'observation_dtype={dtype.newbyteorder("=")} for NEW.'
      )
    self._prefetch, self._prefetch_threads = prefetch, prefetch_threads
    if stack_on_device is None:
      has_gpu = bool(tf.config.list_physical_devices('GPU'))
      stack_on_device = has_gpu and 'cpu' not in tf.zeros(()).device.lower()
    self._stack_on_device = stack_on_device
    self._seed = seed
    self._is_first_iteration = True
    self._first_batch = 0  # of the iteration, for `_restart`
    self._prefetcher: prefetch_lib.Prefetcher | None = None
    self.ready: list[tf.Operation] = []
    self._stack_size = stack_size
    self._window = stack_size + update_horizon
    self._frames: device_frames.DeviceFrames | None = None
    if frames_on_device:
      self._frames = device_frames.DeviceFrames(
        observation_shape, observation_dtype, stack_size
      )
      kwargs['check_raw_frames'] = self._frames.check
    if self._further:
      kwargs['columns'] = self._further
    known = inspect.signature(self.memory_class).parameters
    if deferred and 'deferred' in known and self._frames is None:
      kwargs['deferred'] = True
    frame = observation_shape, stack_size
    sizes = replay_capacity, batch_size, update_horizon, gamma
    kwargs['observation_dtype'] = observation_dtype
    kwargs['seed'] = seeding.derive(seed, 'replay')
    memory = self.memory_class(
      data_dir, replay_suffix, *frame, *sizes, **kwargs
    )
    self._use_frames(memory)
    super().__init__(*frame, use_staging, *sizes, memory)
    # Weak: threads that load batches hold the memory, and end with this object.
    restart = weakref.WeakMethod(self._restart)

    def restart_if_alive():
      if (method := restart()) is not None:
        method()

    memory.on_reload = restart_if_alive
    if not deferred:
      self.finish()

  def finish(self) -> None:
    """Waits for the shards of a `deferred` memory, and checks a user's columns.

    Raises:
      ValueError: If a shard is damaged, or no transition is valid.
    """
    self.memory.finish()
    if self._further and not self.memory._draws_itself:
      # An error of a user's column would be lost among TensorFlow's lines.
      [first] = self.memory.sampler.batches(0, self.batch_size, frames=None)
      self.memory.sampler.named_columns(first.rows, self._further)

  def _use_frames(self, memory) -> None:
    """Puts the frames of the memory's shards on the device, if they belong there."""
    if self._frames is not None:
      self._frames.use(memory.sampler)

  def _restart(self) -> None:
    """Drops the prefetched batches after other code has changed the shards."""
    # A resumed iteration goes on where it was stopped.
    first, self._first_batch = self._first_batch, 0
    self.memory.reseed_from_itself()
    self._use_frames(self.memory)
    self._skip(first)

  def close(self, wait: bool = True) -> None:
    """Ends the threads; no batches can be drawn afterwards.

    Args:
      wait: Whether to wait for the shard that is being packed.
    """
    if self._prefetcher is not None:
      self._prefetcher.stop()
    if store := getattr(self.memory, '_store', None):
      store.close(wait)  # It may still be packing shards.

  def create_sampling_ops(self, use_staging: bool) -> None:
    """Builds the tensors of `transition`; each `session.run` draws a batch.

    Args:
      use_staging: Unused.
    """
    self._arrays = _Arrays(self)
    self._take = self._arrays.load_next
    if self._frames is not None:
      self.ready = [self._frames.ready]
    if self._prefetch and not self.memory._draws_itself:
      ahead, threads = self._prefetch, self._prefetch_threads
      together = _TOGETHER_WITHOUT_FRAMES
      if self._frames is None:
        together = prefetch_lib.together(self.batch_size, ahead, threads)
      self._prefetcher = prefetch_lib.Prefetcher(
        self._arrays.load, ahead, threads, together
      )
      self._take = self._prefetcher.take
    with tf.name_scope('sample_replay'):
      with tf.control_dependencies(self.ready):
        batch = self.next_batch()
      self.unpack(batch)

  def next_batch(self) -> list[tf.Tensor]:
    """Builds the operations that take the next batch, in the current graph.

    Returns:
      The tensors of the batch, for `unpack`.
    """
    types = self._arrays.types.values()
    with tf.device('/cpu:*'):
      arrays = tf.numpy_function(self._take, [], [dtype for dtype, _ in types])
      return [
        tf.ensure_shape(array, shape)
        for array, (_, shape) in zip(arrays, types, strict=True)
      ]

  def unpack(self, batch: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Sets and returns `transition`, by `unpack_transition` and with further columns."""
    tensors = dict(zip(self._arrays.types, batch, strict=True))
    if self._frames is not None:
      last, steps = tensors['places'], tensors['steps']
      tensors['state'] = self._frames.states(last)
      tensors['next_state'] = self._frames.states(last + steps)
    elif 'windows' in tensors:
      states = self._states(tensors['windows'], tensors['steps'])
      tensors['state'], tensors['next_state'] = states
    elements = self.memory.get_transition_elements()
    self.unpack_transition([tensors[e.name] for e in elements], elements)
    for name in self._further:
      self.transition[name] = tensors[name]
    return self.transition

  def _states(
    self, windows: tf.Tensor, steps: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns states and next states (n, *observation_shape, stack_size)."""
    size = self._stack_size
    horizon = self._window - size
    following = windows[:, horizon:]
    # Not a gather: GPUs have no kernel of it for small integers.
    shape = -1, *[1] * (windows.shape.rank - 1)
    for earlier in range(1, horizon):
      ends = tf.reshape(tf.equal(steps, earlier), shape)
      states = windows[:, earlier : earlier + size]
      following = tf.where(ends, states, following)
    axes = (0, *range(2, windows.shape.rank), 1)
    state = tf.transpose(windows[:, :size], axes)
    return state, tf.transpose(following, axes)

  def begin_iteration(self, iteration: int, first_batch: int = 0) -> None:
    """Starts an iteration's batches, on new shards if `num_buffers` is set.

    Args:
      iteration: Number of the iteration. With the run's seed, it determines the
        shards and the batches.
      first_batch: Number of the iteration's first batch to draw.
    """
    self._first_batch = first_batch
    seed = seeding.derive(self._seed, 'replay', iteration)
    is_first, self._is_first_iteration = self._is_first_iteration, False
    if seed is None and is_first:
      return  # The constructor has drawn its shards.
    self.memory.reseed(seed)
    if self.memory.redraw():
      self._use_frames(self.memory)
    self._skip(first_batch)

  def resume(self, batches: int) -> None:
    """Continues after a number of batches of a seeded run without iterations."""
    if self._seed is not None:
      self._first_batch = batches
      self.memory.reseed(seeding.derive(self._seed, 'replay'))
      self._skip(batches)

  def _skip(self, batches: int) -> None:
    self.memory.skip(batches)
    if self._prefetcher is not None:
      self._prefetcher.restart(batches)
