"""One shard of a run: the only definition of the file format.

A shard is Dopamine's `OutOfGraphReplayBuffer` written to disk: a ring of
`capacity` rows, one gzipped `.npy` for each column, plus two small files. Row
`i` holds `(o_i, a_i, r_i, terminal_i)`; the next observation is the next row in
time. An episode starts with `stack_size - 1` all-zero rows (padding).

The logger dumps the ring when its cursor reaches `capacity - 1`, so shard `k`
holds, in time order, its last row (row `k * capacity - 1` of the run, absent
from shard 0) and then rows `0 ... capacity - 2`. The final, partial shard has
`add_count` equal to its cursor.

Reading needs neither TensorFlow nor trust: pickles are refused, every length and
checksum is verified, and an error is one line that names the file. Remote paths
(`gs://...`) go through `tf.io.gfile`, imported only for them.
"""

import dataclasses
import io
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from isal import igzip  # several times the speed of gzip

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files

# Column dtypes of the format; the observation's is whatever was logged.
_DTYPES = {'action': np.int32, 'reward': np.float32, 'terminal': np.uint8}
# Python 2 wrote lengths with an L.
_NPY_HEADER = re.compile(
  rb"\{'descr': '(?P<descr>[^']+)', 'fortran_order': (?P<order>True|False), "
  rb"'shape': \((?P<shape>(?:\d+L?,? ?)*)\),? ?\} *\n"
)
_CHUNK_BYTES = 1 << 22


class DataError(ValueError):
  """The data turned out damaged, or too large, while it was being used."""


@dataclasses.dataclass(frozen=True)
class Shard:
  """The contents of a shard.

  Attributes:
    suffix: the number in the shard's file names.
    columns: arrays by column name, first axis the `capacity` rows of the ring;
      `observation` is (capacity, ...), the others (capacity,).
    add_count: rows added since the run began; the cursor in a final shard.
    rows_on_disk: rows of the ring on disk; `columns` may hold fewer.
  """

  suffix: int
  columns: Mapping[str, np.ndarray]
  add_count: int
  rows_on_disk: int

  @property
  def capacity(self) -> int:
    """Rows of the ring that were read."""
    return len(self.columns['terminal'])


def read_shard(
  data_dir: str,
  suffix: int,
  columns: tuple[str, ...] = shard_files.COLUMNS,
) -> Shard:
  """Reads a shard, each array straight into its own memory, never twice.

  Args:
    data_dir: the directory of the files.
    suffix: the number of the shard.
    columns: what to read; `terminal` is always included.

  Raises:
    ValueError: if a file is missing, damaged, a pickle, or its dtype or length
      is not that of the format.
  """
  add_count = read_add_count(data_dir, suffix)
  arrays = {}
  for name in ('terminal', *columns):
    if name in arrays:
      continue
    path = os.path.join(data_dir, shard_files.file_name(name, suffix))
    arrays[name] = array = read_array(path)
    rows = len(arrays['terminal']) if arrays['terminal'].ndim else 0
    check_column(path, name, array.shape, array.dtype, rows)
  rows_on_disk = read_header(
    os.path.join(data_dir, shard_files.file_name('terminal', suffix))
  ).shape[0]
  return Shard(suffix, arrays, add_count, rows_on_disk)


def read_add_count(data_dir: str, suffix: int) -> int:
  """Rows that were added when a shard was dumped; the cursor in a final one.

  Raises:
    ValueError: if the file is missing or damaged, or holds something else.
  """
  path = os.path.join(data_dir, shard_files.file_name('add_count', suffix))
  return check_add_count(path, read_array(path))


def check_add_count(path: str, count: np.ndarray) -> int:
  """The count that a file holds.

  Raises:
    ValueError: if it holds something else.
  """
  if count.shape or count.dtype.kind not in 'iu' or count < 0:
    raise ValueError(f'{path} holds {count!r}, not a count of rows.')
  return int(count)


def check_column(
  path: str, name: str, shape: tuple[int, ...], dtype: np.dtype, rows: int
) -> None:
  """Refuses a column that is not of the format.

  Args:
    path: its file.
    name: in `COLUMNS`.
    shape: what the file holds.
    dtype: likewise.
    rows: of the shard's terminal column.

  Raises:
    ValueError: with what was expected.
  """
  expected = _DTYPES.get(name, dtype)
  if dtype != expected or not shape or (name in _DTYPES and len(shape) > 1):
    raise ValueError(
      f'{path} holds {dtype} {shape}, expected {np.dtype(expected)} '
      f'({"rows," if name in _DTYPES else "rows, ..."}).'
    )
  if shape[0] != rows or not rows:
    raise ValueError(
      f'{path} has {shape[0]} rows, but the terminal column of its shard has '
      f'{rows}.'
      if rows
      else f'{path} has no rows.'
    )


