"""One packed shard: its small columns, and its frames compressed in blocks.

Rows are kept in ring order, without stale ones, in blocks of `BLOCK_ROWS`. LZ4
compresses a block with a dictionary that all shards of a store share. LZ4 decodes
two to three times as fast as zstd, and with the dictionary its blocks are about as
small (`benchmarks/NOTES.md`).

On disk a packed shard is two files. `shard-<n>.bin` has the blocks, one after the
other, then their offsets and the small columns as raw arrays. `shard-<n>.json`, the
description, has the places of these arrays, checksums, and the shard files they
were made from. It is written last, so a shard with a description is complete.

`running_crc32` in the description detects damaged blocks. It has, for each offset,
the CRC-32 of all blocks before it: little-endian uint32 in base64. To check
consecutive blocks, continue the CRC-32 from the entry of the first. The result equals
the entry after the last.
"""

import base64
import contextlib
import hashlib
import mmap
import os
import resource
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from isal import isal_zlib

from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import packed_columns
from batch_rl.utils import files

BLOCK_ROWS = 12
# Blocks of a shard that is not complete yet.
NO_BLOCKS = np.empty(0, np.uint8)


class PackedShard(NamedTuple):
  """A shard with its frames compressed.

  Attributes:
    columns: Small columns and counters.
    blocks: Compressed frames, uint8 (bytes,).
    offsets: Offsets in `blocks`, unsigned (blocks + 1,); block b is
      `blocks[offsets[b]:offsets[b + 1]]`.
    running_crc32: CRC-32 of `blocks[:offset]` for each offset, uint32
      (blocks + 1,).
    padding: Number of all-zero rows at the start of an episode, at most 3.
    file: Open file whose mapped content has the blocks; None in memory.
  """

  columns: packed_columns.Columns
  blocks: np.ndarray
  offsets: np.ndarray
  running_crc32: np.ndarray
  padding: int
  file: BinaryIO | None = None

  def read(self, begin: int, end: int) -> Any:
    """Returns the bytes of blocks `[begin, end)`.

    A read of a mapped file would end the process if the file was truncated.

    Raises:
      OSError: If the file cannot be read.
      ValueError: If it was truncated.
    """
    if self.file is None:
      return self.blocks[begin:end]
    content = os.pread(self.file.fileno(), end - begin, begin)
    if len(content) < end - begin:
      raise ValueError('it was truncated')
    return content

  def check(self) -> None:
    """Validates lengths and offsets: the decoder uses offsets as addresses.

    Raises:
      ValueError: If columns, offsets and blocks do not match, or a type is wrong.
    """
    offsets, rows = self.offsets, self.columns.rows
    capacity, count = self.columns.capacity, self.columns.add_count
    is_whole = self.columns.truncated is not None
    if capacity < 1 or is_whole and count != capacity:
      raise ValueError(
        f'its ring has {capacity} rows, its add_count is {count}'
      )
    for name, kinds in (('action', 'iu'), ('reward', 'if'), ('terminal', 'b')):
      column = getattr(self.columns, name)
      if column.shape != (rows,) or column.dtype.kind not in kinds:
        found = f'{column.dtype} {column.shape}'
        raise ValueError(f'its {name} column is {found}, not {rows} rows')
    if (
      offsets.dtype not in (np.uint32, np.uint64)
      or offsets.shape != (-(-rows // BLOCK_ROWS) + 1,)
      or offsets[0] != 0
      or np.any(offsets[1:] < offsets[:-1])
      or offsets[-1] > len(self.blocks)
    ):
      raise ValueError('its offsets are damaged')
    if self.running_crc32.shape != offsets.shape:
      raise ValueError('its checksums do not match its offsets')


def paths(directory: str, suffix: int) -> tuple[str, str]:
  """Returns the paths of a packed shard's `.bin` and `.json` file."""
  stem = os.path.join(directory, f'shard-{suffix}')
  return f'{stem}.bin', f'{stem}.json'


def open_packed(
  directory: str, suffix: int, dictionary: bytes, preload: bool = False
) -> PackedShard:
  """Opens a packed shard on disk.

  Only `PackedShard.read` and compiled code may read the blocks of a mapped file:
  other reads end the process if the file is truncated while in use.

  Args:
    directory: Directory of the store.
    suffix: Shard number.
    dictionary: Compression dictionary of the store.
    preload: Whether to read the file into memory rather than map it.

  Raises:
    ValueError: If the shard is missing, incomplete, damaged, or of another store.
    ReadError: If a file cannot be read at the moment.
  """
  binary_path, description_path = paths(directory, suffix)
  try:
    description = read_description(description_path)
    if description['dictionary'] != hashlib.sha256(dictionary).hexdigest():
      raise ValueError('it was packed with another dictionary')
    if description['suffix'] != suffix:
      raise ValueError(f'it is shard {description["suffix"]}')
    if description['block_rows'] != BLOCK_ROWS:
      raise ValueError(f'it has {description["block_rows"]} rows in a block')
    size = os.path.getsize(binary_path)
    if size != description['bytes']:
      raise ValueError(f'it has {size} bytes, expected {description["bytes"]}')
    column: dict[str, Any] = {
      name: np.fromfile(binary_path, dtype, count, offset=start)
      for name, (start, dtype, count) in description['sections'].items()
    }
    for name, check in description['crc32'].items():
      if isal_zlib.crc32(column[name]) != check:
        raise ValueError(f'its {name} is damaged')
    truncated = description.get('truncated_rows')
    columns = packed_columns.Columns(
      suffix,
      description['capacity'],
      description['add_count'],
      frame_shape=tuple(description['frame_shape']),
      frame_dtype=np.dtype(description['frame_dtype']),
      sources=description['sources'],
      digest=description['digest'],
      truncated=truncated if truncated is None else tuple(truncated),
      **{name: column[name] for name in packed_columns.NAMES},
    )
    _allow_many_files()
    file = open(binary_path, 'rb')
    data: Any
    if preload:
      data = file.read()
    else:
      data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
      # Sampling reads at random positions.
      data.madvise(mmap.MADV_RANDOM)
    checksums = base64.b64decode(description['running_crc32'])
    packed = PackedShard(
      columns,
      np.frombuffer(data, np.uint8),
      column['offsets'],
      np.frombuffer(checksums, '<u4').astype(np.uint32),
      description['padding'],
      None if preload else file,
    )
    packed.check()
    return packed
  except (OSError, KeyError, TypeError, ValueError) as error:
    shard_reader.raise_failed_read(error, binary_path)
    reason = error.strerror if isinstance(error, OSError) else error
    raise ValueError(
      f'{binary_path} cannot be used ({reason}); delete it and {description_path}. A '
      'cache packs the shard again; for a store, run the command that made it again.'
    ) from error


def _allow_many_files() -> None:
  """Raises the limit of open files; before Python 3.13 each mapping is one more."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if soft != hard:
    with contextlib.suppress(OSError, ValueError):
      resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def read_description(description_path: str) -> dict[str, Any]:
  """Reads a packed shard's `.json` file.

  Raises:
    ValueError: If the file is missing or damaged.
  """
  description = files.read_json(description_path)
  if description is None:
    raise ValueError(f'{description_path} is missing')
  return files.check_hash(description_path, description)


def verify_packed(directory: str, suffix: int) -> str | None:
  """Compares a packed shard on disk with its hash.

  Returns:
    A one-line problem, or None.
  """
  binary_path, description_path = paths(directory, suffix)
  try:
    expected = read_description(description_path)['sha256']
    if files.sha256(binary_path) != expected:
      return (
        f'{binary_path} is damaged: its hash differs from that in {description_path}; '
        'delete both, and run the command that made the store again.'
      )
  except (OSError, ValueError) as error:
    return f'{binary_path} cannot be verified: {error}'
  return None


def is_fresh(packed: PackedShard, data_dir: str) -> bool:
  """Returns whether a packed shard was made from the shard's current files.

  Sizes and modification times are compared. If only a time differs, as after a
  copy, hashes are compared, and `sources` gets the new time.

  Args:
    packed: Packed shard.
    data_dir: Directory of the shards.

  Raises:
    ValueError: If a file of the shard is missing.
    ReadError: If a file of the shard cannot be read at the moment.
  """
  for name, source in packed.columns.sources.items():
    path = os.path.join(data_dir, name)
    try:
      found = files.stat(path)
      if found['bytes'] != source['bytes']:
        return False
      is_newer = found['mtime_ns'] != source['mtime_ns']
      if is_newer and files.sha256(path) != source['sha256']:
        return False
      source['mtime_ns'] = found['mtime_ns']
    except (OSError, ValueError) as error:
      shard_reader.raise_failed_read(error, path)
      raise
  return True
