"""Packs one shard: compresses its frames into memory or onto disk."""

import base64
import collections
import concurrent.futures
import functools
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import lz4.block
import numpy as np
from isal import isal_zlib

from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import packed_columns, packed_shard
from batch_rl.utils import files, machine

# Rows that wait to be compressed, at most.
_WAITING_BYTES = 1 << 27


def pack(
  data_dir: str,
  columns: packed_columns.Columns,
  dictionary: bytes,
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
  directory: str | None = None,
) -> packed_shard.PackedShard:
  """Packs a shard, with only a few MB of its frames in memory at a time.

  LZ4 and zlib release the interpreter's lock, so threads use all cores.

  Args:
    data_dir: Directory of the shards.
    columns: Small columns of the shard.
    dictionary: Compression dictionary of the store.
    pool: Threads to compress with.
    progress: Callback that receives the number of rows read each time.
    directory: Directory of the store; None to pack into memory.

  Raises:
    ValueError: If the shard is damaged, changes, or is not what the manifest describes.
    OSError: If the disk is full or the directory cannot be written; no partial
      file is left.
  """

  def pack_blocks(write: Callable[[bytes], Any]) -> packed_shard.PackedShard:
    name = shard_files.file_name('observation', columns.suffix)
    path = os.path.join(data_dir, name)
    digest = hashlib.sha256()
    stat = files.stat(path)
    # Padding may follow each end. A ring that has wrapped begins at the cursor.
    order = np.roll(np.arange(columns.prefix), -columns.add_count)
    ends = np.flatnonzero(columns.terminal[order][:-3])[:1000]
    after_ends = order[ends[:, None] + np.arange(1, 4)]  # (episodes, 3)
    examined = np.unique(after_ends)
    zero: list[int] = []

    def tasks():
      for start, rows in _kept_rows(path, columns, digest, progress):
        here = slice(*np.searchsorted(examined, (start, start + len(rows))))
        zero.extend(p for p in examined[here] if not rows[p - start].any())
        yield functools.partial(np.asarray, rows), rows.nbytes

    offsets, running_crc32 = write_blocks(tasks(), dictionary, write, pool)
    frames = {name: {**stat, 'sha256': digest.hexdigest()}}
    # Rows of padding that all episodes have.
    is_padding = np.isin(after_ends, zero).all(axis=0)
    packed = packed_shard.PackedShard(
      columns._replace(sources={**columns.sources, **frames}),
      packed_shard.NO_BLOCKS,
      offsets,
      running_crc32,
      int(np.cumprod(is_padding).sum()),
    )
    recorded = manifests.file_records(manifests.read(data_dir))
    manifests.check_files(data_dir, recorded, packed.columns.sources)
    if not packed_shard.is_fresh(packed, data_dir):
      raise ValueError(f'{path} or its columns changed while it was packed.')
    return packed

  if directory is not None:
    return write_shard(directory, columns.suffix, dictionary, pack_blocks)
  memory = io.BytesIO()
  packed = pack_blocks(memory.write)
  return packed._replace(blocks=np.frombuffer(memory.getbuffer(), np.uint8))


