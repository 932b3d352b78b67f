"""Prefetching of batches that Python makes for a TensorFlow graph."""

import atexit
import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

_NO_RESTART = -1
_prefetchers: weakref.WeakSet['Prefetcher'] = weakref.WeakSet()


class Prefetcher:
  """Numbered batches through a `tf.data` pipeline, in order.

  Worker threads prepare batches ahead of the graph, each one batch at a time. A batch
  depends on its number only, not on its worker.

  Args:
    load: Function from the number of a batch to a tuple of its arrays.
    dtypes: Dtypes of the arrays.
    shapes: Shapes of the arrays.
    ahead: Number of batches prepared ahead, at least 1.
    threads: Number of worker threads, at least 1.

  Attributes:
    ready: Operation to run before the tensors of `next`.
  """

  def __init__(
    self,
    load: Callable[[int], tuple[np.ndarray, ...]],
    dtypes: Sequence[type],
    shapes: Sequence[tuple[int, ...]],
    ahead: int,
    threads: int,
  ):
    self._load = load
    self._dtypes = tuple(map(tf.as_dtype, dtypes))
    self._shapes = tuple(map(tf.TensorShape, shapes))
    self._ahead = ahead
    self._threads = threads
    self._first = 0
    self._busy = 0
    self._calls = 0
    self._closed = False
    self._lock = threading.Lock()
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

  def _take_first(self) -> np.int64:
    first, self._first = self._first, _NO_RESTART
    return np.int64(first)

  def _start(self, first: tf.Tensor) -> tf.Tensor:
    # AutoGraph does not support new Python versions.
    unconverted = tf.autograph.experimental.do_not_convert
    dataset = tf.data.Dataset.range(
      first, np.iinfo(np.int64).max, self._threads
    )
    dataset = dataset.map(
      unconverted(self._load_batches), num_parallel_calls=1, deterministic=True
    )
    dataset = dataset.flat_map(unconverted(_one_by_one)).prefetch(self._ahead)
    # There is nothing to tune, and a restart would wait up to a minute for the
    # tuning thread.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    with tf.control_dependencies([self._iterator.make_initializer(dataset)]):
      return tf.constant(True)

  def _load_batches(
    self, first: tf.Tensor
  ) -> tuple[tuple[tf.Tensor, ...], ...]:
    """Loads a batch in each worker thread, all at the same time.

    Stalling one thread of a TensorFlow op stalls the whole op, so the workers run
    together.
    """
    return tuple(self._load_batch(first + i) for i in range(self._threads))

  def _load_batch(self, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
    arrays = tf.numpy_function(self._call, [number], self._dtypes)
    return tuple(
      tf.ensure_shape(array, shape)
      for array, shape in zip(arrays, self._shapes, strict=True)
    )

  def _call(self, number: np.int64) -> tuple[np.ndarray, ...]:
    with self._counted():
      if self._closed:
        raise ValueError('The prefetcher is closed because Python exits.')
      return self._load(int(number))

  @contextlib.contextmanager
  def _counted(self) -> Iterator[None]:
    with self._lock:
      self._busy += 1
      self._calls += 1
    try:
      yield
    finally:
      with self._lock:
        self._busy -= 1

  def close(self) -> None:
    """Stops preparing batches, and waits for the worker threads to finish."""
    self._closed = True
    calls = None
    # No more batches are requested once all pending requests have failed.
    while self._busy or calls != self._calls:
      calls = self._calls
      time.sleep(0.02)


def _one_by_one(*batches: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
  datasets = map(tf.data.Dataset.from_tensors, batches)
  return functools.reduce(tf.data.Dataset.concatenate, datasets)


@atexit.register
def _close_all() -> None:
  """Closes all prefetchers, so that Python can exit.

  Otherwise a closing session waits for worker threads, which may wait for Python
  forever.
  """
  for prefetcher in list(_prefetchers):
    prefetcher.close()
