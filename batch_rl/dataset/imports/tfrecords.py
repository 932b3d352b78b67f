"""Reads the records of TFRecord files, whose format is described here.

A record is its length (uint64), the checksum of these eight bytes (uint32), the data,
and the checksum of the data (uint32), all little-endian. A checksum is a CRC-32C,
rotated and shifted (masked). A file may be gzipped as a whole.

Files are not trusted: both checksums of every record are verified, gzip's own, too,
and memory is bounded by `MAX_RECORD_BYTES`.
"""

import os
from collections.abc import Iterator
from typing import Any

import google_crc32c
from isal import igzip

from batch_rl.dataset.shards import shard_reader
from batch_rl.utils import files

# The longest episode, 27,000 steps of frames without compression, takes 195 MB.
MAX_RECORD_BYTES = 1 << 28
_HEAD_BYTES, _CHECKSUM_BYTES = 12, 4
_MASK = 0xA282EAD8
_GZIP = b'\x1f\x8b'


def read(path: str, digest: Any = None) -> Iterator[tuple[bytes, int]]:
  """Yields the records of a local file, one in memory at a time.

  Args:
    path: TFRecord file, gzipped or not.
    digest: `hashlib` object to update with the file's bytes, if any. It is complete
      after the last record.

  Yields:
    The record, and the bytes of the file read so far, before decompression.

  Raises:
    ReadError: If the file cannot be read at the moment.
    ValueError: If the file is missing, empty, no TFRecord file, or damaged. The message
      names the file and the offset.
  """
  try:
    file = open(path, 'rb')
    head = file.read(_HEAD_BYTES)
  except OSError as error:
    shard_reader.raise_failed_read(error, path)
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  with file:
    file.seek(0)
    stream: Any = files.HashedFile(file, digest)
    # The length of a record may look like the beginning of a gzip file.
    if not _is_intact(head[:8], head[8:]):
      if head[:2] != _GZIP:
        raise ValueError(
          f'{path} is not a TFRecord file, or damaged from the start'
          f'{": it is empty" * (not head)}; fetch it again.'
        )
      stream = igzip.GzipFile(fileobj=stream, mode='rb')
    offset = 0

    def take(size: int) -> bytes:
      """Reads `size` bytes, or fewer at the end of the file."""
      try:
        return stream.read(size)
      except MemoryError:
        raise
      except Exception as error:  # gzip's and isal's have no common base
        shard_reader.raise_failed_read(error, path)
        total = os.fstat(file.fileno()).st_size
        reason = ' '.join(str(error).split()) or type(error).__name__
        raise ValueError(
          f'{path} is damaged: {file.tell():,} of its {total:,} B were read, up to the '
          f'record at offset {offset:,}: {reason}; fetch it again.'
        ) from error

    def damaged(problem: str) -> ValueError:
      return ValueError(
        f'{path} is damaged: it {problem} the record at offset {offset:,}; fetch it again.'
      )

    while head := take(_HEAD_BYTES):
      if len(head) < _HEAD_BYTES:
        raise damaged('ends within the length of')
      if not _is_intact(head[:8], head[8:]):
        raise damaged('has a wrong checksum of the length of')
      length = int.from_bytes(head[:8], 'little')
      if length > MAX_RECORD_BYTES:
        limit = f'more than the limit of {MAX_RECORD_BYTES:,} B'
        raise damaged(f'claims {length:,} B, {limit}, for')
      # Memory that is never written to is not taken.
      data, checksum = take(length), take(_CHECKSUM_BYTES)
      if len(data) < length or len(checksum) < _CHECKSUM_BYTES:
        raise damaged('ends within')
      if not _is_intact(data, checksum):
        raise damaged('has a wrong checksum of')
      offset += _HEAD_BYTES + length + _CHECKSUM_BYTES
      yield data, file.tell()
    if not offset:
      raise ValueError(f'{path} has no records; fetch it again.')


def _is_intact(data: bytes, checksum: bytes) -> bool:
  """Returns whether a masked checksum (4 bytes) is that of the data."""
  crc = google_crc32c.value(data)
  masked = ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
  return masked.to_bytes(_CHECKSUM_BYTES, 'little') == checksum