def read_array(path: str, digest: Any = None) -> np.ndarray:
  """Reads a gzipped `.npy`, verifying its length and checksum.

  Args:
    path: the file.
    digest: a `hashlib` object to update with the file's bytes.

  Raises:
    ValueError: if the file is missing, damaged, or holds a pickle.
  """
  with _open(path, digest) as raw, _one_line_errors(path):
    header, chunks = _read_chunks(raw)
    out = np.empty(header.shape, header.dtype)
    for start, chunk in chunks:
      out[start : start + len(chunk)] = chunk
  return out if header.ndim else out.reshape(())


def read_header(path: str) -> 'Header':
  """Shape and dtype of a gzipped `.npy`, without reading its rows.

  Raises:
    ValueError: if the file is missing, damaged, or holds a pickle.
  """
  with _open(path) as raw, _one_line_errors(path):
    return _read_chunks(raw)[0]


def iterate_rows(
  path: str,
  rows: int | None = None,
  digest: Any = None,
  multiple: int = 1,
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields `(first row, chunk of rows)` of a file, never all of it at once.

  Args:
    path: a gzipped `.npy`.
    rows: where to stop, in a file that may still be growing; None to read and
      verify all of it.
    digest: a `hashlib` object to update with the file's bytes.
    multiple: chunks start at multiples of so many rows.

  Raises:
    ValueError: if the file is missing, damaged, or holds a pickle.
  """
  with _open(path, digest) as raw, _one_line_errors(path):
    _, chunks = _read_chunks(raw, rows, multiple)
    yield from chunks


@dataclasses.dataclass(frozen=True)
class Header:
  """What a `.npy` says of its array; a scalar counts as one row."""

  shape: tuple[int, ...]
  dtype: np.dtype
  ndim: int


def parse_header(
  stream: Any,
) -> tuple[np.dtype, bool, tuple[int, ...]]:
  """Reads the header of a `.npy`: dtype, whether Fortran order, shape.

  Raises:
    ValueError: if it is none.

  Not by NumPy, which evaluates it as Python: on CPython 3.11.7 that was seen to
  fail on an intact file ('AST constructor recursion depth mismatch').
  """
  magic = stream.read(8)
  if magic[:6] != b'\x93NUMPY':
    raise ValueError('it is not a .npy file')
  length_bytes = 2 if magic[6] == 1 else 4
  length = int.from_bytes(stream.read(length_bytes), 'little')
  text = stream.read(min(length, 10_000))
  match = _NPY_HEADER.fullmatch(text)
  if match is None:
    raise ValueError(f'its .npy header is {text[:80]!r}')
  shape = tuple(int(n) for n in re.findall(rb'\d+', match['shape']))
  return np.dtype(match['descr'].decode()), match['order'] == b'True', shape


def _read_chunks(
  raw: Any, stop: int | None = None, multiple: int = 1
) -> tuple[Header, Iterator[tuple[int, np.ndarray]]]:
  """Parses the header of a gzipped `.npy`; its rows follow in chunks."""
  stream = igzip.GzipFile(fileobj=raw, mode='rb')
  dtype, fortran, shape = parse_header(stream)
  if dtype.hasobject:
    raise ValueError('it holds pickled objects, which are never loaded')
  if fortran and len(shape) > 1:
    raise ValueError('it is stored column by column')
  header = Header(shape or (1,), dtype, len(shape))

  def chunks():
    row_bytes = dtype.itemsize * int(np.prod(header.shape[1:], dtype=np.int64))
    total = header.shape[0] if stop is None else min(stop, header.shape[0])
    step = max(1, _CHUNK_BYTES // (max(row_bytes, 1) * multiple)) * multiple
    for start in range(0, total, step):
      count = min(step, total - start)
      data = stream.read(count * row_bytes)
      if len(data) != count * row_bytes:
        raise EOFError(f'it ends before row {start + count} of {total}')
      chunk = np.frombuffer(data, dtype).reshape(count, *header.shape[1:])
      yield start, chunk
    # Reading to the end is what makes gzip compare the checksum.
    if stop is None and stream.read(1):
      raise ValueError('it is longer than its header says')

  return header, chunks()


class _one_line_errors:  # noqa: N801 (a context manager)
  """Turns whatever a damaged file raises into one line that names it."""

  def __init__(self, path: str):
    self._path = path

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    # Any exception: NumPy's header parser alone raises half a dozen kinds.
    if isinstance(error, Exception):
      reason = ' '.join(str(error).split()) or kind.__name__
      raise ValueError(f'{self._path} is damaged: {reason}.') from error


def _open(path: str, digest: Any = None) -> Any:
  if files.is_remote(path):
    with files.remote_errors(path) as tf:
      if not tf.io.gfile.exists(path):
        raise ValueError(f'{path} does not exist.')
    return _Adapter(tf.io.gfile.GFile(path, 'rb'), digest)
  try:
    file = open(path, 'rb')
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  return file if digest is None else _Adapter(file, digest)


class _Adapter(io.RawIOBase):
  """Gives any file the `readinto` that igzip wants, and updates a digest."""

  def __init__(self, file: Any, digest: Any):
    self._file = file
    self._digest = digest

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    data = self._file.read(len(buffer))
    buffer[: len(data)] = data
    if self._digest is not None:
      self._digest.update(data)
    return len(data)

  def close(self) -> None:
    self._file.close()
    super().close()
