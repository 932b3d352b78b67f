"""Copies of mapped files are exact, and a truncated file is an error."""

import concurrent.futures
import ctypes
import functools
import mmap
import os
import random
import types

import pytest

from batch_rl.utils.native import mapped_files


@pytest.fixture
def file(tmp_path):
  """A file of 40 pages; its attributes are its content and where it is mapped."""
  path = tmp_path / 'file'
  path.write_bytes(random.Random(0).randbytes(40 * mmap.PAGESIZE))
  with open(path, 'rb') as opened:
    # Only a writable mapping gives its address.
    mapping = mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE)

  content = path.read_bytes()
  view = (ctypes.c_char * len(content)).from_buffer(mapping)
  return types.SimpleNamespace(
    content=content,
    mapped=mapping,
    address=ctypes.addressof(view),
    truncate=functools.partial(os.truncate, path),
  )


def copied(file, ranges):
  address, content = mapped_files.copy(
    [(file.address + start, size) for start, size in ranges]
  )
  total = sum(size for _, size in ranges)
  assert ctypes.string_at(address, total) == content[:total]
  return bytes(content[:total])


def some_ranges(file, count, seed=0, most=3000):
  random_ = random.Random(seed)
  starts = [random_.randrange(len(file.content) - most) for _ in range(count)]
  return [(start, random_.randrange(most)) for start in starts]


def joined(file, ranges):
  return b''.join(file.content[start : start + size] for start, size in ranges)


@pytest.mark.parametrize('has_memory_files', [True, False])
def test_ranges_are_copied(file, has_memory_files, monkeypatch):
  """Large and small copies, for which less memory is kept, alternate."""
  monkeypatch.setattr(mapped_files, '_KEPT_BYTES', 1 << 19)
  if not has_memory_files:
    monkeypatch.setattr(mapped_files, '_pwritev', None)
  for count in (0, 3000, 1, 1024, 2, 1025, 1):
    ranges = some_ranges(file, count, seed=count)
    assert copied(file, ranges) == joined(file, ranges)
  assert mapped_files._local.buffer.size < 1 << 19


def test_threads_and_forked_processes_have_their_own_copies(file):
  def copy_often(seed):
    for i in range(100):
      ranges = some_ranges(file, 20, 100 * seed + i)
      assert copied(file, ranges) == joined(file, ranges)

  def memory_files():
    paths = map('/proc/self/fd/{}'.format, os.listdir('/proc/self/fd'))
    return sum('memfd:batch_rl' in os.path.realpath(path) for path in paths)

  copy_often(0)
  before = memory_files()
  child = os.fork()
  if not child:
    try:
      copy_often(1)
      os._exit(0)
    finally:
      os._exit(1)
  with concurrent.futures.ThreadPoolExecutor(4) as threads:
    list(threads.map(copy_often, range(2, 6)))
  assert os.waitpid(child, 0)[1] == 0
  assert memory_files() == before


@pytest.mark.parametrize('count', [1, 30, 2500])
def test_the_first_range_of_a_truncated_file_is_named(file, count):
  page = mmap.PAGESIZE
  bad = 2 * count // 3
  ranges = [(start % (9 * page), n) for start, n in some_ranges(file, count)]
  ranges[bad] = 29 * page - 5, 9  # Partly readable, after the truncation.
  ranges += [(30 * page, 7), (0, 5)]
  assert copied(file, ranges) == joined(file, ranges)
  file.truncate(29 * page)
  with pytest.raises(mapped_files.UnreadableError, match='truncated') as caught:
    copied(file, ranges)
  assert caught.value.index == bad
  assert copied(file, ranges[:bad]) == joined(file, ranges[:bad])
  file.truncate(0)
  with pytest.raises(mapped_files.UnreadableError) as caught:
    copied(file, ranges)
  assert caught.value.index == 0


def test_a_reserved_buffer_is_kept_until_a_copy_needs_less():
  content = ctypes.create_string_buffer(b'frames')
  few = [(ctypes.addressof(content), 6)]
  # A new thread has no buffer yet.
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    large = thread.submit(mapped_files.reserve, 1 << 24).result()
    assert large[2] >= 1 << 24
    assert thread.submit(mapped_files.reserve).result() == large
    thread.submit(mapped_files.copy, few).result()
    assert thread.submit(mapped_files.reserve).result()[2] < large[2]
