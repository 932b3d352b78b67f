"""The CRC-32 of a library, for compiled code."""

import contextlib
import ctypes
import functools
import zlib

from isal import isal_zlib


@functools.cache
def crc32_address() -> int:
  """Returns the address of a function `(crc, address, size) -> crc`, or 0.

  All are 64-bit integers, of which the function may read and write the lower 32 bits
  of the checksums only. The function is isal's, ten times as fast, if the package
  exports it; otherwise zlib's.
  """
  for module, name in ((isal_zlib, 'crc32_gzip_refl'), (zlib, 'crc32')):
    with contextlib.suppress(AttributeError, OSError):
      function = getattr(ctypes.CDLL(module.__file__), name)
      return ctypes.cast(function, ctypes.c_void_p).value or 0
  return 0
