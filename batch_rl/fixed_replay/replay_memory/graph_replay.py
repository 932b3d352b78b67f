"""Batches of a fixed replay as tensors of a TensorFlow graph."""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.fixed_replay.replay_memory import block_prefetch, device_frames
from batch_rl.fixed_replay.replay_memory import prefetch as prefetch_lib
from batch_rl.utils import seeding

# Elements of a transition without frames.
_SMALL_ELEMENTS = (
  'action',
  'reward',
  'next_action',
  'next_reward',
  'terminal',
  'indices',
)
# Batches that a call of Python loads if their frames are on the device.
_TOGETHER = 32
# Transitions that a thread loads at once otherwise.
_TRANSITIONS_TOGETHER = 128


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
    replay_capacity: Maximum number of rows to use of each shard.
    batch_size: Number of transitions in a batch.
    update_horizon: Number of steps in a return, the n of n-step.
    gamma: Discount factor.
    observation_dtype: NumPy dtype of a frame.
    prefetch: Number of batches prepared ahead, at least 0; 0 prepares each batch
      on demand. The batches are the same. A thread prepares several small ones at
      once, at most 128 transitions, so a few more batches may be ahead.
    prefetch_threads: Number of threads that prepare batches, at least 1.
    stack_on_device: Whether the agent's device builds the states from windows of
      frames, which halves the bytes sent to it. Otherwise the prefetching threads
      build them, which is much faster on a CPU. None is True if there is a GPU.
    frames_on_device: Whether the agent's device keeps the raw frames of all
      transitions that can be drawn, and builds the states from them. The batches are
      the same, to the bit.
    seed: Seed of the run; None for an unseeded memory.
    columns: Names of further columns, e.g. 'return_to_go', which `transition` and
      `unpack` then have; see `batch_rl.dataset.sampling.columns`.
    **kwargs: Keyword arguments of `memory_class`.

  Attributes:
    ready: Operations to run before the tensors of `next_batch`.

  Raises:
    ValueError: If `prefetch` or `prefetch_threads` is too small, the memory cannot
      be built, or `frames_on_device` is True and the frames do not fit, or the data
      is not packed in a store.
  """

  memory_class: Callable[..., Any]

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
    *,
    observation_dtype=np.uint8,
    prefetch=8,
    prefetch_threads=2,
    stack_on_device=None,
    frames_on_device=False,
    seed=None,
    columns=(),
    **kwargs,
  ):
    self._further = columns_lib.check(columns)
    # Checked before the memory reads shards.
    for name, value, least in (
      ('prefetch', prefetch, 0),
      ('prefetch_threads', prefetch_threads, 1),
    ):
      if value != int(value) or value < least:
        raise ValueError(
          f'{name}={value} is not an integer of at least {least}.'
        )
    if not isinstance(frames_on_device, bool):
      raise ValueError(
        f'frames_on_device={frames_on_device!r} is neither True nor False.'
      )
    if frames_on_device and stack_on_device is False:
      raise ValueError(
        'frames_on_device=True contradicts stack_on_device=False: remove one of them.'
      )
    self._prefetch = int(prefetch)
    self._prefetch_threads = int(prefetch_threads)
    if stack_on_device is None:
      stack_on_device = bool(tf.config.list_physical_devices('GPU'))
    self._stack_on_device = stack_on_device
    self._seed = seed
    self._prefetcher: (
      prefetch_lib.Prefetcher | block_prefetch.BlockPrefetcher | None
    ) = None
    self.ready: list[tf.Operation] = []
    self._is_first_iteration = True
    self._stack_size = stack_size
    self._window = stack_size + update_horizon
    self._frames: device_frames.DeviceFrames | None = None
    if frames_on_device:
      self._frames = device_frames.DeviceFrames(
        tf.zeros(()).device, observation_shape, observation_dtype, stack_size
      )
      kwargs['check_raw_frames'] = self._frames.check
    if self._further:
      kwargs['columns'] = self._further
    memory = self.memory_class(
      data_dir,
      replay_suffix,
      observation_shape,
      stack_size,
      replay_capacity,
      batch_size,
      update_horizon,
      gamma,
      observation_dtype=observation_dtype,
      seed=seeding.derive(seed, 'replay'),
      **kwargs,
    )
    self._use_frames(memory)
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
    # Weak: threads that load batches hold the memory, and end with this object.
    restart = weakref.WeakMethod(self._restart)

    def restart_if_alive():
      if (method := restart()) is not None:
        method()

    memory.on_reload = restart_if_alive

  def _use_frames(self, memory) -> None:
    """Puts the frames of the memory's shards on the device, if they belong there."""
    if self._frames is not None:
      self._frames.use(memory.sampler)

  def _restart(self) -> None:
    """Drops the batches of the shards before other code has changed them."""
    self.memory.reseed_from_itself()
    self._use_frames(self.memory)
    if self._prefetcher is not None:
      self._prefetcher.restart()

  def create_sampling_ops(self, use_staging) -> None:
    """Builds the tensors of `transition`; each `session.run` draws a batch.

    Args:
      use_staging: Unused.
    """
    self._elements = self.memory.get_transition_elements()
    self._load, dtypes, shapes = self._loader()
    for name in self._further:
      dtypes.append(columns_lib.COLUMNS[name].dtype)
      shapes.append((self.batch_size,))
    self._arrays = list(zip(dtypes, shapes, strict=True))
    if self._frames is not None:
      self.ready = [self._frames.ready]
    if self._prefetch and not self.memory.loads_uncompressed:
      self._prefetcher = self._make_prefetcher(dtypes, shapes)
    with tf.name_scope('sample_replay'):
      with tf.control_dependencies(self.ready):
        batch = self.next_batch()
      tensors = self.unpack(batch)
      small = [tensors[element.name] for element in self._elements]
      self.unpack_transition(small, self._elements)
      for name in self._further:
        self.transition[name] = tensors[name]

  def _make_prefetcher(self, dtypes, shapes):
    if self._frames is None:
      load, stacked = self.memory.sample_consecutive, not self._has_windows
      together = _TRANSITIONS_TOGETHER // self.batch_size
      return prefetch_lib.Prefetcher(
        self._load,
        dtypes,
        shapes,
        self._prefetch,
        self._prefetch_threads,
        load_consecutive=lambda number, count: load(number, count, stacked),
        together=max(
          1, min(together, self._prefetch // self._prefetch_threads)
        ),
      )
    blocks = block_prefetch.BlockPrefetcher(
      functools.partial(self._load_places, self._frames, _TOGETHER),
      dtypes,
      shapes,
      self._prefetch,
      _TOGETHER,
    )
    self.ready.append(blocks.ready)
    return blocks

  def next_batch(self) -> list[tf.Tensor]:
    """Builds the operations that take the next batch, in the current graph.

    Returns:
      The tensors of the batch, for `unpack`.
    """
    if self._prefetcher is not None:
      return self._prefetcher.next()
    with tf.device('/cpu:*'):
      arrays = tf.numpy_function(
        self._load, [], [dtype for dtype, _ in self._arrays]
      )
    return [
      tf.ensure_shape(array, shape)
      for array, (_, shape) in zip(arrays, self._arrays, strict=True)
    ]

  def unpack(self, batch: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the tensors of a batch by name, e.g. 'state', with further columns."""
    names = [element.name for element in self._elements]
    names.extend(self._further)
    if self._frames is None and not self._has_windows:
      return dict(zip(names, batch, strict=True))
    frames, steps, *rest = batch
    small = (*_SMALL_ELEMENTS, *self._further)
    tensors = dict(zip(small, rest, strict=True))
    tensors['state'], tensors['next_state'] = self._states(frames, steps)
    return {name: tensors[name] for name in names}

  @property
  def _has_windows(self):
    """Whether a batch has windows of frames rather than states."""
    return self._stack_on_device and not self.memory.loads_uncompressed

  def _loader(self) -> tuple[Callable[..., Any], list[Any], list[Any]]:
    """Returns the function that loads a batch, and the dtypes and shapes of its arrays."""
    elements = {element.name: element for element in self._elements}
    dtypes = [element.type for element in self._elements]
    shapes = [element.shape for element in self._elements]
    if self.memory.loads_uncompressed:
      return self.memory.sample_transition_batch, dtypes, shapes
    if self._frames is None and not self._has_windows:
      return self.memory.sample_stacks, dtypes, shapes
    state = elements['state']
    batch, *frame_shape, _ = state.shape
    small = [elements[name] for name in _SMALL_ELEMENTS]
    if self._frames is not None:
      return (
        functools.partial(self._load_places, self._frames, 0),
        [np.int64, np.int64, *(element.type for element in small)],
        [(batch,)] * (2 + len(small)),
      )
    return (
      self.memory.sample_windows,
      [state.type, np.int64, *(element.type for element in small)],
      [
        (batch, self._window, *frame_shape),
        (batch,),
        *(element.shape for element in small),
      ],
    )

  def _load_places(
    self,
    frames: device_frames.DeviceFrames,
    count: int,
    number: int | None = None,
  ) -> tuple[np.ndarray, ...]:
    """Returns consecutive batches with places of frames instead of windows.

    Args:
      frames: Frames on the device.
      count: Number of batches, (count, n) each array; 0 for one batch, (n,).
      number: Number of the first batch; None for the next one.
    """
    rows, *rest = self.memory.sample_rows(number, count or 1)
    arrays = frames.places.of(rows), *rest
    return arrays if count else tuple(array[0] for array in arrays)

  def _states(
    self, frames: tf.Tensor, steps: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns states and next states (n, *observation_shape, stack_size)."""
    if self._frames is not None:
      return self._frames.states(frames), self._frames.states(frames + steps)
    size = self._stack_size
    if self._window == size + 1:  # All next states are one step later.
      following = frames[:, 1:]
    else:
      positions = steps[:, None] + tf.range(size, dtype=tf.int64)
      following = _gather(frames, positions)
    axes = (0, *range(2, frames.shape.rank), 1)
    return (
      tf.transpose(frames[:, :size], axes),
      tf.transpose(following, axes),
    )

  def begin_iteration(self, iteration: int, first_batch: int = 0) -> None:
    """Starts an iteration's batches, on new shards if `num_buffers` is set.

    Args:
      iteration: Number of the iteration. With the run's seed, it determines the
        shards and the batches.
      first_batch: Number of the iteration's first batch to draw.
    """
    seed = seeding.derive(self._seed, 'replay', iteration)
    is_first, self._is_first_iteration = self._is_first_iteration, False
    if seed is None and is_first:
      return  # the constructor has drawn its shards
    self.memory.reseed(seed)
    redrawn = self.memory.redraw()
    self.memory.skip(first_batch)
    if redrawn:
      self._use_frames(self.memory)
    if self._prefetcher is not None:
      self._prefetcher.restart(first_batch)


def _gather(frames: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
  """Gathers frames (n, w, ...) by their positions in each window, int64 (n, m).

  Small and unsigned integers are gathered as others: GPUs have no kernel for them.
  """
  dtype = frames.dtype
  if dtype in (tf.uint32, tf.uint64):
    signed = tf.int32 if dtype == tf.uint32 else tf.int64
    found = tf.gather(tf.bitcast(frames, signed), positions, batch_dims=1)
    return tf.bitcast(found, dtype)
  gathered = tf.int32 if dtype.is_integer and dtype.size < 4 else dtype
  found = tf.gather(tf.cast(frames, gathered), positions, batch_dims=1)
  return tf.cast(found, dtype)
