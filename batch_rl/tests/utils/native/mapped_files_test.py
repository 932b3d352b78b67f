"""Each thread has a file in memory of its own, closed when it is not needed."""

import concurrent.futures
import ctypes
import os

from batch_rl.utils.native import mapped_files


def write(size):
  """Writes random bytes by the descriptor, and reads them by the address."""
  descriptor, address, room = mapped_files.reserve(size)
  assert room >= size
  content = os.urandom(100)
  for at in (0, room - 100):
    os.pwrite(descriptor, content, at)
    assert ctypes.string_at(address + at, 100) == content
  assert mapped_files.reserve() == (descriptor, address, room)
  return descriptor


def memory_files():
  paths = map('/proc/self/fd/{}'.format, os.listdir('/proc/self/fd'))
  return sum('memfd:batch_rl' in os.path.realpath(path) for path in paths)


def test_threads_and_forked_processes_have_their_own_files():
  write(0)
  before = memory_files()
  child = os.fork()
  if not child:
    try:
      write(1 << 20)
      os._exit(0)
    finally:
      os._exit(1)
  sizes = [0, 300_000, 1, 1 << 22, 100] * 20
  with concurrent.futures.ThreadPoolExecutor(4) as threads:
    list(threads.map(write, sizes))
  assert os.waitpid(child, 0)[1] == 0
  assert memory_files() <= before
