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
    session: Session of an agent.
  """
  if not isinstance(session.run, _Run):
    session.run = _Run(session)


class _Run:
  """Method `run` of a session."""

  def __init__(self, session):
    self._session = session
    self._run = session.run
    self._calls = {}

  def __call__(self, fetches: Any, feed_dict: Any = None, *args, **kwargs):
    fed = feed_dict or {}
    if (
      args
      or kwargs
      or not isinstance(fetches, (tf.Tensor, tf.Operation))
      or not all(isinstance(tensor, tf.Tensor) for tensor in fed)
    ):
      return self._run(fetches, feed_dict, *args, **kwargs)
    key = id(fetches), *map(id, fed)
    if key not in self._calls:
      self._calls[key] = _Call(self._session, fetches, tuple(fed))
    return self._calls[key](fed.values())


class _Call:
  """Run of one tensor or operation."""

  def __init__(self, session, fetched, fed):
    self._fed = fed
    self._tensors = fetched, fed  # kept, so that their ids stay theirs
    self._shapes = set()
    is_tensor = isinstance(fetched, tf.Tensor)
    options = config_pb2.CallableOptions(
      feed=[tensor.name for tensor in fed],
      fetch=[fetched.name] if is_tensor else [],
      target=[] if is_tensor else [fetched.name],
    )
    if fed:
      # A state goes through the network, one operation after the other. To wake
      # another thread for them takes as long as they do in a small network.
      options.run_options.inter_op_thread_pool = _CALLING_THREAD
    # `Session.make_callable` is public, but calls `run` if a tensor is fed.
    self._call = session._make_callable_from_options(options)

  def __call__(self, values):
    arrays = [
      np.asarray(value, tensor.dtype.as_numpy_dtype)
      for tensor, value in zip(self._fed, values, strict=True)
    ]
    shapes = tuple(array.shape for array in arrays)
    if shapes not in self._shapes:
      for tensor, shape in zip(self._fed, shapes, strict=True):
        if not tensor.shape.is_compatible_with(shape):
          raise ValueError(
            f'Cannot feed an array of shape {shape} to {tensor.name}, whose shape is '
            f'{tensor.shape}.'
          )
      self._shapes.add(shapes)
    results = self._call(*arrays)
    return results[0] if results else None
