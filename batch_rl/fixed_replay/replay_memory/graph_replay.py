"""Batches of a fixed replay as tensors of a TensorFlow graph."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.fixed_replay.replay_memory import prefetch as prefetch_lib
from batch_rl.utils import seeding

# Names of the elements of a transition, in Dopamine's order.
_ELEMENTS = (
  'state',
  'action',
  'reward',
  'next_state',
  'next_action',
  'next_reward',
  'terminal',
  'indices',
)
_SMALL_ELEMENTS = tuple(
  name for name in _ELEMENTS if name not in ('state', 'next_state')
)


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
      on demand. The batches are the same.
    prefetch_threads: Number of threads that prepare batches, at least 1.
    stack_on_device: Whether the agent's device builds the states from windows of
      frames, which halves the bytes sent to it. Otherwise the prefetching threads
      build them, which is much faster on a CPU. None is True if there is a GPU.
    seed: Seed of the run; None for an unseeded memory.
    **kwargs: Keyword arguments of `memory_class`.

  Attributes:
    prefetcher: `Prefetcher` of the batches; None without prefetching.
    batch: Prefetched tensors of a batch, before states are stacked; empty without
      prefetching.

  Raises:
    ValueError: If `prefetch` or `prefetch_threads` is too small, or the memory
      cannot be built.
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
    observation_dtype=np.uint8,
    prefetch=8,
    prefetch_threads=2,
    stack_on_device=None,
    seed=None,
    **kwargs,
  ):
    # Checked before the memory reads shards.
    for name, value, least in (
      ('prefetch', prefetch, 0),
      ('prefetch_threads', prefetch_threads, 1),
    ):
      if value != int(value) or value < least:
        raise ValueError(
          f'{name}={value} is not an integer of at least {least}.'
        )
    self._prefetch = int(prefetch)
    self._prefetch_threads = int(prefetch_threads)
    if stack_on_device is None:
      stack_on_device = bool(tf.config.list_physical_devices('GPU'))
    self._stack_on_device = stack_on_device
    self._seed = seed
    self.prefetcher = None
    self.batch = []
    self._is_first_iteration = True
    self._stack_size = stack_size
    self._window = stack_size + update_horizon
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
    """Builds the tensors of `transition`; each `session.run` draws a batch.

    Args:
      use_staging: Unused.
    """
    elements = self.memory.get_transition_elements()
    names = tuple(element.name for element in elements)
    if names != _ELEMENTS or self.memory.loads_uncompressed:
      super().create_sampling_ops(use_staging)
      return
    with tf.name_scope('sample_replay'):
      if self._stack_on_device:
        tensors = self._stack_windows(elements)
      else:
        tensors = self._build_batch(
          self.memory.sample_stacks,
          [element.type for element in elements],
          [element.shape for element in elements],
        )
      self._set_transition_shape(tensors, elements)
      self.unpack_transition(tensors, elements)

  def _stack_windows(self, elements):
    """Draws windows of frames, and builds state and next state from them."""
    by_name = {element.name: element for element in elements}
    state = by_name['state']
    batch, *frame_shape, _ = state.shape
    windows, steps, *rest = self._build_batch(
      self.memory.sample_windows,
      [state.type, np.int64] + [by_name[name].type for name in _SMALL_ELEMENTS],
      [(batch, self._window, *frame_shape), (batch,)]
      + [by_name[name].shape for name in _SMALL_ELEMENTS],
    )
    permutation = (0, *range(2, 2 + len(frame_shape)), 1)

    def stack(first):
      positions = first[:, None] + tf.range(self._stack_size, dtype=tf.int64)
      frames = tf.gather(windows, positions, batch_dims=1)
      return tf.transpose(frames, permutation)

    tensors = dict(zip(_SMALL_ELEMENTS, rest, strict=True))
    tensors['state'] = stack(tf.zeros_like(steps))
    tensors['next_state'] = stack(steps)
    return [tensors[name] for name in _ELEMENTS]

  def _build_batch(
    self,
    sample: Callable[..., tuple[np.ndarray, ...]],
    dtypes: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
  ) -> list[tf.Tensor]:
    """Returns tensors of a batch of `sample`, a function of the batch number."""
    if self._prefetch:
      self.prefetcher = prefetch_lib.Prefetcher(
        sample, dtypes, shapes, self._prefetch, self._prefetch_threads
      )
      with tf.control_dependencies([self.prefetcher.ready]):
        self.batch = self.prefetcher.next()
      return self.batch
    with tf.device('/cpu:*'):
      arrays = tf.numpy_function(
        sample, [], dtypes, name='replay_sample_py_func'
      )
    return [
      tf.ensure_shape(array, shape)
      for array, shape in zip(arrays, shapes, strict=True)
    ]

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
    self.memory.redraw()
    self.memory.skip(first_batch)
    if self.prefetcher is not None:
      self.prefetcher.restart(first_batch)
