"""Prefetching of batches that Python makes for a TensorFlow graph."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from batch_rl.dataset.sampling import prefetch

Arrays = tuple[np.ndarray, ...]


class Prefetcher(prefetch.Prefetcher):
  """Numbered batches, prepared ahead of the graph and taken in order.

  The threads are Python's own: TensorFlow's lose everything that is kept for a thread,
  e.g. its random generator, from one call to the next.

  Args:
    load: Function from the number of a batch to a tuple of its arrays. Several
      threads call it at once.
    dtypes: Dtypes of the arrays.
    shapes: Shapes of the arrays.
    ahead: Number of batches prepared ahead, at least 1.
    threads: Number of worker threads, at least 1.
    **kwargs: `load_consecutive` and `together` of the base class.
  """

  def __init__(
    self,
    load: Callable[[int], Arrays],
    dtypes: Sequence[type],
    shapes: Sequence[tuple[int, ...]],
    ahead: int,
    threads: int,
    **kwargs: Any,
  ):
    super().__init__(load, ahead, threads, **kwargs)
    self._dtypes = list(map(tf.as_dtype, dtypes))
    self._shapes = list(map(tf.TensorShape, shapes))

  def next(self) -> list[tf.Tensor]:
    """Returns tensors of the next batch, in the current graph."""
    with tf.device('/cpu:*'):
      arrays = tf.numpy_function(self.take, [], self._dtypes)
      return [
        tf.ensure_shape(array, shape)
        for array, shape in zip(arrays, self._shapes, strict=True)
      ]
