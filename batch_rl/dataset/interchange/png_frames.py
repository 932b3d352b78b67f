"""Frames stored as PNG images, 84 x 84 in shades of gray."""

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
    encoded: Images.
  """

  def __init__(self, name: str, encoded: Sequence[bytes]):
    self._name = name
    self._encoded = encoded

  def __len__(self) -> int:
    return len(self._encoded)

  def decode(self, start: int, stop: int, out: np.ndarray) -> None:
    """Decodes frames to `out`; see `episode_import.Frames`."""
    for i in range(start, stop):
      frame = decode_image(self._encoded[i])
      if frame is None:
        raise ValueError(
          f'Invalid dataset: frame {i} of {self._name} is not an 84 x 84 gray PNG.'
        )
      out[i - start] = frame


def decode_image(data: bytes) -> Any:
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
