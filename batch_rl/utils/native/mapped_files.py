"""Room for copies of mapped files that may be truncated meanwhile.

The signal SIGBUS ends a process that reads a page of a mapped file which the file
no longer has, or which its disk cannot deliver. A system call that reads the page
fails with an error instead. Compiled code therefore lets the system copy, by
`pwritev`, into a file in memory that only this thread uses. Some builds of Python
have no such files; there, a truncated file ends the process.
"""

import ctypes
import mmap
import os
import threading
import weakref

# 0 if this Python has no files in memory.
PWRITEV_ADDRESS = 0
if hasattr(os, 'memfd_create'):
  _pwritev = ctypes.CDLL(None).pwritev
  PWRITEV_ADDRESS = ctypes.cast(_pwritev, ctypes.c_void_p).value or 0


def reserve(size: int = 0) -> tuple[int, int, int]:
  """Returns the file in memory that the thread may copy to.

  Args:
    size: Number of bytes that the file must hold at least.

  Returns:
    Descriptor, address and size, valid until the thread's next call.
  """
  room = getattr(_local, 'room', None)
  if room is None or room[2] < size:
    size = max(1 << 18, 1 << (size - 1).bit_length())
    descriptor = os.memfd_create('batch_rl')
    os.ftruncate(descriptor, size)
    mapped = mmap.mmap(descriptor, size)
    weakref.finalize(mapped, os.close, descriptor)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    room = _local.room = descriptor, address, size
    _local.mapped = mapped
  return room


def _forget_rooms() -> None:
  """Gives a forked process files of its own."""
  global _local
  _local = threading.local()


_local = threading.local()
os.register_at_fork(after_in_child=_forget_rooms)
