"""Writes one shard row by row, durably at every checkpoint."""

import base64
import gzip
import io
import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files

# Bytes of a gzip member of zeros.
_ZEROS = 1 << 24


class ShardWriter:
  """Writes one shard as its rows arrive, without keeping the ring in memory.

  The columns grow in the folder `partial`. `finish` moves them into place,
  `add_count` last, so that a shard with an `add_count` is complete. `checkpoint`
  makes the rows durable. A writer can return to a checkpoint even if the shard was
  finished later: gzip members concatenate, so the finished file begins with the
  bytes of the checkpoint.

  Args:
    directory: Directory of the shards.
    suffix: Shard number.
    capacity: Number of rows in the ring.
    dtypes: Dtype and shape of a row by column, `{column: (dtype, shape)}`.
    carry: Row of the run before this shard's row 0, `{column: row}`, which the
      format keeps at ring position `capacity - 1`; None for shard 0.
    checkpoint: Result of `checkpoint` for this shard, to return to; rows written
      since are discarded (see `check_sizes`). None for a new shard.

  Attributes:
    suffix: Shard number.
    carry: Row of the run before this shard's row 0, or None.
    rows: Number of rows written, without `carry`.
  """

  # Level 6 takes 0.1 ms a frame, on the log's background thread.
  _LEVEL = 6

  def __init__(
    self,
    directory: str,
    suffix: int,
    capacity: int,
    dtypes: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    carry: Mapping[str, np.ndarray] | None,
    checkpoint: Mapping | None = None,
  ):
    self._directory = directory
    self._capacity = capacity
    self._dtypes = dtypes
    self.suffix = suffix
    self.carry = carry
    self.rows = checkpoint['rows'] if checkpoint else 0
    self._streams = {}
    os.makedirs(os.path.join(directory, shard_files.PARTIAL), exist_ok=True)
    if checkpoint:
      self._undo_finish()
    for name in shard_files.COLUMNS:
      file = open(self.partial_path(name), 'r+b' if checkpoint else 'wb')
      self._streams[name] = _GzipStream(file, self._LEVEL)
      if checkpoint:
        file.truncate(checkpoint['bytes'][name])
        file.seek(0, os.SEEK_END)
      else:
        self._streams[name].write(self._header(name))

  def _undo_finish(self) -> None:
    # In reverse order of `finish`, so that the shard first becomes incomplete.
    for name in reversed(shard_files.FILES):
      final = os.path.join(
        self._directory, shard_files.file_name(name, self.suffix)
      )
      if os.path.exists(final):
        if name in shard_files.COLUMNS:
          os.replace(final, self.partial_path(name))
        else:
          os.remove(final)

  def partial_path(self, name: str) -> str:
    """Returns the path of a column's file while the shard is unfinished."""
    return os.path.join(
      self._directory,
      shard_files.PARTIAL,
      shard_files.file_name(name, self.suffix),
    )

  @property
  def room(self) -> int:
    """Number of rows that still fit; the last position is for `carry`."""
    return self._capacity - 1 - self.rows

  def append(self, columns: Mapping[str, np.ndarray]) -> None:
    """Appends rows.

    Args:
      columns: Rows by column, `{column: (n, ...)}` with n at most `room`.
    """
    for name, stream in self._streams.items():
      stream.write(np.ascontiguousarray(columns[name], self._dtypes[name][0]))
    self.rows += len(columns['terminal'])

  def checkpoint(self) -> dict:
    """Makes the rows so far durable.

    Returns:
      A JSON-serialisable position, to return to.
    """
    sizes = {name: stream.sync() for name, stream in self._streams.items()}
    return {'rows': self.rows, 'bytes': sizes}

  def encoded_carry(self) -> dict[str, str] | None:
    """Returns `carry` as JSON-serialisable text by column, for `decode_carry`."""
    if self.carry is None:
      return None
    return {
      name: base64.b64encode(zlib.compress(np.asarray(row).tobytes())).decode()
      for name, row in self.carry.items()
    }

  def finish(self, add_count: int, invalid_range: np.ndarray) -> list[str]:
    """Fills the rest of the ring and moves the files into place.

    Args:
      add_count: Value of the shard's `add_count`.
      invalid_range: Ring positions around the cursor, int64 (n,).

    Returns:
      The paths of the shard's files.
    """
    for name, stream in self._streams.items():
      dtype, shape = self._dtypes[name]
      row = np.zeros(shape, dtype) if self.carry is None else self.carry[name]
      stream.write_zeros(self.room * row.nbytes)
      stream.write(np.asarray(row, dtype).tobytes())
      stream.close()
    for name, value in (
      ('invalid_range', np.asarray(invalid_range, np.int64)),
      ('add_count', np.asarray(add_count, np.int64)),
    ):
      content = io.BytesIO()
      np.save(content, value, allow_pickle=False)
      with open(self.partial_path(name), 'wb') as file:
        stream = _GzipStream(file, self._LEVEL)
        stream.write(content.getvalue())
        stream.close()
    paths = []
    for name in shard_files.FILES:
      if name == shard_files.FILES[-1]:
        files.sync(self._directory)
      paths.append(
        os.path.join(self._directory, shard_files.file_name(name, self.suffix))
      )
      os.replace(self.partial_path(name), paths[-1])
    files.sync(self._directory)
    return paths

  def close(self) -> None:
    """Closes the files without finishing the shard."""
    for stream in self._streams.values():
      stream.close()

  def _header(self, name: str) -> bytes:
    dtype, shape = self._dtypes[name]
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
      header,
      {
        'descr': np.lib.format.dtype_to_descr(np.dtype(dtype)),
        'fortran_order': False,
        'shape': (self._capacity, *shape),
      },
    )
    return header.getvalue()


