"""Prefetching of batches that are so small that one call makes a block of them.

TensorFlow's own threads hand them to the graph. A call of Python for each batch would
wait for the interpreter's lock while a block is made, which takes longer than an update
of a small network.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

_NO_RESTART = -1
_prefetchers: weakref.WeakSet['BlockPrefetcher'] = weakref.WeakSet()


class BlockPrefetcher:
  """Numbered batches, prepared in blocks of consecutive ones and taken in order.

  A batch depends on its number only. One thread prepares the blocks: more would wait
  for each other.

  Args:
    load: Function from the number of a block's first batch to the block's arrays,
      each with one entry a batch.
    dtypes: Dtypes of the arrays.
    shapes: Shapes of a batch's arrays.
    ahead: Number of batches prepared ahead, at least 1.
    size: Number of batches in a block.

  Attributes:
    ready: Operation to run before the tensors of `next`.
  """

  def __init__(
    self,
    load: Callable[[int], tuple[np.ndarray, ...]],
    dtypes: Sequence[type],
    shapes: Sequence[tuple[int, ...]],
    ahead: int,
    size: int,
  ):
    self._load = load
    self._dtypes = tuple(map(tf.as_dtype, dtypes))
    self._shapes = tuple(map(tf.TensorShape, shapes))
    self._ahead = ahead
    self._size = size
    self._first = 0
    self._is_closed = False
    self._lock = threading.Lock()  # held while a block is made
    _prefetchers.add(self)
    with tf.device('/cpu:*'):
      self._iterator = tf.compat.v1.data.Iterator.from_structure(
        self._dtypes, self._shapes
      )
      first = tf.numpy_function(self._take_first, [], tf.int64)
      started = tf.cond(
        tf.ensure_shape(first, ()) > _NO_RESTART,
        lambda: self._start(first),
        lambda: tf.constant(False),
      )
    self.ready = started.op

  def restart(self, first: int = 0) -> None:
    """Drops the prepared batches; the next batch is number `first`."""
    self._first = first

  def next(self) -> list[tf.Tensor]:
    """Returns tensors of the next batch, in the current graph."""
    with tf.device('/cpu:*'):
      return list(self._iterator.get_next())

  def close(self) -> None:
    """Stops preparing batches, and waits for a block that is being made."""
    self._is_closed = True
    with self._lock:
      pass
    time.sleep(0.02)  # Requests that are pending fail.

  def _take_first(self) -> np.int64:
    first, self._first = self._first, _NO_RESTART
    return np.int64(first)

  def _start(self, first: tf.Tensor) -> tf.Tensor:
    # AutoGraph does not support new Python versions.
    load = tf.autograph.experimental.do_not_convert(self._load_block)
    dataset = tf.data.Dataset.range(first, np.iinfo(np.int64).max, self._size)
    dataset = dataset.map(load, num_parallel_calls=1, deterministic=True)
    dataset = dataset.unbatch().prefetch(max(self._ahead, self._size))
    # There is nothing to tune, and a restart would wait up to a minute for the
    # tuning thread.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    with tf.control_dependencies([self._iterator.make_initializer(dataset)]):
      return tf.constant(True)

  def _load_block(self, first: tf.Tensor) -> tuple[tf.Tensor, ...]:
    arrays = tf.numpy_function(self._call, [first], self._dtypes)
    return tuple(
      tf.ensure_shape(array, (self._size, *shape))
      for array, shape in zip(arrays, self._shapes, strict=True)
    )

  def _call(self, first: np.int64) -> tuple[np.ndarray, ...]:
    with self._lock:
      if self._is_closed:
        raise ValueError('The prefetcher is closed because Python exits.')
      return self._load(int(first))


@atexit.register
def _close_all() -> None:
  """Closes all prefetchers, so that Python can exit.

  Otherwise a closing session waits for a thread that may wait for Python forever.
  """
  for prefetcher in list(_prefetchers):
    prefetcher.close()
