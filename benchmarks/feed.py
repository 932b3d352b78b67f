"""Loops of a TensorFlow graph that only take batches, for `sampling_rates.py`.

One loop takes batches of a run through the feed of the agents; another one takes
constant arrays of the same shapes through a plain map of `tf.data`, which is what Python
and TensorFlow cost at least without a feed of our own, either with TensorFlow's
conversion of arrays or with our faster one (`dopamine_compat.py`), as the feed has.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.util import numpy_compat

from batch_rl.dataset.store import frame_stacks
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from benchmarks import measuring

LAYOUTS = ('windows', 'stacks')
BATCHES = 500  # a round
if measuring.QUICK:
  BATCHES = 20


def through_feed(
  directory: str, layout: str, threads: int, batch_size: int
) -> Callable[[], None]:
  """Returns a function that takes `BATCHES` batches through the feed."""
  with tf.Graph().as_default():
    replay = _replay(directory, layout, batch_size, threads)
    return _loop(replay.next_batch, replay.ready)


def constant_map(
  directory: str, layout: str, batch_size: int
) -> Callable[[], None]:
  """Returns a function that takes as many through a plain map, constant arrays."""
  with tf.Graph().as_default():
    batch = _replay(directory, layout, batch_size, threads=1).next_batch()
    dtypes = tuple(tensor.dtype for tensor in batch)
    shapes = tuple(tensor.shape for tensor in batch)
    arrays = [
      frame_stacks.aligned(shape.as_list(), np.dtype(dtype.as_numpy_dtype))
      for dtype, shape in zip(dtypes, shapes, strict=True)
    ]
    for array in arrays:
      array[...] = 1

  def load(_):
    found = tf.numpy_function(lambda: arrays, [], dtypes)
    return tuple(map(tf.ensure_shape, found, shapes))

  with tf.Graph().as_default():
    # AutoGraph does not support new Python versions.
    load = tf.autograph.experimental.do_not_convert(load)
    numbers = tf.data.Dataset.range(np.iinfo(np.int64).max)
    dataset = numbers.map(load, num_parallel_calls=1).prefetch(8)
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    with tf.device('/cpu:*'):
      iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    return _loop(iterator.get_next, [], iterator.initializer)


def as_without_this_package(loop: Callable[[], None]) -> Callable[[], None]:
  """Returns a loop in which TensorFlow converts arrays by its own function."""

  @contextlib.contextmanager
  def without_fix():
    fixed = numpy_compat.np_asarray
    numpy_compat.np_asarray = fixed.__wrapped__
    try:
      yield
    finally:
      numpy_compat.np_asarray = fixed

  return without_fix()(loop)


def _replay(directory, layout, batch_size, threads):
  replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
    directory,
    None,
    (84, 84),
    4,
    batch_size=batch_size,
    prefetch_threads=threads,
    stack_on_device=layout == 'windows',
    num_buffers=1 if measuring.QUICK else None,
    preload=True,  # As for shards. The pages of a mapped store would be mapped meanwhile.
  )
  replay.memory.sampler.wait_until_compiled()
  return replay


def _loop(
  next_batch: Callable[[], Sequence[tf.Tensor]],
  ready: Sequence[tf.Operation],
  start: tf.Operation | None = None,
) -> Callable[[], None]:
  """Returns a function that takes `BATCHES` batches in a loop of the graph."""

  def take(i, _):
    batch = next_batch()
    with tf.control_dependencies(batch):
      return i + 1, tf.cast(batch[-1][0], tf.int32)

  with tf.device('/cpu:0'), tf.control_dependencies(ready):
    taken = tf.compat.v1.while_loop(
      lambda i, _: i < BATCHES,
      take,
      (tf.constant(0), tf.constant(0)),
      parallel_iterations=1,
    )
  session = tf.compat.v1.Session()
  if start is not None:
    session.run(start)
  return lambda: session.run(taken)
