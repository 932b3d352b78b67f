"""Writing one shard row by row, durable at every checkpoint."""

import io
import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files


class ShardWriter:
  """Writes one shard as its rows arrive, so that no ring is kept in memory.

  The columns grow in the folder `partial` and are moved into place when the
  shard is finished, `add_count` last: a shard whose `add_count` exists is whole.
  `cut` makes what was written durable and says how to come back to this point;
  `ShardWriter.resume` does so, even if the shard was finished in between, because
  a finished file begins with the bytes of the cut (gzip members concatenate).

  Args:
    directory: where the shards of the run are.
    suffix: the number of this shard.
    capacity: rows of the ring.
    dtypes: `{column: (dtype, shape of a row)}`.
    carry: the row of the run that precedes this shard's row 0 (`{column: row}`),
      which the format keeps at ring position `capacity - 1`; None in shard 0.
  """

  # Level 6 takes 0.1 ms for a frame, off the training thread.
  _LEVEL = 6

  def __init__(
    self,
    directory: str,
    suffix: int,
    capacity: int,
    dtypes: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    carry: Mapping[str, np.ndarray] | None,
  ):
    self._directory = directory
    self._capacity = capacity
    self._dtypes = dtypes
    self.suffix = suffix
    self.carry = carry
    self.rows = 0
    os.makedirs(os.path.join(directory, shard_files.PARTIAL), exist_ok=True)
    self._streams = {}
    for name in shard_files.COLUMNS:
      stream = _GzipStream(open(self.partial_path(name), 'wb'), self._LEVEL)
      stream.write(self._header(name))
      self._streams[name] = stream

  @classmethod
  def resume(
    cls,
    directory: str,
    suffix: int,
    capacity: int,
    dtypes: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    carry: Mapping[str, np.ndarray] | None,
    cut: Mapping,
  ) -> 'ShardWriter':
    """Comes back to the point of a `cut`, whatever has happened since.

    Args:
      directory: as in the constructor, like the next four.
      suffix: see there.
      capacity: see there.
      dtypes: see there.
      carry: see there.
      cut: what `cut` returned.

    Raises:
      ValueError: if a file is shorter than it was at the cut.
    """
    self = cls.__new__(cls)
    self._directory, self._capacity = directory, capacity
    self._dtypes, self.suffix, self.carry = dtypes, suffix, carry
    self.rows = cut['rows']
    self._streams = {}
    os.makedirs(os.path.join(directory, shard_files.PARTIAL), exist_ok=True)
    # The reverse of `finish`: first the shard stops being complete.
    for name in reversed(shard_files.FILES):
      final = os.path.join(directory, shard_files.file_name(name, suffix))
      if os.path.exists(final):
        if name in shard_files.COLUMNS:
          os.replace(final, self.partial_path(name))
        else:
          os.remove(final)
    for name in shard_files.COLUMNS:
      path, size = self.partial_path(name), cut['bytes'][name]
      if not os.path.exists(path) or os.path.getsize(path) < size:
        raise ValueError(
          f'{path} is shorter than at the checkpoint ({size} B).'
        )
      file = open(path, 'r+b')
      file.truncate(size)
      file.seek(size)
      self._streams[name] = _GzipStream(file, self._LEVEL)
    return self

  def partial_path(self, name: str) -> str:
    """Where a column grows until the shard is finished."""
    return os.path.join(
      self._directory,
      shard_files.PARTIAL,
      shard_files.file_name(name, self.suffix),
    )

  @property
  def room(self) -> int:
    """Rows that still fit; the last ring position belongs to `carry`."""
    return self._capacity - 1 - self.rows

  def append(self, columns: Mapping[str, np.ndarray]) -> None:
    """Appends rows, `{column: (n, ...)}`; n must not exceed `room`."""
    for name, stream in self._streams.items():
      stream.write(np.ascontiguousarray(columns[name], self._dtypes[name][0]))
    self.rows += len(columns['terminal'])

  def cut(self) -> dict:
    """Makes the rows so far durable; returns a JSON-able way back here."""
    sizes = {name: stream.cut() for name, stream in self._streams.items()}
    return {'rows': self.rows, 'bytes': sizes}

  def finish(self, add_count: int, invalid_range: np.ndarray) -> list[str]:
    """Completes the ring, moves the files into place, returns their paths.

    Args:
      add_count: what the shard's counter shall say.
      invalid_range: ring positions around the cursor, int64 (n,).
    """
    for name, stream in self._streams.items():
      dtype, shape = self._dtypes[name]
      row = bytes(np.dtype(dtype).itemsize * int(np.prod(shape)))
      for _ in range(self.room):
        stream.write(row)
      if self.carry is not None:
        row = np.asarray(self.carry[name], dtype).tobytes()
      stream.write(row)
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
        files.sync_directory(self._directory)
      paths.append(
        os.path.join(self._directory, shard_files.file_name(name, self.suffix))
      )
      os.replace(self.partial_path(name), paths[-1])
    files.sync_directory(self._directory)
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


class _GzipStream:
  """A gzip file written in members, so that it can be cut and continued."""

  def __init__(self, file: BinaryIO, level: int):
    self._file = file
    self._level = level
    self._compressor: Any = None

  def write(self, data) -> None:
    if self._compressor is None:
      self._compressor = zlib.compressobj(self._level, wbits=31)  # 31: gzip
    self._file.write(self._compressor.compress(data))

  def cut(self) -> int:
    """Ends the member, makes it durable, returns the size of the file."""
    if self._compressor is not None:
      self._file.write(self._compressor.flush())
      self._compressor = None
    self._file.flush()
    os.fsync(self._file.fileno())
    return self._file.tell()

  def close(self) -> None:
    if not self._file.closed:
      self.cut()
      self._file.close()
