"""Stacks of frames, as agents take them."""

import math
from collections.abc import Sequence

import cv2
import numpy as np

_ALIGNMENT = 64


def aligned(
  shape: Sequence[int], dtype: np.dtype, before: int = 0
) -> np.ndarray:
  """An array that TensorFlow takes without a copy, with garbage in it.

  Args:
    shape: of the array.
    dtype: of the array.
    before: so many bytes before it may be written to, too.
  """
  size = math.prod(shape) * dtype.itemsize
  room = np.empty(before + _ALIGNMENT + size, np.uint8)
  start = before + -(room.ctypes.data + before) % _ALIGNMENT
  return room[start : start + size].view(dtype).reshape(shape)


def channels_last(
  windows: np.ndarray, start: np.ndarray, stack_size: int
) -> np.ndarray:
  """Cuts stacks of frames out of windows, frames last.

  Args:
    windows: (n, w, *frame_shape).
    start: int64 (n,), the first frame of each stack.
    stack_size: frames in a stack.

  Returns:
    (n, *frame_shape, stack_size).
  """
  n, _, *frame_shape = windows.shape
  out = aligned((n, *frame_shape, stack_size), windows.dtype)
  which = np.arange(n)
  if windows.dtype == np.uint8 and n:
    # OpenCV interleaves several times as fast as NumPy copies with strides. Most
    # start at the same frame; an image has a frame in each row.
    first = int(start.max())
    frames = windows.reshape(n, windows.shape[1], -1)
    planes = [frames[:, first + j] for j in range(stack_size)]
    cv2.merge(planes, out.reshape(n, -1, stack_size))
    which = np.flatnonzero(start != first)
  if len(which):
    for j in range(stack_size):
      out[which, ..., j] = windows[which, start[which] + j]
  return out
