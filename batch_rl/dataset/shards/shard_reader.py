"""Reads shards; their format is described here.

A shard is a dump of the ring in Dopamine's `OutOfGraphReplayBuffer`: one gzipped
`.npy` of `capacity` rows for each column, and two small files. Row `i` is
`(o_i, a_i, r_i, terminal_i)`; the next observation is in the next row in time
order. An episode starts with `stack_size - 1` all-zero rows (padding).

The logger dumps the ring when its cursor reaches `capacity - 1`. Shard `k` thus
holds, in time order, its last row (row `k * capacity - 1` of the run, absent
from shard 0) and then rows `0 ... capacity - 2`. In the final, partial shard
`add_count` equals the cursor.

Files are not trusted: pickles are refused, and every length and checksum is verified.
The size in a header is compared with the size of the file, because a few kB of zeros
could otherwise claim gigabytes. An error is one line that names the file.
"""

import contextlib
import errno
import math
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from isal import igzip  # Several times as fast as gzip.

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files

# Dtypes of the small columns, one value a row; observations may have any dtype.
DTYPES = {'action': np.int32, 'reward': np.float32, 'terminal': np.uint8}
_COUNTERS = ('add_count', 'invalid_range')
# Python 2 wrote integers with an L. Nested repetition would take forever to refuse some
# damaged headers.
_NPY_HEADER = re.compile(
  rb"\{'descr': '(?P<descr>[^']+)', 'fortran_order': (?P<order>True|False), "
  rb"'shape': \((?P<shape>[\dL, ]*)\),? ?\} *\n"
)
_CHUNK_BYTES = 1 << 22
# Limits, far beyond the dataset's million rows of 7 kB: 16.8 million rows, and for
# example a color image of 1,180 x 1,180 pixels.
MAX_ROWS = 1 << 24
MAX_ROW_BYTES = _CHUNK_BYTES
MAX_COUNTER_BYTES = 1 << 20
# Deflate expands two bits to 258 bytes at most.
_MAX_EXPANSION = 1032


class DataError(ValueError):
  """Data that turned out damaged, or too large, while in use."""


class ReadError(OSError):
  """A file that cannot be read at the moment, and may be intact."""


def raise_failed_read(error: Exception, path: str) -> None:
  """Raises a ReadError if an error leaves open whether a file is intact.

  Args:
    error: Error of reading a file, from the system or from `files`.
    path: Path for the message, if the error has none.
  """
  cause = error if isinstance(error, OSError) else error.__cause__
  if not isinstance(cause, OSError) or cause.errno in (None, errno.ENOENT):
    return
  raise ReadError(
    f'{cause.filename or path} cannot be read: {cause.strerror}.'
  ) from error


class _DtypeError(ValueError):
  """A column in another dtype, which may be intact."""


def read_headers(data_dir: str, suffix: int) -> dict[str, 'Header']:
  """Reads the headers of a shard's columns.

  Raises:
    ValueError: If a file is missing or damaged, or the columns differ in length.
    ReadError: If a file cannot be read at the moment.
  """
  headers = {
    name: read_header(shard_files.path(data_dir, name, suffix))
    for name in shard_files.COLUMNS
  }
  rows = {name: header.rows for name, header in headers.items()}
  if len(set(rows.values())) > 1:
    raise ValueError(
      f'Shard {suffix} in {data_dir} has columns of different numbers of rows: '
      f'{", ".join(f"{name} {count}" for name, count in rows.items())}.'
    )
  return headers


def read_add_count(data_dir: str, suffix: int) -> int:
  """Returns the number of rows added before a shard's dump.

  In a final shard it is the cursor.

  Raises:
    ValueError: If the file is missing or damaged, or is not a count.
  """
  return int(read_array(shard_files.path(data_dir, 'add_count', suffix)))


def read_array(path: str, digest: Any = None) -> np.ndarray:
  """Reads a gzipped `.npy`, verifying its length and checksum.

  A file with the name of a column or a counter must be of the format.

  Args:
    path: Path of the file.
    digest: `hashlib` object to update with the file's bytes, if any.

  Raises:
    ValueError: If the file is missing, damaged, a pickle, or beyond the limits.
    ReadError: If the file cannot be read at the moment.
  """
  with _open(path, digest) as (header, chunks):
    out = np.empty((header.rows, *header.shape[1:]), header.dtype)
    for start, chunk in chunks:
      out[start : start + len(chunk)] = chunk
    out = out.reshape(header.shape)
    if shard_files.column_of(path) == 'add_count' and out < 0:
      raise ValueError(f'it holds {out}, expected a count of rows')
    return out


def read_header(path: str) -> 'Header':
  """Reads the shape and dtype of a gzipped `.npy`, but not its rows.

  Raises:
    ValueError: If the file is missing, damaged, a pickle, or beyond the limits.
    ReadError: If the file cannot be read at the moment.
  """
  with _open(path) as (header, _):
    return header


