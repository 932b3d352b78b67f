"""Calls of a TensorFlow session that take little time in Python."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

# `inter_op_thread_pool` of the calling thread. A graph on several devices uses a pool
# in any case.
_CALLING_THREAD = -1


def shorten(session: tf.compat.v1.Session) -> None:
  """Makes `session.run` of one tensor or operation take less time in Python.

  With a small network, `tf.compat.v1.Session.run` takes several times as long as the
  operations: each call looks its tensors up in the graph and checks the graph for
  additions. From now on, only the first call for the same tensors does. Calls that feed
  a tensor run in the calling thread. Results stay the same.

  Args:
    session: Session of an agent. A second call changes nothing.
  """
  run = session.run
  if not hasattr(run, '__self__'):
    return
  # Values keep the tensors, so that their ids stay theirs.
  calls: dict[tuple[int, ...], tuple] = {}

  def run_shortened(fetches, feed_dict=None, *args, **kwargs):
    fed = feed_dict or {}
    if (
      args
      or kwargs
      or not isinstance(fetches, (tf.Tensor, tf.Operation))
      or not all(isinstance(tensor, tf.Tensor) for tensor in fed)
    ):
      return run(fetches, feed_dict, *args, **kwargs)
    key = id(fetches), *map(id, fed)
    if key not in calls:
      is_tensor = isinstance(fetches, tf.Tensor)
      options = config_pb2.CallableOptions(
        feed=[tensor.name for tensor in fed],
        fetch=[fetches.name] if is_tensor else [],
        target=[] if is_tensor else [fetches.name],
      )
      if fed:
        # A state goes through the network, one operation after the other. To wake
        # another thread for them takes as long as they do in a small network.
        options.run_options.inter_op_thread_pool = _CALLING_THREAD
      # `Session.make_callable` is public, but calls `run` if a tensor is fed.
      call = session._make_callable_from_options(options)
      calls[key] = call, fetches, tuple(fed)
    call, *_ = calls[key]
    results = call(*(_as_array(x, value) for x, value in fed.items()))
    return results[0] if results else None

  session.run = run_shortened


def _as_array(tensor: tf.Tensor, value: Any) -> np.ndarray:
  """Returns a value that is fed; raises ValueError for another shape."""
  array = np.asarray(value, tensor.dtype.as_numpy_dtype)
  if not tensor.shape.is_compatible_with(array.shape):
    raise ValueError(
      f'Cannot feed an array of shape {array.shape} to {tensor.name}, whose shape is '
      f'{tensor.shape}.'
    )
  return array
