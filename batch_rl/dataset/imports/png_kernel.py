"""Compiled decoder of gray PNG frames, several times as fast as OpenCV's.

It decodes many frames in one call, without the interpreter's lock. isal inflates them.
Images of other kinds, and damaged ones, are left to OpenCV: interlaced, with a palette,
transparency or another depth, or with pixels in several chunks.

Chunk checksums are not verified. The Adler-32 of the pixels is.

Source of the format: W3C, Portable Network Graphics (Third Edition).
"""

import ctypes

import isal
import numpy as np
from isal import isal_zlib
from numba import carray, types
from numba.extending import intrinsic

from batch_rl.dataset.imports import png_frames
from batch_rl.utils.native import compiled_code

_FUNCTIONS = ('isal_inflate_init', 'isal_inflate_stateless', 'isal_adler32')
# Constants, so that loops over a row use wide registers.
_HEIGHT, _WIDTH = png_frames.FRAME_SHAPE
_FILTERED_WIDTH = _WIDTH + 1
# Words of 8 bytes for ISA-L's `struct inflate_state`, which takes 88 kB.
_STATE_WORDS = 1 << 14
_IHDR, _IDAT, _IEND, _TRNS = (
  int.from_bytes(name, 'big') for name in (b'IHDR', b'IDAT', b'IEND', b'tRNS')
)
_SIGNATURE_1, _SIGNATURE_2 = 0x89504E47, 0x0D0A1A0A
_ANCILLARY = 1 << 29  # Bit of a chunk's name that says that it may be skipped.


def functions() -> np.ndarray | None:
  """Returns the addresses of ISA-L's functions, int64 (3,).

  None if the isal package does not export them. The beginning of `inflate_state` has
  been the same in all releases of ISA-L 2.
  """
  if getattr(isal, 'ISAL_MAJOR_VERSION', None) != 2:
    return None
  try:
    library = ctypes.CDLL(isal_zlib.__file__)
    pointers = [
      ctypes.cast(getattr(library, name), ctypes.c_void_p)
      for name in _FUNCTIONS
    ]
  except (AttributeError, OSError):
    return None
  return np.array([pointer.value for pointer in pointers], np.int64)


def workspace() -> tuple[np.ndarray, np.ndarray]:
  """Returns `state` and `scratch` of `decode`, for one thread."""
  return (
    np.zeros(_STATE_WORDS, np.int64),
    np.zeros(_HEIGHT * _FILTERED_WIDTH, np.uint8),
  )


@intrinsic
def _call_init(context, function, state):
  """Calls `isal_inflate_init`, whose result is void."""
  return compiled_code.c_call(types.int64, types.int64)


@intrinsic
def _call_inflate(context, function, state):
  """Calls `isal_inflate_stateless`."""
  return compiled_code.c_call(types.int32, types.int64)


@intrinsic
def _call_adler32(context, function, start, address, size):
  """Calls `isal_adler32`."""
  return compiled_code.c_call(
    types.uint32, types.uint32, types.int64, types.int64
  )


@compiled_code.kept
def decode(
  data: np.ndarray,
  stops: np.ndarray,
  first: int,
  functions: np.ndarray,
  state: np.ndarray,
  scratch: np.ndarray,
  out: np.ndarray,
) -> int:
  """Decodes consecutive frames.

  Args:
    data: Bytes of all frames, uint8.
    stops: End of each frame in `data`, int64 (n,).
    first: First frame to decode.
    functions: Addresses from `functions`.
    state: Memory for ISA-L, from `workspace`, of this thread only.
    scratch: Memory for filtered pixels, from `workspace`, of this thread only.
    out: Decoded frames, uint8 (n, height, width), contiguous.

  Returns:
    Number of the first frame that is damaged or of another kind; n if there is none.
  """
  for k in range(first, len(stops)):
    begin = stops[k - 1] if k else 0
    start, size = _find_pixels(data, begin, stops[k])
    if size < 0 or not _inflate(data, start, size, functions, state, scratch):
      return k
    if not _unfilter(scratch, out[k]):
      return k
  return len(stops)


@compiled_code.inner
def _word(data, at):
  """Reads 32 bits, big-endian."""
  return (
    (np.int64(data[at]) << 24)
    | (np.int64(data[at + 1]) << 16)
    | (np.int64(data[at + 2]) << 8)
    | np.int64(data[at + 3])
  )