def write_blocks(
  tasks: Iterable[tuple[Callable[[], np.ndarray], int]],
  dictionary: bytes,
  write: Callable[[bytes], Any],
  pool: concurrent.futures.ThreadPoolExecutor,
  level: int = 5,
) -> tuple[np.ndarray, np.ndarray]:
  """Compresses rows in threads, and writes the blocks in order.

  Args:
    tasks: Functions that return consecutive rows, (n, *frame_shape), each with the
      size of its rows in bytes. n is a multiple of `BLOCK_ROWS`, except in the last
      task. The functions are called in the threads.
    dictionary: Compression dictionary of the store.
    write: Callback that receives the compressed blocks in order.
    pool: Threads to compress with.
    level: Compression level of LZ4, 1 to 12; the default is the highest that keeps up with
      gzip's decompression.

  Returns:
    `offsets` and `running_crc32` of a `PackedShard`.
  """

  compress = functools.partial(
    lz4.block.compress,
    mode='high_compression',
    compression=level,
    store_size=False,
    dict=dictionary,
  )

  def compress_rows(make_rows: Callable[[], np.ndarray]) -> list[bytes]:
    rows = make_rows()
    data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    size = packed_shard.BLOCK_ROWS * rows[0].nbytes
    return [compress(data[i : i + size]) for i in range(0, len(data), size)]

  sizes, running_crc32 = [0], [0]
  waiting: collections.deque = collections.deque()

  def drain(limit: int) -> None:
    while len(waiting) > limit:
      for block in waiting.popleft().result():
        sizes.append(len(block))
        running_crc32.append(zlib.crc32(block, running_crc32[-1]))
        write(block)

  for make_rows, size in tasks:
    waiting.append(pool.submit(compress_rows, make_rows))
    drain(min(2 * machine.num_cpus(), _WAITING_BYTES // max(1, size)))
  drain(0)
  offsets = np.cumsum(sizes, dtype=np.uint64)
  if offsets[-1] < 1 << 32:
    offsets = offsets.astype(np.uint32)
  return offsets, np.array(running_crc32, np.uint32)


def write_shard(
  directory: str,
  suffix: int,
  dictionary: bytes,
  pack_blocks: Callable[[Callable[[bytes], Any]], packed_shard.PackedShard],
) -> packed_shard.PackedShard:
  """Writes a packed shard as two files, which appear only when complete.

  Args:
    directory: Directory of the store.
    suffix: Shard number.
    dictionary: Compression dictionary of the store.
    pack_blocks: Function that writes the blocks with its argument, in order, and
      returns the shard without them.

  Raises:
    OSError: If the disk is full or the directory cannot be written; no partial
      file is left.
  """
  binary_path, description_path = packed_shard.paths(directory, suffix)
  content = hashlib.sha256()
  with files.replacing(binary_path) as file:

    def write(data) -> None:
      content.update(data)
      file.write(data)

    packed = pack_blocks(write)
    columns = packed.columns
    small = {name: getattr(columns, name) for name in packed_columns.NAMES}
    sections, checks = {}, {}
    for name, column in {'offsets': packed.offsets, **small}.items():
      write(bytes(-file.tell() % 64))
      sections[name] = [file.tell(), column.dtype.str, len(column)]
      write(np.ascontiguousarray(column).data)
      checks[name] = isal_zlib.crc32(np.ascontiguousarray(column))
    size = file.tell()
    # An old description must never accompany a new binary.
    if os.path.exists(description_path):
      os.remove(description_path)
      files.sync(directory)
  checksums = packed.running_crc32.astype('<u4').tobytes()
  description = {
    'suffix': suffix,
    'capacity': columns.capacity,
    'add_count': columns.add_count,
    'frame_shape': list(columns.frame_shape),
    'frame_dtype': columns.frame_dtype.str,
    'dictionary': hashlib.sha256(dictionary).hexdigest(),
    'block_rows': packed_shard.BLOCK_ROWS,
    'padding': packed.padding,
    'sections': sections,
    'crc32': checks,
    'running_crc32': base64.b64encode(checksums).decode(),
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
  """Yields `(position, rows)` without stale rows, each from a block's start.

  Rows have the dtype of the file, whose byte order `np.concatenate` would change.
  """
  prefix, capacity = columns.prefix, columns.capacity
  at, rest = 0, None
  for start, chunk in shard_reader.iterate_rows(path, digest=digest):
    rows = chunk[: max(0, prefix - start)]
    if columns.rows > prefix and start + len(chunk) == capacity:
      rows = np.concatenate([rows, chunk[-1:]], dtype=chunk.dtype)
    if rest is not None:
      rows = np.concatenate([rest, rows], dtype=chunk.dtype)
    whole = len(rows) - len(rows) % packed_shard.BLOCK_ROWS
    if whole:
      yield at, rows[:whole]
    at, rest = at + whole, rows[whole:].copy()
    progress(len(chunk))
  if rest is not None and len(rest):
    yield at, rest