def check_sizes(directory: str, suffix: int, checkpoint: Mapping) -> None:
  """Checks that a shard, finished or not, has the rows of a checkpoint.

  Args:
    directory: Directory of the shards.
    suffix: Shard number.
    checkpoint: Result of `ShardWriter.checkpoint` for this shard.

  Raises:
    ValueError: If a file is missing, or shorter than it was at the checkpoint.
  """
  for name, size in checkpoint['bytes'].items():
    path = os.path.join(directory, shard_files.file_name(name, suffix))
    if not os.path.exists(path):
      folder = os.path.join(directory, shard_files.PARTIAL)
      path = os.path.join(folder, os.path.basename(path))
    if not os.path.exists(path) or os.path.getsize(path) < size:
      raise ValueError(f'{path} is shorter than at the checkpoint ({size} B).')


def decode_carry(
  encoded: Mapping[str, str] | None,
  dtypes: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
) -> dict[str, np.ndarray] | None:
  """Returns the row of `ShardWriter.encoded_carry`.

  Args:
    encoded: Text by column; None for shard 0.
    dtypes: Dtype and shape of a row by column, `{column: (dtype, shape)}`.
  """
  if not encoded:
    return None
  return {
    name: np.frombuffer(
      zlib.decompress(base64.b64decode(encoded[name])), dtype
    ).reshape(shape)
    for name, (dtype, shape) in dtypes.items()
  }


class _GzipStream:
  """A gzip file written in members, so that it can be truncated and continued."""

  def __init__(self, file: BinaryIO, level: int):
    self._file = file
    self._level = level
    self._compressor: Any = None

  def write(self, data) -> None:
    if self._compressor is None:
      self._compressor = zlib.compressobj(self._level, wbits=31)  # 31: gzip
    self._file.write(self._compressor.compress(data))

  def write_zeros(self, count: int) -> None:
    """Writes a number of zero bytes, compressing a few MB of them only once."""
    blocks, rest = divmod(count, _ZEROS)
    if blocks:
      self._end_member()
      member = gzip.compress(bytes(_ZEROS), mtime=0)
      for _ in range(blocks):
        self._file.write(member)
    self.write(bytes(rest))

  def _end_member(self) -> None:
    if self._compressor is not None:
      self._file.write(self._compressor.flush())
      self._compressor = None

  def sync(self) -> int:
    """Ends the gzip member, makes the file durable and returns its size."""
    self._end_member()
    self._file.flush()
    os.fsync(self._file.fileno())
    return self._file.tell()

  def close(self) -> None:
    if not self._file.closed:
      self.sync()
      self._file.close()
