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

import collections
import dataclasses
import io
import itertools
import logging
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from isal import igzip  # several times the speed of gzip

from batch_rl.dataset import files

# Written beside the shards by our loggers; readers do not need it.
MANIFEST = 'manifest.json'
# In it: rows of the run that end an episode, but were no end to the agent.
TRUNCATED_ROWS = 'truncated_rows'
OPTIONAL = 'episode_end_indices'  # a file that Dopamine adds, and nobody needs
# The folder in which files grow until they are whole.
PARTIAL = 'partial'
COLUMNS = ('observation', 'action', 'reward', 'terminal')
# Column dtypes of the format; the observation's is whatever was logged.
_DTYPES = {'action': np.int32, 'reward': np.float32, 'terminal': np.uint8}
_FILE_PATTERN = re.compile(r'(?P<name>.+)_ckpt\.(?P<suffix>\d+)\.gz')
# Python 2 wrote lengths with an L.
_NPY_HEADER = re.compile(
  rb"\{'descr': '(?P<descr>[^']+)', 'fortran_order': (?P<order>True|False), "
  rb"'shape': \((?P<shape>(?:\d+L?,? ?)*)\),? ?\} *\n"
)
_CHUNK_BYTES = 1 << 22


def file_name(name: str, suffix: int) -> str:
  """The name of one file of a shard; `name` is a column or a counter."""
  prefix = '$store$_' if name in COLUMNS else ''
  return f'{prefix}{name}_ckpt.{suffix}.gz'


def suffix_of(name: str) -> int | None:
  """The number of the shard that a file is of; None if it is of no shard."""
  match = _FILE_PATTERN.fullmatch(name)
  return int(match['suffix']) if match else None


def what_of(name: str) -> str:
  """The column or counter that a file of the format is named after."""
  match = _FILE_PATTERN.fullmatch(name)
  return match['name'].removeprefix('$store$_') if match else ''


# `add_count` last: a shard is complete once it exists (see `ShardWriter`).
FILES = (*COLUMNS, 'invalid_range', 'add_count')


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


def time_order(add_count: int, capacity: int) -> np.ndarray:
  """Ring positions, oldest first, of the rows that a ring holds.

  A ring that has wrapped is whole and starts at its cursor; one that has not ends
  there, and what lies beyond is stale.

  Returns:
    int64 (n,).
  """
  cursor = add_count % capacity
  if add_count < capacity:
    return np.arange(cursor)
  return np.roll(np.arange(capacity), -cursor)


def list_suffixes(
  data_dir: str, complete: bool = True, skip_incomplete: bool = False
) -> list[int]:
  """The numbers of the shards in a directory, ascending.

  Args:
    data_dir: the directory.
    complete: whether to insist on shards, and on all files of each.
    skip_incomplete: whether to leave out shards that lack a file, with a
      warning, rather than fail.

  Raises:
    ValueError: if the directory does not exist or holds no shard (the message
      lists what was found and the usual causes), or if a shard lacks a file.
  """
  names = list_directory(data_dir)
  found = collections.defaultdict(set)
  for name in names:
    if match := _FILE_PATTERN.fullmatch(name):
      found[int(match['suffix'])].add(name)
  if not complete:
    return sorted(found)
  if not found:
    raise ValueError(_explain_no_shards(data_dir, names))
  whole = []
  for suffix, present in sorted(found.items()):
    missing = {file_name(name, suffix) for name in FILES} - present
    if not missing:
      whole.append(suffix)
      continue
    message = (
      f'Shard {suffix} in {data_dir} is incomplete: missing '
      f'{", ".join(sorted(missing))}.'
    )
    if not skip_incomplete:
      raise ValueError(message)
    logging.getLogger('absl').warning('%s It is not used.', message)
  if not whole:
    raise ValueError(f'Every shard in {data_dir} is incomplete.')
  return whole


