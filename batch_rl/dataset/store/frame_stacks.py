"""Stacks of frames in the memory layout that agents expect."""

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

_ALIGNMENT = 64
_POOLED_BYTES = 2**15  # Smaller memory is cheap to allocate.


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
  """Returns an uninitialised array, aligned so that TensorFlow does not copy it.

  Its memory may be that of an earlier array to which no reference is left. Memory
  fresh from the system costs a page fault for every 4 kB.

  Args:
    shape: Shape of the array.
    dtype: Dtype of the array.
  """
  size = math.prod(shape) * dtype.itemsize
  memory = _fresh(size) if size < _POOLED_BYTES else _pooled(size)
  return np.ndarray(shape, dtype, memory)


def _fresh(size: int) -> np.ndarray:
  """Returns uninitialised bytes, uint8 (size,), aligned."""
  memory = np.empty(size + _ALIGNMENT, np.uint8)
  start = -memory.ctypes.data % _ALIGNMENT
  return memory[start : start + size]


# Idle memory by its size: array interfaces, which hold a reference to it. Threads share
# it without a lock, since `__del__` may run at any point of a thread. Each operation on
# it is atomic.
_idle: dict[int, list[dict[str, Any]]] = {}


def _pooled(size: int) -> np.ndarray:
  """Returns uninitialised bytes, uint8 (size,), from idle memory if there is some."""
  try:
    room = _idle[size].pop()  # the last one used may still be in a cache
  except LookupError:
    memory = _fresh(size)
    room = memory.__array_interface__ | {'owner': memory}
  return np.asarray(_Owner(room))


class _Owner:
  """Base of all arrays in some memory, which becomes idle when they are gone."""

  __slots__ = ('__array_interface__',)
  _MOST_SIZES = 4
  _MOST_BYTES = 2**25  # of idle memory of one size

  def __init__(self, room: dict[str, Any]):
    self.__array_interface__ = room

  # Python may have taken the module's variables down.
  def __del__(self, idle=_idle):
    room = self.__array_interface__
    [size] = room['shape']
    if (rooms := idle.get(size)) is None:
      if len(idle) >= self._MOST_SIZES:
        idle.clear()
      rooms = idle.setdefault(size, [])
    if size * (len(rooms) + 1) <= self._MOST_BYTES:
      rooms.append(room)


def channels_last(
  windows: np.ndarray, start: np.ndarray, stack_size: int
) -> np.ndarray:
  """Extracts one stack of frames from each window, with frames last.

  Args:
    windows: Consecutive frames, (n, w, *frame_shape).
    start: Index of each stack's first frame in its window, int64 (n,).
    stack_size: Number of frames in a stack.

  Returns:
    (n, *frame_shape, stack_size).
  """
  n, _, *frame_shape = windows.shape
  out = aligned((n, *frame_shape, stack_size), windows.dtype)
  remaining = np.arange(n)
  if windows.dtype == np.uint8 and n:
    # OpenCV interleaves several times as fast as NumPy's strided copies. Most
    # stacks start at the same frame, and one call handles all of these: each
    # image row is the frame of one stack.
    first = int(start.max())
    frames = windows.reshape(n, windows.shape[1], -1)
    planes = [frames[:, first + j] for j in range(stack_size)]
    cv2.merge(planes, out.reshape(n, -1, stack_size))
    remaining = np.flatnonzero(start != first)
  if len(remaining):
    for j in range(stack_size):
      out[remaining, ..., j] = windows[remaining, start[remaining] + j]
  return out
