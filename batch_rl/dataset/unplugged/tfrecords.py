"""Reads the records of TFRecord files, whose format is described here.

A record is its length (uint64), the checksum of these eight bytes (uint32), the data,
and the checksum of the data (uint32), all little-endian. A checksum is a CRC-32C,
rotated and shifted (masked). A file may be gzipped as a whole.

Files are not trusted: both checksums of every record are verified, gzip's own, too,
and memory is bounded by `MAX_RECORD_BYTES`.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import google_crc32c
from isal import igzip

from batch_rl.utils import files

# The longest episode, 27,000 steps of frames without compression, takes 195 MB.
MAX_RECORD_BYTES = 1 << 28
_HEAD_BYTES, _CHECKSUM_BYTES = 12, 4
_MASK = 0xA282EAD8
_GZIP = b'\x1f\x8b'


@dataclasses.dataclass(frozen=True)
class Record:
  """A record of a file.

  Attributes:
    data: Content of the record.
    offset: Offset of the record in the file, after decompression.
    position: Bytes of the file read so far, before decompression.
  """

  data: bytes
  offset: int
  position: int


def read(path: str, digest: Any = None) -> Iterator[Record]:
  """Yields the records of a local file, one in memory at a time.

  Args:
    path: TFRecord file, gzipped or not.
    digest: `hashlib` object to update with the file's bytes, if any. It is complete
      after the last record.

  Raises:
    ValueError: If the file is remote, missing, empty, no TFRecord file, or damaged. The
      message names the file and the offset.
  """
  if files.is_remote(path):
    raise ValueError(f'{path} is remote; fetch it first.')
  try:
    file = open(path, 'rb')
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  with file:
    yield from _Reader(path, file, digest).records()


class _Reader:
  """Reads an open file.

  Args:
    path: Path of the file, for messages.
    file: The file, at its start.
    digest: `hashlib` object to update, or None.
  """

  def __init__(self, path: str, file: Any, digest: Any):
    self._path = path
    self._file = file
    self._offset = 0
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    self._stream: Any = files.HashedFile(file, digest)
    # The length of a record may look like the beginning of a gzip file.
    if not _is_intact(head[:8], head[8:]):
      if head[:2] != _GZIP:
        raise ValueError(
          f'{path} is not a TFRecord file, or damaged from the start'
          f'{": it is empty" * (not head)}; fetch it again.'
        )
      self._stream = igzip.GzipFile(fileobj=self._stream, mode='rb')

  def records(self) -> Iterator[Record]:
    """Yields the records."""
    while head := self._read(_HEAD_BYTES):
      offset = self._offset
      if len(head) < _HEAD_BYTES:
        raise self._damage('ends within the length of')
      if not _is_intact(head[:8], head[8:]):
        raise self._damage('has a wrong checksum of the length of')
      length = int.from_bytes(head[:8], 'little')
      if length > MAX_RECORD_BYTES:
        raise self._damage(
          f'claims {length:,} B, more than the limit of {MAX_RECORD_BYTES:,} B, for'
        )
      # Memory that is never written to is not taken.
      data = self._read(length)
      checksum = self._read(_CHECKSUM_BYTES)
      if len(data) < length or len(checksum) < _CHECKSUM_BYTES:
        raise self._damage('ends within')
      if not _is_intact(data, checksum):
        raise self._damage('has a wrong checksum of')
      self._offset += _HEAD_BYTES + length + _CHECKSUM_BYTES
      yield Record(data, offset, self._file.tell())
    if not self._offset:
      raise ValueError(f'{self._path} has no records; fetch it again.')

  def _read(self, size: int) -> bytes:
    """Reads `size` bytes, or fewer at the end of the file."""
    parts = []
    try:
      while size and (part := self._stream.read(size)):
        parts.append(part)
        size -= len(part)
    except Exception as error:  # those of gzip and isal have no base in common
      total = os.fstat(self._file.fileno()).st_size
      reason = ' '.join(str(error).split()) or type(error).__name__
      raise ValueError(
        f'{self._path} is damaged: {self._file.tell():,} of its {total:,} B '
        f'were read, up to the record at offset {self._offset:,}: {reason}; fetch '
        'it again.'
      ) from error
    return parts[0] if len(parts) == 1 else b''.join(parts)

  def _damage(self, what: str) -> ValueError:
    return ValueError(
      f'{self._path} is damaged: it {what} the record at offset {self._offset:,}; '
      'fetch it again.'
    )


def _is_intact(data: bytes, checksum: bytes) -> bool:
  """Returns whether a masked checksum (4 bytes) is that of the data."""
  crc = google_crc32c.value(data)
  masked = ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
  return masked.to_bytes(_CHECKSUM_BYTES, 'little') == checksum