def _explain_no_shards(data_dir: str, names: list[str]) -> str:
  """Says what is there instead of shards, and which mistake that looks like."""
  if 'replay_logs' in names:
    cause = f'its replay_logs folder may be meant: {data_dir}/replay_logs'
  elif os.path.basename(os.path.normpath(data_dir)) == 'replay_logs':
    cause = (
      'the folder is there but empty of shards; was the download finished?'
    )
  elif names and all(name.isdigit() for name in names):
    cause = f'this is a game, its runs are {", ".join(sorted(names, key=int))}'
  else:
    cause = 'a shard is a set of files like $store$_observation_ckpt.0.gz'
  listing = ', '.join(sorted(names)[:8]) + (', ...' if len(names) > 8 else '')
  return f'No shards in {data_dir} (found: {listing or "nothing"}): {cause}.'


def replay_logs_dir(run_dir: str) -> str:
  """The folder of shards of a run, given as the run's directory.

  Args:
    run_dir: what `--replay_dir` takes, e.g. `$DATA_DIR/Pong/1`.

  Raises:
    ValueError: if there are no shards where they should be; the usual mistakes
      (the game's directory, the `replay_logs` folder itself) are named.
  """
  names = list_directory(run_dir)
  if 'replay_logs' in names:
    logs = os.path.join(run_dir, 'replay_logs')
    list_suffixes(logs)
    return logs
  if any(_FILE_PATTERN.fullmatch(name) for name in names):
    parent = os.path.dirname(os.path.normpath(run_dir)) or '.'
    raise ValueError(
      f'{run_dir} holds the shards themselves; give the run directory above '
      f'its replay_logs folder ({parent}).'
    )
  runs = sorted(name for name in names if name.isdigit())
  if runs:
    raise ValueError(
      f'{run_dir} is a game directory with runs {", ".join(runs)}; choose '
      f'one, e.g. {os.path.join(run_dir, runs[0])}.'
    )
  listing = ', '.join(sorted(names)[:8]) + (', ...' if len(names) > 8 else '')
  raise ValueError(
    f'{run_dir} has no replay_logs folder (found: {listing or "nothing"}); '
    'give a run directory, <root>/<Game>/<run>.'
  )


