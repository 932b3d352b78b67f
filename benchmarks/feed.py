"""The rate at which batches reach a TensorFlow graph, whose loop only takes them.

  python -um benchmarks.feed [RUN] [--quick]

One loop takes batches of a run through the feed of the agents; another one takes
constant arrays of the same shapes through a plain map of `tf.data`, which is what Python
and TensorFlow cost at least without a feed of our own. TensorFlow converts arrays as it
does without this package; a third loop has our faster conversion
(`dopamine_compat.py`), as the feed has. The loops take turns.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import contextlib
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.util import numpy_compat

from batch_rl.dataset import run_directories
from batch_rl.dataset.store import frame_stacks
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from benchmarks import measuring

LAYOUTS = ('windows', 'stacks')
BATCHES = 500  # a round
ROUNDS = 9
if measuring.QUICK:
  BATCHES = 20


def rates(
  directory: str,
  layout: str,
  threads: Sequence[int],
  batch_size: int = 32,
  rounds: int = ROUNDS,
) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
  """Measures the feed, beside constant arrays through a plain map.

  Args:
    directory: Shards or store of an Atari run.
    layout: 'windows' or 'stacks', the arrays of frames in a batch.
    threads: Numbers of threads to measure.
    batch_size: Number of transitions in a batch.
    rounds: Number of rounds.

  Returns:
    Batches/s of each round by number of threads, and those of the constant arrays, in
    TensorFlow's conversion and in ours: float64 (rounds,).
  """
  loops = {
    str(count): through_feed(directory, layout, count, batch_size)
    for count in threads
  }
  loops['ours'] = constant_map(directory, layout, batch_size)
  loops['plain'] = as_without_this_package(loops['ours'])
  seconds = measuring.interleave(loops, rounds)
  found = {name: BATCHES / taken for name, taken in seconds.items()}
  feed = {count: found[str(count)] for count in threads}
  return feed, found['plain'], found['ours']


def through_feed(
  directory: str, layout: str, threads: int, batch_size: int = 32
) -> Callable[[], None]:
  """Returns a function that takes `BATCHES` batches through the feed."""
  with tf.Graph().as_default():
    replay = _replay(directory, layout, batch_size, threads)
    return _loop(replay.next_batch, replay.ready)


def constant_map(
  directory: str, layout: str, batch_size: int = 32
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


def table(
  name: str,
  directory: str,
  threads: Sequence[int] = (1, 2, 4),
  batch_size: int = 32,
) -> None:
  """Prints the table's rows of a run.

  Args:
    name: Name of the run in the rows.
    directory: Shards or store of the run.
    threads: Numbers of threads to measure.
    batch_size: Number of transitions in a batch.
  """
  for layout in LAYOUTS:
    found, plain, ours = rates(directory, layout, threads, batch_size)
    target = {'windows': '3,500; 0.8 x', 'stacks': '3,000; 0.8 x'}[layout]
    for count, rate in found.items():
      measuring.row(
        f'{name}: batches/s into the graph, {layout}, {count} threads',
        f'{np.median(plain):,.0f}',
        f'{np.median(rate):,.0f}',
        f'{np.median(rate / plain):.2f} x',
        target,
      )
    measuring.row(
      f'{name}: constant arrays, {layout}, our conversion',
      f'{np.median(plain):,.0f}',
      f'{np.median(ours):,.0f}',
      f'{np.median(ours / plain):.2f} x',
    )


def main() -> None:
  """Prints the table."""
  parser = measuring.parser(__doc__)
  parser.add_argument(
    'directory', nargs='?', default='data/Pong/1', help='Atari run, or store'
  )
  parser.add_argument('--batch_size', type=int, default=32)
  arguments = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  measuring.header('plain map', 'feed')
  cores = len(os.sched_getaffinity(0))
  table(
    os.path.basename(os.path.normpath(arguments.directory)),
    run_directories.as_run(arguments.directory).data_dir,
    [2] if measuring.QUICK else sorted({1, 2, 4, cores}),
    arguments.batch_size,
  )


if __name__ == '__main__':
  main()
