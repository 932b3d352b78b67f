"""Writes one shard row by row, durably at every checkpoint."""

import base64
import gzip
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files

# Bytes of a gzip member of zeros.
_ZEROS = 1 << 24
# Takes 0.1 ms a frame, on the log's background thread.
_LEVEL = 6

# Values of the columns, in the order of `shard_files.COLUMNS`.
Row = tuple[Any, ...]


class ShardWriter:
  """Writes one shard as its rows arrive, without keeping the ring in memory.

  The columns grow in the folder `partial`. `finish` moves them into place,
  `add_count` last, so that a shard with an `add_count` is complete. `checkpoint`
  makes the rows durable. A writer can return to a checkpoint even if the shard was
  finished later: gzip members concatenate, so the finished file begins with the
  bytes of the checkpoint.

  Args:
    directory: Directory of the shards.
    capacity: Number of rows in the ring.
    dtypes: Dtype and shape of a row by column, `{column: (dtype, shape)}`.
    suffix: Shard number.
    carry: Row of the run before this shard's row 0, which the format keeps at ring
      position `capacity - 1`; None for shard 0.
    checkpoint: Result of `checkpoint`, to return to in place of a new shard; rows
      written since are discarded (see `check_sizes`).

  Attributes:
    suffix: Shard number.
    carry: Row of the run before this shard's row 0, `{column: row}`, or None.
    rows: Number of rows written, without `carry`.
  """

  def __init__(
    self,
    directory: str,
    capacity: int,
    dtypes: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    suffix: int = 0,
    carry: Row | None = None,
    checkpoint: Mapping | None = None,
  ):
    self._directory = directory
    self._capacity = capacity
    self._dtypes = dtypes
    self.suffix, self.rows = suffix, 0
    self.carry: dict[str, np.ndarray] | None = None
    if carry is not None:
      self.carry = {
        name: np.array(value, dtypes[name][0])
        for name, value in zip(shard_files.COLUMNS, carry, strict=True)
      }
    os.makedirs(os.path.join(directory, shard_files.PARTIAL), exist_ok=True)
    if checkpoint:
      self._return_to(checkpoint)
    self._streams = {}
    for name in shard_files.COLUMNS:
      file = open(self.partial_path(name), 'r+b' if checkpoint else 'wb')
      self._streams[name] = _GzipStream(file)
      if checkpoint:
        file.truncate(checkpoint['cut']['bytes'][name])
        file.seek(0, os.SEEK_END)
      else:
        dtype, shape = dtypes[name]
        shape = capacity, *shape
        header = {'descr': dtype.str, 'fortran_order': False, 'shape': shape}
        np.lib.format.write_array_header_1_0(self._streams[name], header)

  def _return_to(self, checkpoint: Mapping) -> None:
    self.suffix, self.rows = checkpoint['suffix'], checkpoint['cut']['rows']
    self.carry = carry_of(checkpoint, self._dtypes)
    # In reverse order of `finish`, so that the shard first becomes incomplete.
    for name in reversed(shard_files.FILES):
      final = shard_files.path(self._directory, name, self.suffix)
      if os.path.exists(final):
        os.replace(final, self.partial_path(name))

  def partial_path(self, name: str) -> str:
    """Returns the path of a column's file while the shard is unfinished."""
    folder = os.path.join(self._directory, shard_files.PARTIAL)
    return shard_files.path(folder, name, self.suffix)

  @property
  def room(self) -> int:
    """Number of rows that still fit; the last position is for `carry`."""
    return self._capacity - 1 - self.rows

  def append(self, rows: Sequence[Row]) -> None:
    """Appends at most `room` rows."""
    columns = zip(*rows, strict=True)
    for name, values in zip(shard_files.COLUMNS, columns, strict=False):
      self._streams[name].write(np.array(values, self._dtypes[name][0]))
    self.rows += len(rows)

  def checkpoint(self) -> dict[str, Any]:
    """Makes the rows so far durable.

    Returns:
      A JSON-serialisable position, to return to.
    """
    sizes = {name: stream.sync() for name, stream in self._streams.items()}
    files.sync(os.path.join(self._directory, shard_files.PARTIAL))
    carry = {
      name: base64.b64encode(zlib.compress(row.tobytes())).decode()
      for name, row in (self.carry or {}).items()
    }
    cut = {'rows': self.rows, 'bytes': sizes}
    return {'suffix': self.suffix, 'cut': cut, 'carry': carry or None}

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
      stream.write(row.tobytes())
      stream.close()
    counters = {'invalid_range': invalid_range, 'add_count': add_count}
    for name, value in counters.items():
      stream = _GzipStream(open(self.partial_path(name), 'wb'))
      np.save(stream, np.asarray(value, np.int64))  # type: ignore[arg-type]
      stream.close()
    paths = []
    for name in shard_files.FILES:
      if name == shard_files.FILES[-1]:
        files.sync(self._directory)
      paths.append(shard_files.path(self._directory, name, self.suffix))
      os.replace(self.partial_path(name), paths[-1])
    files.sync(self._directory)
    return paths

  def close(self) -> None:
    """Closes the files without finishing the shard."""
    for stream in self._streams.values():
      stream.close()


def carry_of(
  checkpoint: Mapping, dtypes: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
) -> dict[str, np.ndarray] | None:
  """Returns `carry` of a checkpointed `ShardWriter`."""
  if not (carry := checkpoint['carry']):
    return None
  raw = {n: zlib.decompress(base64.b64decode(carry[n])) for n in dtypes}
  return {
    name: np.frombuffer(raw[name], dtype).reshape(shape)
    for name, (dtype, shape) in dtypes.items()
  }


def check_sizes(directory: str, checkpoint: Mapping) -> None:
  """Checks that a shard, finished or not, has the rows of a checkpoint.

  Args:
    directory: Directory of the shards.
    checkpoint: Result of `ShardWriter.checkpoint`.

  Raises:
    ValueError: If a file is missing, or shorter than it was at the checkpoint.
  """
  suffix = checkpoint['suffix']
  partial = os.path.join(directory, shard_files.PARTIAL)
  for name, size in checkpoint['cut']['bytes'].items():
    path = shard_files.path(directory, name, suffix)
    if not os.path.exists(path):
      path = shard_files.path(partial, name, suffix)
    if not os.path.exists(path) or os.path.getsize(path) < size:
      raise ValueError(f'{path} is shorter than at the checkpoint ({size} B).')


class _GzipStream:
  """A gzip file written in members, so that it can be truncated and continued."""

  def __init__(self, file: BinaryIO):
    self._file = file
    self._compressor: Any = None

  def write(self, data) -> None:
    if self._compressor is None:
      self._compressor = zlib.compressobj(_LEVEL, wbits=31)  # 31: gzip
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
