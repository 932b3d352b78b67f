"""Stacks of frames in the memory layout that agents expect."""

import math
from collections.abc import Sequence

import cv2
import numpy as np

_ALIGNMENT = 64


def aligned(
  shape: Sequence[int], dtype: np.dtype, before: int = 0
) -> np.ndarray:
  """Returns an uninitialised array, aligned so that TensorFlow does not copy it.

  Args:
    shape: Shape of the array.
    dtype: Dtype of the array.
    before: Number of writable bytes to reserve directly before the array.
  """
  size = math.prod(shape) * dtype.itemsize
  room = np.empty(before + _ALIGNMENT + size, np.uint8)
  start = before + -(room.ctypes.data + before) % _ALIGNMENT
  return room[start : start + size].view(dtype).reshape(shape)


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