@compiled_code.inner
def _find_pixels(data, begin, stop):
  """Returns the start and size of an image's only IDAT; a size of -1 if unsuitable."""
  at = begin + 33  # Length of the signature and of IHDR.
  if (
    at > stop
    or _word(data, begin) != _SIGNATURE_1
    or _word(data, begin + 4) != _SIGNATURE_2
    or _word(data, begin + 8) != 13
    or _word(data, begin + 12) != _IHDR
    or _word(data, begin + 16) != _WIDTH
    or _word(data, begin + 20) != _HEIGHT
    or _word(data, begin + 24) != 0x08000000  # 8 bits, gray, deflate, filters
    or data[begin + 28] != 0  # not interlaced
  ):
    return 0, -1
  start, size = 0, -1
  while at + 12 <= stop:
    length, kind = _word(data, at), _word(data, at + 4)
    if length > stop - at - 12:
      return 0, -1
    if kind == _IEND:
      return start, size
    if kind == _IDAT:
      if size >= 0:
        return 0, -1
      start, size = at + 8, length
    elif kind == _TRNS or not kind & _ANCILLARY:
      return 0, -1
    at += 12 + length
  return 0, -1


@compiled_code.inner
def _inflate(data, start, size, functions, state, scratch):
  """Inflates a zlib stream that fills `scratch`; returns whether it is intact."""
  if size < 6:
    return False
  method, flags = np.int64(data[start]), np.int64(data[start + 1])
  if method & 15 != 8 or flags & 32 or (method << 8 | flags) % 31:
    return False
  wanted, address = len(scratch), state.ctypes.data
  _call_init(functions[0], address)
  state[0] = scratch.ctypes.data  # next_out
  state[1] = wanted  # avail_out, total_out
  state[2] = data.ctypes.data + start + 2  # next_in
  state[3] = 0  # read_in
  state[4] = size - 6  # avail_in, read_in_length
  if _call_inflate(functions[1], address) or state[1] >> 32 != wanted:
    return False
  adler = _call_adler32(functions[2], 1, scratch.ctypes.data, wanted)
  return np.int64(adler) == _word(data, start + size - 4)


@compiled_code.inner
def _unfilter(filtered, out):
  """Reverses the filters of all rows; returns whether all are known."""
  for y in range(_HEIGHT):
    kind = filtered[y * _FILTERED_WIDTH]
    # Views of addresses: those of arrays would count references, at twice the time.
    row = _row(filtered.ctypes.data + y * _FILTERED_WIDTH + 1)
    above = _row(out.ctypes.data + (y - 1) * _WIDTH)
    pixels = _row(out.ctypes.data + y * _WIDTH)
    # The row above the first is zero: Up is None there, and Paeth is Sub.
    if kind == 0 or (kind == 2 and y == 0):
      for x in range(_WIDTH):
        pixels[x] = row[x]
    elif kind == 1 or (kind == 4 and y == 0):
      left = np.uint8(0)
      for x in range(_WIDTH):
        left = np.uint8(row[x] + left)
        pixels[x] = left
    elif kind == 2:
      for x in range(_WIDTH):
        pixels[x] = row[x] + above[x]
    elif kind == 3:
      before = 0
      for x in range(_WIDTH):
        up = np.int64(above[x]) if y else 0
        before = (np.int64(row[x]) + ((before + up) >> 1)) & 255
        pixels[x] = before
    elif kind == 4:
      _unfilter_paeth(row, above, pixels)
    else:
      return False
  return True


@compiled_code.inner
def _row(address):
  """Returns the pixels of a row at an address."""
  return carray(compiled_code.pointer(address), (_WIDTH,))


@compiled_code.inner
def _unfilter_paeth(row, above, out):
  """Reverses the Paeth filter: the neighbour nearest to left + up - corner."""
  left = corner = np.int32(0)
  for x in range(_WIDTH):
    up = np.int32(above[x])
    nearest = left
    if up != corner:  # seldom, so it is worth a branch
      from_left, from_up = abs(up - corner), abs(left - corner)
      from_corner = abs(up - corner + left - corner)
      if from_left > from_up or from_left > from_corner:
        nearest = up if from_up <= from_corner else corner
    left = (np.int32(row[x]) + nearest) & np.int32(255)
    corner = up
    out[x] = left
