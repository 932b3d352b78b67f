"""Batches that Python makes, ready before the graph asks for them."""

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
_feeds: weakref.WeakSet['Feed'] = weakref.WeakSet()


class Feed:
  """Numbered batches through a `tf.data` pipeline, in order.

  Threads prepare batches ahead of the graph, each one at the same time. Which thread
  prepares a batch makes no difference: what is in it depends on its number.

  Args:
    load: makes a batch, given its number: a tuple of arrays.
    dtypes: of the arrays.
    shapes: of the arrays.
    ahead: batches that are prepared ahead, at least 1.
    threads: that prepare them.

  Attributes:
    ready: an operation that has to run before what `next` returns.
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
    _feeds.add(self)
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
    """Drops what was prepared; the next batch is the one with this number."""
    self._first = first

  def next(self) -> list[tf.Tensor]:
    """Makes tensors of the next batch, in the graph that is being built."""
    with tf.device('/cpu:*'):
      return list(self._iterator.get_next())

  def _take_first(self) -> np.int64:
    first, self._first = self._first, _NO_RESTART
    return np.int64(first)

  def _start(self, first: tf.Tensor) -> tf.Tensor:
    # AutoGraph, which rewrites Python, does not keep up with new versions.
    as_it_is = tf.autograph.experimental.do_not_convert
    dataset = tf.data.Dataset.range(
      first, np.iinfo(np.int64).max, self._threads
    )
    dataset = dataset.map(
      as_it_is(self._make_some), num_parallel_calls=1, deterministic=True
    )
    dataset = dataset.flat_map(as_it_is(_one_by_one)).prefetch(self._ahead)
    # There is nothing to tune, and the thread that would may sleep through the end of
    # the pipeline: a restart waited for it, up to a minute.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    with tf.control_dependencies([self._iterator.make_initializer(dataset)]):
      return tf.constant(True)

  def _make_some(self, first: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], ...]:
    """Makes a batch for each thread, all at the same time.

    The threads of an operation of the graph wait for each other: to take the
    processor of one costs as much time as to take those of all.
    """
    return tuple(self._make(first + i) for i in range(self._threads))

  def _make(self, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
    arrays = tf.numpy_function(self._call, [number], self._dtypes)
    return tuple(
      tf.ensure_shape(array, shape)
      for array, shape in zip(arrays, self._shapes, strict=True)
    )

  def _call(self, number: np.int64) -> tuple[np.ndarray, ...]:
    with self._counted():
      if self._closed:
        raise ValueError('Python exits.')
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
    """Ends the preparation of batches; waits until no thread is at it."""
    self._closed = True
    calls = None
    # Once as many batches as wanted have failed, nobody asks for more.
    while self._busy or calls != self._calls:
      calls = self._calls
      time.sleep(0.02)


def _one_by_one(*batches: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
  datasets = map(tf.data.Dataset.from_tensors, batches)
  return functools.reduce(tf.data.Dataset.concatenate, datasets)


@atexit.register
def _close_all() -> None:
  """Lets Python exit.

  A session that closes waits for threads, which could wait for Python for ever.
  """
  for feed in list(_feeds):
    feed.close()
