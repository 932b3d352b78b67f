"""Packs one shard: compresses its frames into memory or onto disk."""

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import mmap
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from isal import isal_zlib

from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.dataset.store import lz4_blocks, packed_columns, packed_shard
from batch_rl.utils import files, machine

# Of LZ4's twelve levels, the highest that keeps up with gzip's decompression.
_LEVEL = 5
# Rows that wait to be compressed, at most.
_WAITING_BYTES = 1 << 27


def compressor(
  dictionary: bytes, level: int = _LEVEL
) -> Callable[[Any], bytes]:
  """Returns a function that compresses one block with a store's dictionary."""
  return lz4_blocks.compressor(dictionary, level)


def pack(
  data_dir: str,
  columns: packed_columns.Columns,
  compress: Callable[[Any], bytes],
  write: Callable[[bytes], Any],
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
) -> tuple[np.ndarray, np.ndarray, int, frozenset[int], packed_columns.Columns]:
  """Compresses the frames of a shard, with only a few MB in memory at a time.

  LZ4 and zlib release the interpreter's lock, so threads use all cores.

  Args:
    data_dir: Directory of the shards.
    columns: Small columns of the shard.
    compress: Function from `compressor` that compresses one block.
    write: Callback that receives the compressed blocks in order.
    pool: Threads to compress with.
    progress: Callback that receives the number of rows read each time.

  Returns:
    The offsets, checksums, padding and zero rows of a `PackedShard`, and the
    columns with the file of the frames added to their sources.

  Raises:
    ValueError: If the shard is damaged.
  """
  name = shard_files.file_name('observation', columns.suffix)
  path = os.path.join(data_dir, name)
  digest = hashlib.sha256()
  stat = files.stat(path)
  zero_rows = _ZeroRows(columns)
  blocks = BlockWriter(compress, write, pool)
  for start, rows in _kept_rows(path, columns, digest, progress):
    zero_rows.update(start, rows)
    blocks.add(functools.partial(np.asarray, rows), rows.nbytes)
  offsets, running_crc32 = blocks.finish()
  columns = dataclasses.replace(
    columns,
    sources={
      **columns.sources,
      name: {**stat, 'sha256': digest.hexdigest()},
    },
  )
  return (
    offsets,
    running_crc32,
    zero_rows.padding(),
    zero_rows.ring_positions(),
    columns,
  )


