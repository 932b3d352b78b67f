"""Reads from mapped files that may be truncated meanwhile.

The signal SIGBUS ends a process that reads a page of a mapped file which the file
no longer has, or which its disk cannot deliver. A system call that reads the page
fails with an error instead. `copy` therefore lets the system copy, into a file in
memory that only this thread uses. Only Linux has such files. On other systems
`copy` reads the pages itself, and a truncated file ends the process.
"""

import array
import bisect
import ctypes
import errno
import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

# Linux accepts 1,024 ranges a call.
_MAX_RANGES = 1024
_RANGE_BYTES = 2 * ctypes.sizeof(ctypes.c_ulong)
# A larger buffer is replaced when a much smaller one suffices.
_KEPT_BYTES = 1 << 23


class UnreadableError(OSError):
  """A range of a mapped file that cannot be read.

  Attributes:
    index: Index of the first unreadable range.
  """

  def __init__(self, index: int):
    super().__init__(errno.EFAULT, 'it was truncated, or its disk failed')
    self.index = index


def copy(ranges: Sequence[tuple[int, int]]) -> tuple[int, memoryview]:
  """Copies ranges of memory, one after the other.

  Args:
    ranges: Address and number of bytes of each range.

  Returns:
    The address and the bytes of the copy, valid until the thread's next call.

  Raises:
    UnreadableError: If a range is in a mapped file that cannot be read.
    OSError: If the system cannot provide memory for the copy.
  """
  if _pwritev is None:
    content = bytearray().join(itertools.starmap(ctypes.string_at, ranges))
    return _address(content), memoryview(content)
  flat = array.array('L', itertools.chain.from_iterable(ranges))
  total = sum(flat[1::2])
  buffer = _buffer(total)
  address, _ = flat.buffer_info()
  if len(ranges) > _MAX_RANGES or total != _pwritev(
    buffer.descriptor, address, len(ranges), 0
  ):
    _copy_in_parts(buffer.descriptor, address, flat[1::2])
  return buffer.address, buffer.content


def reserve(size: int = 0) -> tuple[int, int, int]:
  """Returns the file that `copy` copies to, for compiled code.

  Args:
    size: Number of bytes that the file must hold at least; 0 for the thread's present
      file, however large.

  Returns:
    Descriptor, address and size, valid until the thread's next call.
  """
  buffer = None if size else getattr(_local, 'buffer', None)
  buffer = buffer or _buffer(size)
  return buffer.descriptor, buffer.address, buffer.size


def _buffer(size: int) -> '_Buffer':
  """Returns a buffer of the thread that has room for `size` bytes."""
  buffer = getattr(_local, 'buffer', None)
  if buffer is None or not size <= buffer.size <= max(2 * size, _KEPT_BYTES):
    buffer = _local.buffer = _Buffer(size)
  return buffer


def _copy_in_parts(descriptor: int, address: int, sizes: Sequence[int]) -> None:
  """Copies ranges in several calls, up to the first unreadable one.

  Args:
    descriptor: Descriptor of the file to copy to.
    address: Address of the ranges in memory.
    sizes: Size of each range.
  """
  ends = list(itertools.accumulate(sizes))
  done = 0
  while done < len(ends):
    begin = ends[done - 1] if done else 0
    count = min(len(ends) - done, _MAX_RANGES)
    written = _pwritev(descriptor, address + done * _RANGE_BYTES, count, begin)
    error = ctypes.get_errno() if written < 0 else 0
    if error == errno.EINTR:
      continue
    if error not in (0, errno.EFAULT):
      raise OSError(error, os.strerror(error))
    before, done = done, bisect.bisect_right(ends, begin + written)
    # A call that fails after a part of a range returns the size of that part.
    if error or done == before:
      raise UnreadableError(before)


class _Buffer:
  """A file in memory, mapped.

  Attributes:
    descriptor: Descriptor of the file.
    size: Size in bytes.
    content: Bytes of the file.
    address: Address of the bytes.
  """

  def __init__(self, size: int):
    self.size = max(1 << 18, 1 << (size - 1).bit_length())
    self.descriptor = os.memfd_create('batch_rl')
    weakref.finalize(self, os.close, self.descriptor)
    os.ftruncate(self.descriptor, self.size)
    mapped = mmap.mmap(self.descriptor, self.size)
    self.content = memoryview(mapped)
    self.address = _address(mapped)


def _address(content: Any) -> int:
  """Returns the address of a writable buffer."""
  return ctypes.addressof((ctypes.c_char * len(content)).from_buffer(content))


def _forget_buffers() -> None:
  """Gives a forked process buffers of its own."""
  global _local
  _local = threading.local()


_local = threading.local()
os.register_at_fork(after_in_child=_forget_buffers)
_pwritev: Any = None
PWRITEV_ADDRESS = 0  # 0 if this system cannot copy from mapped files.
if hasattr(os, 'memfd_create'):
  _pwritev = ctypes.CDLL(None, use_errno=True).pwritev
  _pwritev.restype = ctypes.c_ssize_t
  _pwritev.argtypes = [
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_long,
  ]
  PWRITEV_ADDRESS = ctypes.cast(_pwritev, ctypes.c_void_p).value or 0