def iterate_rows(
  path: str, rows: int | None = None, digest: Any = None
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields a file's rows in chunks of a few MB.

  Args:
    path: Path of a gzipped `.npy`.
    rows: Number of rows to read from a file that may still grow; None reads and
      verifies the whole file.
    digest: `hashlib` object to update with the file's bytes, if any.

  Yields:
    `(first_row, chunk)`, the chunk of shape (n, ...).

  Raises:
    ValueError: If the file is missing, damaged, a pickle, or beyond the limits.
    ReadError: If the file cannot be read at the moment.
  """
  with _open(path, digest, rows) as (_, chunks):
    yield from chunks


class Header(NamedTuple):
  """The header of a `.npy`.

  Attributes:
    shape: Shape of the array.
    dtype: Dtype of the array.
  """

  shape: tuple[int, ...]
  dtype: np.dtype

  @property
  def rows(self) -> int:
    """Number of rows; 1 for a scalar."""
    return self.shape[0] if self.shape else 1

  @property
  def row_bytes(self) -> int:
    """Size of a row in bytes."""
    return self.dtype.itemsize * math.prod(self.shape[1:])

  @property
  def nbytes(self) -> int:
    """Size of the array in bytes."""
    return self.rows * self.row_bytes


def _parse_header(stream: Any) -> Header:
  """Reads and checks the header of a `.npy`.

  NumPy's own parser evaluates the header as Python. On CPython 3.11.7 that has
  failed on an intact file ('AST constructor recursion depth mismatch').
  """
  magic = stream.read(8)
  if magic[:6] != b'\x93NUMPY':
    raise ValueError('it is not a .npy file')
  length = int.from_bytes(stream.read(2 if magic[6] == 1 else 4), 'little')
  text = stream.read(min(length, 10_000))
  match = _NPY_HEADER.fullmatch(text)
  if match is None:
    raise ValueError(f'its .npy header is {text[:80]!r}')
  shape = tuple(int(n) for n in re.findall(rb'\d+', match['shape']))
  header = Header(shape, np.dtype(match['descr'].decode()))
  if header.dtype.hasobject:
    raise ValueError('it holds pickled objects, which are never loaded')
  if match['order'] == b'True' and len(shape) > 1:
    raise ValueError('it is in Fortran order')
  if header.rows > MAX_ROWS or header.row_bytes > MAX_ROW_BYTES:
    raise ValueError(
      f'its header claims {header.rows:,} rows of {header.row_bytes:,} B, '
      f'but the limits are {MAX_ROWS:,} rows and {MAX_ROW_BYTES:,} B'
    )
  return header


def _check_header(name: str, header: Header) -> None:
  """Compares the header of a column or a counter with the format."""
  shape, dtype = header.shape, header.dtype
  if name in _COUNTERS and header.nbytes > MAX_COUNTER_BYTES:
    raise ValueError(
      f'its header claims {header.nbytes:,} B, far more than its counters take'
    )
  wanted = np.dtype(DTYPES.get(name, dtype))
  if dtype != wanted:
    raise _DtypeError(
      f'{dtype}, expected {wanted}; array.astype(np.{wanted}) mends an intact file'
    )
  if name in DTYPES and len(shape) != 1:
    expected = f'{dtype} (rows,)'
  elif name == 'observation' and not shape:
    expected = f'{dtype} (rows, ...)'
  elif name == 'add_count' and (shape or dtype.kind not in 'iu'):
    expected = 'a count of rows'
  elif name in shard_files.COLUMNS and not header.rows:
    raise ValueError('it has no rows')
  else:
    return
  raise ValueError(f'it holds {dtype} {shape}, expected {expected}')


@contextlib.contextmanager
def _open(
  path: str, digest: Any = None, stop: int | None = None
) -> Iterator[tuple[Header, Iterator[tuple[int, np.ndarray]]]]:
  """Opens a gzipped `.npy`; yields its header and an iterator of its chunks.

  Any error is one line that names the file; a lack of memory passes.

  Args:
    path: Path of the file, whose name may be that of a column or a counter.
    digest: `hashlib` object to update with the file's bytes, if any.
    stop: Number of rows to read from a file that may still grow; None for all.
  """
  try:
    with open(path, 'rb') as file:
      raw = file if digest is None else files.HashedFile(file, digest)
      stream = igzip.GzipFile(fileobj=raw, mode='rb')
      header = _parse_header(stream)
      _check_header(shard_files.column_of(path), header)
      size = os.path.getsize(path)
      if stop is None and header.nbytes > _MAX_EXPANSION * size:
        raise ValueError(
          f'its header claims {header.nbytes:,} B, more than its {size:,} B can '
          'hold'
        )
      yield header, _read_chunks(stream, header, stop)
  except MemoryError:
    raise
  except _DtypeError as error:
    raise ValueError(f'{path} has another dtype: {error}.') from error
  except Exception as error:
    # A file that is not gzip raises an OSError without a number.
    if isinstance(error, OSError) and error.errno is not None:
      kind = ValueError if error.errno == errno.ENOENT else ReadError
      raise kind(f'{path} cannot be read: {error.strerror}.') from error
    # A damaged file can raise zlib.error, EOFError, UnicodeDecodeError and others.
    reason = ' '.join(str(error).split()) or type(error).__name__
    raise ValueError(f'{path} is damaged: {reason}.') from error


def _read_chunks(
  stream: Any, header: Header, stop: int | None
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields `(first_row, chunk)` of the rows behind a header; see `_open`."""
  row_bytes = header.row_bytes
  total = header.rows if stop is None else min(stop, header.rows)
  step = max(1, _CHUNK_BYTES // max(row_bytes, 1))
  for start in range(0, total, step):
    count = min(step, total - start)
    data = stream.read(count * row_bytes)
    if len(data) != count * row_bytes:
      raise EOFError(f'it ends before row {start + count} of {total}')
    chunk = np.frombuffer(data, header.dtype)
    yield start, chunk.reshape(count, *header.shape[1:])
  # gzip verifies the checksum at the end of the file.
  if stop is None and stream.read(1):
    raise ValueError('it is longer than its header says')
