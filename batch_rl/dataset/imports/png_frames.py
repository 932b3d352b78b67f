"""Frames stored as PNG images: 84 x 84, in shades of gray, 8 bits each."""

import collections
import struct
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from isal import isal_zlib

FRAME_SHAPE = (84, 84)
_LEVEL = 6  # the default of zlib and of TFDS
_SIGNATURE = b'\x89PNG\r\n\x1a\n'
# Width, height, bits, color type 0 (gray), deflated, filtered, not interlaced.
_HEADER = struct.pack('>IIBBBBB', FRAME_SHAPE[1], FRAME_SHAPE[0], 8, 0, 0, 0, 0)
# A line is the number of its filter, at most 4, and its pixels.
_LINE_BYTES = 1 + FRAME_SHAPE[1]
_BYTES = FRAME_SHAPE[0] * _LINE_BYTES
# Beginning of lines that are not compressed: zlib's header, and that of a block.
_STORED = b'\x78\x01\x01' + struct.pack('<HH', _BYTES, _BYTES ^ 0xFFFF)


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

  def __getitem__(self, number: int) -> np.ndarray:
    """Returns a frame, uint8 (84, 84); called by several threads at once.

    Raises:
      ValueError: If the frame is damaged, or an image of another kind.
    """
    try:
      return _decode(self._encoded[number])
    except ValueError as error:
      raise ValueError(
        f'Invalid dataset: frame {number} of {self._name} is {error}.'
      ) from error


def _decode(data: bytes) -> Any:
  """Returns a PNG as uint8 (84, 84).

  OpenCV accepts pixels with a wrong checksum, and prints messages about other damage.
  So it gets verified lines, and undoes their filters, without the interpreter's lock.
  """
  lines = _verified_lines(data)
  stored = _STORED + lines + isal_zlib.adler32(lines).to_bytes(4, 'big')
  plain = _SIGNATURE + b''.join(
    len(body).to_bytes(4, 'big') + name + body + _crc32(name + body)
    for name, body in ((b'IHDR', _HEADER), (b'IDAT', stored), (b'IEND', b''))
  )
  return cv2.imdecode(np.frombuffer(plain, np.uint8), cv2.IMREAD_UNCHANGED)


def _verified_lines(data: bytes) -> bytes:
  """Returns the filtered lines of a PNG whose checksums are right.

  Raises:
    ValueError: If it is damaged, or of another kind. The message is a noun.
  """
  if not data.startswith(_SIGNATURE):
    raise ValueError('not a PNG')
  chunks: dict[bytes, bytes] = collections.defaultdict(bytes)
  name, at = b'', len(_SIGNATURE)
  while name != b'IEND':
    end = at + 8 + int.from_bytes(data[at : at + 4], 'big')
    name = data[at + 4 : at + 8]
    if _crc32(data[at + 4 : end]) != data[end : end + 4]:
      raise ValueError(f'a damaged PNG: wrong checksum at byte {end}')
    chunks[name] += data[at + 8 : end]
    at = end + 4
  if (header := chunks[b'IHDR']) != _HEADER:
    raise ValueError(
      f'a PNG of another kind than 84 x 84, 8 bits, gray: header {header.hex()}'
    )
  inflater = isal_zlib.decompressobj()
  try:
    lines = inflater.decompress(chunks[b'IDAT'], _BYTES + 1)
  except isal_zlib.error as error:  # type: ignore[misc]
    raise ValueError(f'a damaged PNG: {error}') from error
  if len(lines) != _BYTES or not inflater.eof or max(lines[::_LINE_BYTES]) > 4:
    raise ValueError('a damaged PNG: its pixels are not 84 filtered lines')
  return lines


def _crc32(data: bytes) -> bytes:
  return isal_zlib.crc32(data).to_bytes(4, 'big')


def encode_png(frame: np.ndarray) -> bytes:
  """Returns a grayscale frame, uint8 (height, width), as PNG."""
  options = [cv2.IMWRITE_PNG_COMPRESSION, _LEVEL]
  return cv2.imencode('.png', frame, options)[1].tobytes()