def read_shard(
  data_dir: str,
  suffix: int,
  columns: tuple[str, ...] = COLUMNS,
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
    path = os.path.join(data_dir, file_name(name, suffix))
    arrays[name] = array = read_array(path)
    rows = len(arrays['terminal']) if arrays['terminal'].ndim else 0
    check_column(path, name, array.shape, array.dtype, rows)
  rows_on_disk = read_header(
    os.path.join(data_dir, file_name('terminal', suffix))
  ).shape[0]
  return Shard(suffix, arrays, add_count, rows_on_disk)


@dataclasses.dataclass(frozen=True)
class Placement:
  """Which rows of a shard belong to the run, and whether they follow on.

  In time order they are at ring positions `(start + j) % capacity`, `j < rows`.

  Attributes:
    suffix: the number of the shard.
    capacity: rows of its ring.
    start: ring position of its oldest row that no shard before it has.
    rows: how many it adds to the run; 0 if it only repeats.
    follows: whether its oldest row comes right after the last one of the shard
      before it. If not, no transition may cross the seam.
  """

  suffix: int
  capacity: int
  start: int
  rows: int
  follows: bool


def stitch(
  suffixes: Sequence[int], add_counts: Sequence[int], capacities: Sequence[int]
) -> tuple[list[Placement], list[str]]:
  """Lays the shards of a run end to end, in time order.

  A shard whose ring has wrapped holds rows `[add_count - capacity, add_count)`
  of the run. The last shard's counter may have started over: it is the cursor
  then, and the shard follows on from one that was dumped at `capacity - 1`.

  Args:
    suffixes: shards of one run, ascending.
    add_counts: of each.
    capacities: rows of the ring of each.

  Returns:
    A placement for each shard; the rows that are missing between neighbours, or
    there twice, a line each.

  Raises:
    ValueError: if these cannot be shards of one run.
  """
  placements: list[Placement] = []
  problems = []
  end = 0  # run row after the last one placed
  before = None
  for i, (suffix, count, capacity) in enumerate(
    zip(suffixes, add_counts, capacities, strict=True)
  ):
    cursor, begin = count % capacity, max(0, count - capacity)
    start, rows, follows = (
      cursor if count >= capacity else 0,
      count - begin,
      False,
    )
    if before is not None:
      if capacity != capacities[i - 1]:
        raise ValueError(
          f'shards {before} and {suffix} have {capacities[i - 1]} and '
          f'{capacity} rows: are these two runs in one directory?'
        )
      neighbours = suffix == before + 1
      restarted = count < capacity and count < end
      if restarted and i == len(suffixes) - 1:
        if neighbours and end % capacity == capacity - 1:
          start, rows, follows = capacity - 1, count + 1, True
      elif count < end:
        raise ValueError(
          f'add_count falls from {add_counts[i - 1]} in shard {before} to '
          f'{count} in shard {suffix}: are these two runs in one directory?'
        )
      elif begin > end:
        if neighbours:
          problems.append(
            f'{begin - end} rows are missing between shards {before} and '
            f'{suffix} (add_count is {add_counts[i - 1]} and {count}, the ring '
            f'has {capacity} rows)'
          )
      else:
        again = end - begin
        if again:
          problems.append(
            f'shard {suffix} repeats {again} rows of shard {before} (add_count '
            f'is {add_counts[i - 1]} and {count}); they are used once'
          )
        start, rows, follows = (start + again) % capacity, rows - again, True
    placements.append(Placement(suffix, capacity, start, rows, follows))
    end, before = count, suffix
  return placements, problems


def find_missing(suffixes: Sequence[int]) -> list[str]:
  """Says which numbers are missing between those of shards, a line each."""
  return [
    f'no shard between {a} and {b}'
    for a, b in itertools.pairwise(suffixes)
    if b != a + 1
  ]


def place(
  data_dir: str, suffixes: Sequence[int]
) -> tuple[list[Placement], list[str]]:
  """Reads the counters of shards and stitches them; see `stitch`.

  Args:
    data_dir: the directory of the files.
    suffixes: shards in it, ascending.

  Raises:
    ValueError: if a file cannot be read, or these are not of one run.
  """
  counts, capacities = [], []
  for suffix in suffixes:
    counts.append(read_add_count(data_dir, suffix))
    path = os.path.join(data_dir, file_name('terminal', suffix))
    capacities.append(read_header(path).shape[0])
    if not capacities[-1]:
      raise ValueError(f'{path} has no rows.')
  try:
    placements, problems = stitch(suffixes, counts, capacities)
  except ValueError as error:
    raise ValueError(f'{data_dir}: {error}') from None
  problems = find_missing(suffixes) + problems
  return placements, [f'{data_dir}: {problem}.' for problem in problems]


def read_add_count(data_dir: str, suffix: int) -> int:
  """Rows that were added when a shard was dumped; the cursor in a final one.

  Raises:
    ValueError: if the file is missing or damaged, or holds something else.
  """
  path = os.path.join(data_dir, file_name('add_count', suffix))
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


def list_directory(path: str) -> list[str]:
  """Names in a directory, local or remote.

  Raises:
    ValueError: if it cannot be listed.
  """
  if files.is_remote(path):
    with files.remote_errors(path) as tf:
      if not tf.io.gfile.isdir(path):
        raise ValueError(f'{path} is not a directory.')
      return [name.rstrip('/') for name in tf.io.gfile.listdir(path)]
  try:
    return os.listdir(path)
  except OSError as error:
    raise ValueError(f'{path} cannot be listed: {error.strerror}.') from error


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
    os.makedirs(os.path.join(directory, PARTIAL), exist_ok=True)
    self._streams = {}
    for name in COLUMNS:
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
    os.makedirs(os.path.join(directory, PARTIAL), exist_ok=True)
    # The reverse of `finish`: first the shard stops being complete.
    for name in reversed(FILES):
      final = os.path.join(directory, file_name(name, suffix))
      if os.path.exists(final):
        if name in COLUMNS:
          os.replace(final, self.partial_path(name))
        else:
          os.remove(final)
    for name in COLUMNS:
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
    return os.path.join(self._directory, PARTIAL, file_name(name, self.suffix))

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
    for name in FILES:
      if name == FILES[-1]:
        files.sync_directory(self._directory)
      paths.append(os.path.join(self._directory, file_name(name, self.suffix)))
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
