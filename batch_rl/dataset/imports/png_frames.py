"""Frames stored as PNG images, 84 x 84 in shades of gray.

A compiled function (`png_kernel`) decodes them, and OpenCV whatever that leaves.
"""

import functools
import importlib
import threading
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

FRAME_SHAPE = (84, 84)
_LEVEL = 6  # the default of zlib and of TFDS
_SIGNATURE = b'\x89PNG\r\n\x1a\n'


class PngFrames:
  """Frames of an episode, each a PNG (see `episode_import.Frames`).

  Args:
    name: Name of the episode, for messages.
    encoded: Images, each bytes or a view of bytes.
  """

  def __init__(self, name: str, encoded: Sequence[Any]):
    self._name = name
    self._encoded = encoded

  def __len__(self) -> int:
    return len(self._encoded)

  def decode(self, start: int, stop: int, out: np.ndarray) -> None:
    """Decodes frames to `out`; see `episode_import.Frames`."""
    encoded = self._encoded[start:stop]
    # The compiled decoder writes to the array's address.
    fits = out.dtype == np.uint8 and out.flags.c_contiguous
    if out.shape != (len(encoded), *FRAME_SHAPE) or not fits:
      raise ValueError(f'{len(encoded)} frames do not fit into {out.shape}.')
    data = np.frombuffer(b''.join(encoded), np.uint8)
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    stops, done = np.cumsum(sizes), 0
    while done < len(encoded):
      if (addresses := _addresses()) is not None:
        kernel = _kernel()
        if not hasattr(_local, 'workspace'):
          _local.workspace = kernel.workspace()
        done = kernel.decode(
          data, stops, done, addresses, *_local.workspace, out
        )
      if done < len(encoded):
        frame = decode_image(encoded[done])
        if frame is None:
          raise ValueError(
            f'Invalid dataset: frame {start + done} of {self._name} is not an 84 x 84 '
            'gray PNG.'
          )
        out[done] = frame
        done += 1


_local = threading.local()


@functools.cache
def _kernel() -> Any:
  """Returns the compiled decoder; Numba takes half a second to import."""
  return importlib.import_module(f'{__package__}.png_kernel')


@functools.cache
def _addresses() -> np.ndarray | None:
  """Returns the addresses of the functions that the decoder calls, if any."""
  return _kernel().functions()


def decode_image(data: Any) -> Any:
  """Returns a PNG as uint8 (84, 84); None if it is damaged or of another shape."""
  # A few bytes may claim gigabytes of pixels, which OpenCV would allocate.
  height, width = (size.to_bytes(4, 'big') for size in FRAME_SHAPE)
  if data[:8] != _SIGNATURE or data[12:24] != b'IHDR' + width + height:
    return None
  frame: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
  valid = frame is not None and frame.dtype == np.uint8
  return frame if valid and frame.shape == FRAME_SHAPE else None


def encode_png(frame: np.ndarray) -> bytes:
  """Returns a grayscale frame, uint8 (height, width), as PNG."""
  options = [cv2.IMWRITE_PNG_COMPRESSION, _LEVEL]
  return cv2.imencode('.png', frame, options)[1].tobytes()
