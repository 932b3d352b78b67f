"""Frames stored as PNG images, 84 x 84 in shades of gray."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

FRAME_SHAPE = (84, 84)
_LEVEL = 6  # the default of zlib and of TFDS
# Beginning of a valid image: the signature, then the header's length, name and sizes.
_BEGINNING = (
  b'\x89PNG\r\n\x1a\n'
  + (13).to_bytes(4, 'big')
  + b'IHDR'
  + FRAME_SHAPE[1].to_bytes(4, 'big')
  + FRAME_SHAPE[0].to_bytes(4, 'big')
)


class PngFrames:
  """Frames of an episode, each a PNG, decoded on demand.

  Args:
    name: Name of the episode, for messages.
    encoded: Images.
  """

  def __init__(self, name: str, encoded: Sequence[bytes]):
    self._name = name
    self._encoded = encoded

  def __len__(self) -> int:
    return len(self._encoded)

  def decode(self, start: int, stop: int, out: np.ndarray) -> None:
    """Decodes the frames from `start` to `stop`; called by several threads at once.

    Args:
      start: First frame.
      stop: Frame after the last.
      out: Array to write to, uint8 (stop - start, 84, 84).

    Raises:
      ValueError: If a frame is damaged, or has another shape.
    """
    for number in range(start, stop):
      frame = _decode(self._encoded[number])
      if frame is None:
        raise ValueError(
          f'Invalid dataset: frame {number} of {self._name} is not an 84 x 84 gray '
          'PNG.'
        )
      out[number - start] = frame


def _decode(data: bytes) -> Any:
  """Returns a PNG as uint8 (84, 84); None if it is damaged or of another shape."""
  # A few bytes may claim gigabytes of pixels, which OpenCV would allocate.
  if not data.startswith(_BEGINNING):
    return None
  # OpenCV decodes without the interpreter's lock.
  frame: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
  valid = frame is not None and frame.dtype == np.uint8
  return frame if valid and frame.shape == FRAME_SHAPE else None


def encode_png(frame: np.ndarray) -> bytes:
  """Returns a grayscale frame, uint8 (height, width), as PNG."""
  options = [cv2.IMWRITE_PNG_COMPRESSION, _LEVEL]
  return cv2.imencode('.png', frame, options)[1].tobytes()