class BlockWriter:
  """Compresses rows in threads, and writes the blocks in order.

  Args:
    compress: Function from `compressor` that compresses one block.
    write: Callback that receives the compressed blocks in order.
    pool: Threads to compress with.
  """

  def __init__(
    self,
    compress: Callable[[Any], bytes],
    write: Callable[[bytes], Any],
    pool: concurrent.futures.ThreadPoolExecutor,
  ):
    self._compress = compress
    self._write = write
    self._pool = pool
    self._sizes: list[int] = []
    self._running_crc32 = [0]
    self._waiting: collections.deque = collections.deque()
    self._max_waiting = 2 * machine.num_cpus()

  def add(self, make_rows: Callable[[], np.ndarray], size: int) -> None:
    """Adds consecutive rows, which begin a block.

    Args:
      make_rows: Function that returns the rows, (n, *frame_shape); called in one of
        the threads. n is a multiple of `BLOCK_ROWS`, except in the last call.
      size: Size of the rows in bytes.
    """
    self._waiting.append(self._pool.submit(self._compress_rows, make_rows))
    self._drain(min(self._max_waiting, _WAITING_BYTES // max(1, size)))

  def finish(self) -> tuple[np.ndarray, np.ndarray]:
    """Writes the remaining blocks; returns the offsets and running CRC-32 of all."""
    self._drain(0)
    offsets = np.concatenate([[0], np.cumsum(self._sizes, dtype=np.uint64)])
    small = offsets[-1] < 1 << 32
    return (
      offsets.astype(np.uint32 if small else np.uint64),
      np.array(self._running_crc32, np.uint32),
    )

  def _drain(self, limit: int) -> None:
    while len(self._waiting) > limit:
      for block in self._waiting.popleft().result():
        self._sizes.append(len(block))
        self._running_crc32.append(zlib.crc32(block, self._running_crc32[-1]))
        self._write(block)

  def _compress_rows(self, make_rows: Callable[[], np.ndarray]) -> list[bytes]:
    rows = make_rows()
    data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    size = packed_shard.BLOCK_ROWS * rows[0].nbytes
    return [
      self._compress(data[i : i + size]) for i in range(0, len(data), size)
    ]


def pack_to_memory(
  data_dir: str,
  columns: packed_columns.Columns,
  compress: Callable[[Any], bytes],
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
) -> packed_shard.PackedShard:
  """Packs a shard into memory.

  Args:
    data_dir: Directory of the shards.
    columns: Small columns of the shard.
    compress: Function from `compressor` that compresses one block.
    pool: Threads to compress with.
    progress: Callback that receives the number of rows read each time.

  Raises:
    ValueError: If the shard is damaged.
  """
  memory = _GrowingBuffer()
  offsets, running_crc32, padding, zero_rows, columns = pack(
    data_dir, columns, compress, memory.write, pool, progress
  )
  packed = packed_shard.PackedShard(
    columns, memory.finish(), offsets, running_crc32, padding, zero_rows
  )
  packed.check()
  return packed


class _GrowingBuffer:
  """A byte buffer that grows without a copy and does not fragment the heap."""

  def __init__(self):
    self._size = 0
    self._map = mmap.mmap(
      -1, 1 << 24, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )

  def write(self, data: bytes) -> None:
    end = self._size + len(data)
    if end > len(self._map):
      # Pages take no memory until they are written to.
      self._map.resize(max(2 * len(self._map), end))
    self._map[self._size : end] = data
    self._size = end

  def finish(self) -> np.ndarray:
    self._map.resize(max(self._size, 1))
    return np.frombuffer(self._map, np.uint8)[: self._size]


def pack_to_disk(
  data_dir: str,
  columns: packed_columns.Columns,
  dictionary: bytes,
  compress: Callable[[Any], bytes],
  directory: str,
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
) -> packed_shard.PackedShard:
  """Packs a shard into two files, which appear only when complete.

  Args:
    data_dir: Directory of the shards.
    columns: Small columns of the shard.
    dictionary: Compression dictionary of the store.
    compress: Function from `compressor` that compresses one block.
    directory: Directory of the store.
    pool: Threads to compress with.
    progress: Callback that receives the number of rows read each time.

  Raises:
    ValueError: If the shard is damaged.
    OSError: If the disk is full or the directory cannot be written; no partial
      file is left.
  """

  def pack_blocks(write):
    return pack(data_dir, columns, compress, write, pool, progress)

  return write_shard(directory, columns.suffix, dictionary, pack_blocks)


# Receives a function that writes blocks; returns what `pack` returns.
_PackBlocks = Callable[
  [Callable[[bytes], Any]],
  tuple[np.ndarray, np.ndarray, int, frozenset[int], packed_columns.Columns],
]


def write_shard(
  directory: str, suffix: int, dictionary: bytes, pack_blocks: _PackBlocks
) -> packed_shard.PackedShard:
  """Writes a packed shard as two files, which appear only when complete.

  Args:
    directory: Directory of the store.
    suffix: Shard number.
    dictionary: Compression dictionary of the store.
    pack_blocks: Function that writes the blocks with its argument, in order, and
      returns the rest of the shard, as `pack` does.

  Raises:
    OSError: If the disk is full or the directory cannot be written; no partial
      file is left.
  """
  binary_path, description_path = packed_shard.paths(directory, suffix)
  temporary = binary_path + '.tmp'
  content = hashlib.sha256()
  try:
    with open(temporary, 'wb') as file:

      def write(data) -> None:
        content.update(data)
        file.write(data)

      offsets, running_crc32, padding, zero_rows, columns = pack_blocks(write)
      sections, checks = {}, {}
      for name, column in (
        ('offsets', offsets),
        *((name, getattr(columns, name)) for name in packed_columns.NAMES),
      ):
        write(bytes(-file.tell() % 64))
        sections[name] = [file.tell(), column.dtype.str, len(column)]
        write(np.ascontiguousarray(column).data)
        checks[name] = isal_zlib.crc32(np.ascontiguousarray(column))
      size = file.tell()
      file.flush()
      os.fsync(file.fileno())
    # An old description must never accompany a new binary.
    if os.path.exists(description_path):
      os.remove(description_path)
      files.sync(directory)
    os.replace(temporary, binary_path)
  except BaseException:
    if os.path.exists(temporary):
      os.remove(temporary)
    raise
  description = {
    'suffix': suffix,
    'capacity': columns.capacity,
    'add_count': columns.add_count,
    'frame_shape': list(columns.frame_shape),
    'frame_dtype': columns.frame_dtype.str,
    'dictionary': hashlib.sha256(dictionary).hexdigest(),
    'block_rows': packed_shard.BLOCK_ROWS,
    'padding': padding,
    'zero_rows': sorted(zero_rows),
    'sections': sections,
    'crc32': checks,
    'running_crc32': packed_shard.encode_crc32(running_crc32),
    'digest': columns.digest,
    'bytes': size,
    'sha256': content.hexdigest(),
    'sources': columns.sources,
  }
  if columns.truncated is not None:
    description['truncated_rows'] = columns.truncated
  files.write_json(description_path, files.with_hash(description))
  return packed_shard.open_packed(directory, suffix, dictionary)


def _kept_rows(
  path: str,
  columns: packed_columns.Columns,
  digest: Any,
  progress: Callable[[int], None],
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields `(position, rows)` without stale rows, each from a block's start."""
  prefix, capacity = columns.prefix, columns.capacity
  has_last_row = columns.rows > prefix
  # An incomplete block, kept back until the ring's last row can join it.
  tail_start, tail = 0, None
  for start, chunk in shard_reader.iterate_rows(
    path, digest=digest, multiple=packed_shard.BLOCK_ROWS
  ):
    kept = chunk[: max(0, prefix - start)]
    if has_last_row and start + len(kept) >= prefix and len(kept):
      full = len(kept) - len(kept) % packed_shard.BLOCK_ROWS
      tail_start, tail = start + full, kept[full:].copy()
      kept = kept[:full]
    if len(kept):
      yield start, kept
    if has_last_row and start + len(chunk) == capacity:
      last = chunk[-1:]
      yield tail_start, last if tail is None else np.concatenate([tail, last])
    progress(len(chunk))


class _ZeroRows:
  """Finds the all-zero rows among possible padding, chunk by chunk."""

  def __init__(self, columns: packed_columns.Columns):
    self._columns = columns
    order = columns.positions(
      stitching.time_order(columns.add_count, columns.capacity)
    )
    ends = np.flatnonzero(columns.terminal[order][:-3])[:1000]
    # (episodes, 3): positions of the three rows after each episode's end.
    self._after = order[ends[:, None] + np.arange(1, 4)]
    first = np.concatenate([np.arange(3), order[:3], [columns.rows - 1]])
    self._candidates = np.unique(np.concatenate([self._after.ravel(), first]))
    self._zero: set[int] = set()
    self._first = set(first.tolist())

  def update(self, start: int, rows: np.ndarray) -> None:
    low, high = np.searchsorted(self._candidates, (start, start + len(rows)))
    for position in self._candidates[low:high].tolist():
      if not rows[position - start].any():
        self._zero.add(position)

  def padding(self) -> int:
    for count in (3, 2, 1):
      if self._zero.issuperset(self._after[:, :count].ravel().tolist()):
        return count
    return 0

  def ring_positions(self) -> frozenset[int]:
    positions = np.array(sorted(self._zero & self._first), np.int64)
    return frozenset(self._columns.ring_positions(positions).tolist())
