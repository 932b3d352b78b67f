"""XXH64 of many rows at a time, without the interpreter's lock.

A hash of `hashlib` takes and releases the lock for each row, so that threads slow each
other down. XXH64 is a fast standard hash of 64 bits. It detects accidents, not forgeries.

Specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

import numpy as np

from batch_rl.utils.native import compiled_code

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_ZERO = np.uint64(0)


@compiled_code.inner
def _rotate(x, bits):
  return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@compiled_code.inner
def _round(accumulator, word):
  return _rotate(accumulator + word * _P2, 31) * _P1


@compiled_code.inner
def _merge(x, accumulator):
  return (x ^ _round(_ZERO, accumulator)) * _P1 + _P4


@compiled_code.kept
def _hash(words, rest, out):
  """Hashes rows of 64-bit words, and of at most seven more bytes."""
  count, tail = words.shape[1], rest.shape[1]
  stripes = count // 4
  for i in range(len(out)):
    if stripes:
      a, b, c, d = _P1 + _P2, _P2, _ZERO, _ZERO - _P1
      for k in range(0, 4 * stripes, 4):
        a = _round(a, words[i, k])
        b = _round(b, words[i, k + 1])
        c = _round(c, words[i, k + 2])
        d = _round(d, words[i, k + 3])
      x = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
      x = _merge(_merge(_merge(_merge(x, a), b), c), d)
    else:
      x = _P5
    x += np.uint64(8 * count + tail)
    for k in range(4 * stripes, count):
      x = _rotate(x ^ _round(_ZERO, words[i, k]), 27) * _P1 + _P4
    k = 0
    if tail >= 4:
      half = _ZERO
      for k in range(4):
        half |= np.uint64(rest[i, k]) << np.uint64(8 * k)
      x = _rotate(x ^ (half * _P1), 23) * _P2 + _P3
      k = 4
    while k < tail:
      x = _rotate(x ^ (np.uint64(rest[i, k]) * _P5), 11) * _P1
      k += 1
    x = (x ^ (x >> np.uint64(33))) * _P2
    x = (x ^ (x >> np.uint64(29))) * _P3
    out[i] = x ^ (x >> np.uint64(32))


def hash_rows(rows: np.ndarray) -> np.ndarray:
  """Returns the XXH64, with seed 0, of the bytes of each row.

  Args:
    rows: Array (n, ...) of any dtype without objects; structured, too.

  Returns:
    uint64 (n,).
  """
  out = np.empty(len(rows), np.uint64)
  if not len(rows):
    return out
  content = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
  whole = content.shape[1] // 8 * 8
  words = np.ascontiguousarray(content[:, :whole]).view('<u8')
  _hash(words, content[:, whole:], out)
  return out
