"""One shard with its frames compressed, and random access to them.

Rows are kept in ring order, without stale ones, in blocks of `BLOCK_ROWS`. A block
is compressed by LZ4 with a dictionary that the shards of a store share, which it
may refer to as if it came before. LZ4 because it decodes two to three times as fast
as zstd, and with the dictionary to about the same size (`benchmarks/codecs.py`).

On disk a packed shard is two files. `shard-<n>.bin` has the blocks, one after the
other, then the small columns as raw arrays. `shard-<n>.json` says where, and which
files it was made from; it is written last, so a shard with it is whole.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import zstandard
from isal import isal_zlib

from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.dataset.store import lz4_blocks
from batch_rl.utils import files, machine

BLOCK_ROWS = 12
# Of LZ4's twelve: the highest that packs a shard while gzip unpacks it.
_LEVEL = 5
# LZ4 sees 64 KB back: zstd's trainer finds what recurs anywhere, whole frames
# serve backgrounds.
_DICTIONARY_TRAINED_BYTES = 48 << 10
_DICTIONARY_FRAMES_BYTES = 14 << 10
# What a shard keeps of its rows beside the frames.
SMALL_COLUMNS = ('action', 'reward', 'terminal')


@dataclasses.dataclass(frozen=True)
class Columns:
  """All of a shard but its frames.

  Attributes:
    suffix: the number of the shard.
    capacity: rows of its ring.
    add_count: rows added when it was dumped; the cursor in a final shard.
    action: ints (rows,), like the next two in ring order without stale rows.
    reward: int8 if that holds them exactly, else float32 (rows,).
    terminal: bool (rows,).
    frame_shape: of an observation.
    frame_dtype: of an observation.
    sources: `{file name: {'bytes', 'mtime_ns', 'sha256'}}` of the files read.
    digest: identifies actions, rewards and terminals: hex sha256.
  """

  suffix: int
  capacity: int
  add_count: int
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  frame_shape: tuple[int, ...]
  frame_dtype: np.dtype
  sources: Mapping[str, Mapping]
  digest: str = ''

  @property
  def prefix(self) -> int:
    """Rows kept from the start of the ring: those that are not stale."""
    return min(self.add_count, self.capacity)

  @property
  def rows(self) -> int:
    """Rows that are kept.

    The ring's last may follow the prefix: it may be the row that comes before
    the ring's first (see `shard.stitch`).
    """
    return self.prefix + (self.add_count < self.capacity and self.suffix > 0)

  def positions(self, ring: np.ndarray) -> np.ndarray:
    """Where rows of the ring are kept, or -1: int64, shaped as `ring`."""
    ring = np.asarray(ring, np.int64)
    kept = np.where(ring < self.prefix, ring, -1)
    if self.rows > self.prefix:
      kept = np.where(ring == self.capacity - 1, self.rows - 1, kept)
    return kept

  def ring_positions(self, positions: np.ndarray) -> np.ndarray:
    """The inverse of `positions`."""
    if self.rows == self.prefix:
      return positions
    last = positions == self.rows - 1
    return np.where(last, self.capacity - 1, positions)


def _digest(columns: Columns) -> str:
  content = hashlib.sha256()
  for column, dtype in (
    (columns.action, '<i4'),
    (columns.reward, '<f4'),
    (columns.terminal, '<u1'),
  ):
    content.update(np.ascontiguousarray(column, dtype).tobytes())
  return content.hexdigest()


def read_columns(data_dir: str, suffix: int) -> Columns:
  """Reads a shard's counters and small columns.

  Args:
    data_dir: the directory of the shards.
    suffix: the number of the shard.

  Raises:
    ValueError: if a file is missing, damaged, or not of the format.
  """
  arrays, sources = {}, {}
  for name in (*SMALL_COLUMNS, 'add_count', 'invalid_range'):
    file_name = shard_files.file_name(name, suffix)
    path = os.path.join(data_dir, file_name)
    digest = hashlib.sha256()
    stat = files.stat(path)
    arrays[name] = shard_reader.read_array(path, digest=digest)
    sources[file_name] = {**stat, 'sha256': digest.hexdigest()}
  path = os.path.join(data_dir, shard_files.file_name('observation', suffix))
  frames = shard_reader.read_header(path)
  capacity = len(arrays['terminal']) if arrays['terminal'].ndim else 0
  for name in SMALL_COLUMNS:
    shard_reader.check_column(
      os.path.join(data_dir, shard_files.file_name(name, suffix)),
      name,
      arrays[name].shape,
      arrays[name].dtype,
      capacity,
    )
  shard_reader.check_column(
    path, 'observation', frames.shape, frames.dtype, capacity
  )
  add_count = shard_reader.check_add_count(
    os.path.join(data_dir, shard_files.file_name('add_count', suffix)),
    arrays['add_count'],
  )
  columns = Columns(
    suffix,
    capacity,
    add_count,
    arrays['action'],
    arrays['reward'],
    arrays['terminal'],
    frames.shape[1:],
    frames.dtype,
    sources,
  )
  keep = columns.ring_positions(np.arange(columns.rows))
  columns = dataclasses.replace(
    columns,
    action=_narrow(columns.action[keep], np.uint8),
    reward=_narrow(columns.reward[keep], np.int8),
    terminal=columns.terminal[keep] != 0,
  )
  return dataclasses.replace(columns, digest=_digest(columns))


def _narrow(column: np.ndarray, dtype) -> np.ndarray:
  """The column with a smaller dtype, if no value changes."""
  info = np.iinfo(dtype)
  if not np.all((column >= info.min) & (column <= info.max)):  # NaN is neither
    return column
  narrow = column.astype(dtype)
  return narrow if np.array_equal(narrow, column) else column


@dataclasses.dataclass(frozen=True)
class PackedShard:
  """A shard with its frames compressed.

  Attributes:
    columns: the rest of it.
    blocks: the compressed frames, uint8 (bytes,).
    offsets: unsigned (blocks + 1,); block b is `blocks[offsets[b]:offsets[b + 1]]`.
    padding: all-zero rows at the start of its episodes (at most 3).
    zero_rows: which of its possibly first rows are all zero: ring positions.
  """

  columns: Columns
  blocks: np.ndarray
  offsets: np.ndarray
  padding: int
  zero_rows: frozenset[int]

  def check(self) -> None:
    """Refuses what would have us read elsewhere in memory, or rows in vain.

    Raises:
      ValueError: if offsets and columns do not fit together.
    """
    columns, offsets = self.columns, self.offsets
    rows = columns.rows
    for name in SMALL_COLUMNS:
      if getattr(columns, name).shape != (rows,):
        raise ValueError(f'its {name} is not of {rows} rows')
    if offsets.dtype not in (np.uint32, np.uint64) or (
      offsets.shape != (-(-rows // BLOCK_ROWS) + 1,)
    ):
      raise ValueError('its offsets are not those of its rows')
    if (
      offsets[0] != 0
      or np.any(offsets[1:] < offsets[:-1])
      or offsets[-1] > len(self.blocks)
    ):
      raise ValueError('its offsets are damaged')

  @property
  def nbytes(self) -> int:
    """Bytes in memory or on disk."""
    columns = self.columns
    small = (columns.action, columns.reward, columns.terminal, self.offsets)
    return int(self.offsets[-1]) + sum(column.nbytes for column in small)


def pack(
  data_dir: str,
  columns: Columns,
  compress: Callable[[Any], bytes],
  write: Callable[[bytes], Any],
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
) -> tuple[np.ndarray, int, frozenset[int], Columns]:
  """Compresses the frames of a shard, without ever holding more than a few MB.

  LZ4 and zlib release the interpreter's lock, so threads use all cores.

  Args:
    data_dir: the directory of the shards.
    columns: of the shard.
    compress: makes a block; see `compressor`.
    write: takes the compressed blocks, in order.
    pool: compresses.
    progress: called with numbers of rows read.

  Returns:
    Offsets of the blocks, padding and zero rows (see `PackedShard`), and the
    columns with the source of the frames added.

  Raises:
    ValueError: if the shard is damaged, or changed since its columns were read.
  """
  name = shard_files.file_name('observation', columns.suffix)
  path = os.path.join(data_dir, name)
  digest = hashlib.sha256()
  stat = files.stat(path)
  probe = _ZeroRows(columns)
  sizes: list[int] = []
  waiting: collections.deque = collections.deque()

  def drain(limit: int) -> None:
    while len(waiting) > limit:
      for block in waiting.popleft().result():
        sizes.append(len(block))
        write(block)

  for start, rows in _kept_rows(path, columns, digest, progress):
    probe.see(start, rows)
    waiting.append(pool.submit(_compress, rows, compress))
    drain(2 * machine.num_cpus())
  drain(0)
  offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.uint64)])
  small = offsets[-1] < 1 << 32
  columns = dataclasses.replace(
    columns,
    sources={
      **columns.sources,
      name: {**stat, 'sha256': digest.hexdigest()},
    },
  )
  return (
    offsets.astype(np.uint32 if small else np.uint64),
    probe.padding(),
    probe.zero_rows(),
    columns,
  )


def compressor(dictionary: bytes) -> Callable[[Any], bytes]:
  """Returns what compresses blocks with a store's dictionary."""
  return lz4_blocks.compressor(dictionary, _LEVEL)


def _kept_rows(
  path: str, columns: Columns, digest: Any, progress: Callable[[int], None]
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields `(position, rows)`, positions multiples of the block, no stale rows."""
  prefix, capacity = columns.prefix, columns.capacity
  last_is_apart = columns.rows > prefix
  tail_at, tail = 0, None  # an incomplete block, for the last row to join
  for start, chunk in shard_reader.iterate_rows(
    path, digest=digest, multiple=BLOCK_ROWS
  ):
    kept = chunk[: max(0, prefix - start)]
    if last_is_apart and start + len(kept) >= prefix and len(kept):
      tail_at = start + len(kept) - len(kept) % BLOCK_ROWS
      tail = kept[len(kept) - len(kept) % BLOCK_ROWS :].copy()
      kept = kept[: tail_at - start]
    if len(kept):
      yield start, kept
    if last_is_apart and start + len(chunk) == capacity:
      last = chunk[-1:]
      yield tail_at, last if tail is None else np.concatenate([tail, last])
    progress(len(chunk))


def _compress(
  rows: np.ndarray, compress: Callable[[Any], bytes]
) -> list[bytes]:
  data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
  size = BLOCK_ROWS * rows[0].nbytes
  return [compress(data[at : at + size]) for at in range(0, len(data), size)]


class _ZeroRows:
  """Finds out, as frames pass by, which rows that may be padding are all zero."""

  def __init__(self, columns: Columns):
    self._columns = columns
    order = columns.positions(
      stitching.time_order(columns.add_count, columns.capacity)
    )
    ends = np.flatnonzero(columns.terminal[order][:-3])[:1000]
    # (episodes, 3) positions of the rows after an end.
    self._after = order[ends[:, None] + np.arange(1, 4)]
    first = np.concatenate([np.arange(3), order[:3], [columns.rows - 1]])
    self._asked = np.unique(np.concatenate([self._after.ravel(), first]))
    self._zero: set[int] = set()
    self._first = set(first.tolist())

  def see(self, start: int, rows: np.ndarray) -> None:
    low, high = np.searchsorted(self._asked, (start, start + len(rows)))
    for position in self._asked[low:high].tolist():
      if not rows[position - start].any():
        self._zero.add(position)

  def padding(self) -> int:
    for count in (3, 2, 1):
      if self._zero.issuperset(self._after[:, :count].ravel().tolist()):
        return count
    return 0

  def zero_rows(self) -> frozenset[int]:
    positions = np.array(sorted(self._zero & self._first), np.int64)
    return frozenset(self._columns.ring_positions(positions).tolist())


def train_dictionary(runs: list[np.ndarray]) -> bytes:
  """Makes the dictionary of a store, at most 62 KB.

  Args:
    runs: consecutive frames from several places, each (rows, *frame_shape).

  Returns:
    Bytes; none if frames are too few or too large to gain from it.
  """
  frames = np.concatenate([run.reshape(len(run), -1) for run in runs])
  frames = np.ascontiguousarray(frames).view(np.uint8)
  frames = frames[frames.any(axis=1)]
  size = frames.shape[1]
  if len(frames) < 200 or size * BLOCK_ROWS > 1 << 20:
    return b''
  random = np.random.default_rng(0)
  most = len(frames) - BLOCK_ROWS
  starts = np.sort(random.choice(most, min(most, 500), False))
  samples: list = [frames[s : s + BLOCK_ROWS].tobytes() for s in starts]
  try:
    trained = zstandard.train_dictionary(
      _DICTIONARY_TRAINED_BYTES, samples, k=256, d=8
    ).as_bytes()
  except zstandard.ZstdError:
    trained = b''  # nothing recurs
  count = _DICTIONARY_FRAMES_BYTES // size
  return trained + b''.join(
    frame.tobytes() for frame in _typical(frames, count, random)
  )


def _typical(
  frames: np.ndarray, count: int, random: np.random.Generator
) -> list[np.ndarray]:
  """Chooses frames such that any frame is like one of them, greedily.

  What LZ4 pays for is the number of stretches in which two frames differ.
  """
  candidates = frames[random.choice(len(frames), 60)]
  cost = np.empty((len(candidates), len(candidates)))
  for i, candidate in enumerate(candidates):
    differs = candidates != candidate
    cost[i] = np.count_nonzero(differs[:, 1:] > differs[:, :-1], axis=1)
  chosen: list[int] = []
  best = np.full(len(candidates), np.inf)
  for _ in range(count):
    chosen.append(int(np.minimum(best, cost).sum(axis=1).argmin()))
    best = np.minimum(best, cost[chosen[-1]])
  # The most useful one last: blocks refer to what is near at no more cost, and
  # what is first falls out of reach at a block's end.
  return [candidates[i] for i in reversed(chosen)]


def paths(directory: str, suffix: int) -> tuple[str, str]:
  """The two files of a packed shard: `.bin` and `.json`."""
  stem = os.path.join(directory, f'shard-{suffix}')
  return f'{stem}.bin', f'{stem}.json'


def pack_to_memory(
  data_dir: str,
  columns: Columns,
  compress: Callable[[Any], bytes],
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
) -> PackedShard:
  """Packs a shard into memory; see `pack`."""
  memory = _Memory()
  offsets, padding, zero_rows, columns = pack(
    data_dir, columns, compress, memory.write, pool, progress
  )
  whole = memory.finish()
  packed = PackedShard(columns, whole, offsets, padding, zero_rows)
  packed.check()
  return packed


class _Memory:
  """Grows without a copy, and leaves nothing behind in the heap."""

  def __init__(self):
    self._size = 0
    self._map = mmap.mmap(
      -1, 1 << 24, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )

  def write(self, data: bytes) -> None:
    end = self._size + len(data)
    if end > len(self._map):
      # What is not written to takes no memory.
      self._map.resize(2 * len(self._map))
    self._map[self._size : end] = data
    self._size = end

  def finish(self) -> np.ndarray:
    self._map.resize(max(self._size, 1))
    return np.frombuffer(self._map, np.uint8)[: self._size]


def pack_to_disk(
  data_dir: str,
  columns: Columns,
  dictionary: bytes,
  compress: Callable[[Any], bytes],
  directory: str,
  pool: concurrent.futures.ThreadPoolExecutor,
  progress: Callable[[int], None] = lambda rows: None,
) -> PackedShard:
  """Packs a shard into two files of a directory, which appear when whole.

  Raises:
    ValueError: see `pack`.
    OSError: if the directory is full or cannot be written; nothing is left.
  """
  binary, description = paths(directory, columns.suffix)
  temporary = binary + '.tmp'
  content = hashlib.sha256()
  try:
    with open(temporary, 'wb') as file:

      def write(data) -> None:
        content.update(data)
        file.write(data)

      offsets, padding, zero_rows, columns = pack(
        data_dir, columns, compress, write, pool, progress
      )
      sections, checks = {}, {}
      for name, column in (
        ('offsets', offsets),
        *((name, getattr(columns, name)) for name in SMALL_COLUMNS),
      ):
        write(bytes(-file.tell() % 64))
        sections[name] = [file.tell(), column.dtype.str, len(column)]
        write(np.ascontiguousarray(column).data)
        checks[name] = isal_zlib.crc32(np.ascontiguousarray(column))
      size = file.tell()
      file.flush()
      os.fsync(file.fileno())
    # A shard is never whole with the parts of two.
    if os.path.exists(description):
      os.remove(description)
      files.sync_directory(directory)
    os.replace(temporary, binary)
  except BaseException:
    if os.path.exists(temporary):
      os.remove(temporary)
    raise
  files.write_json(
    description,
    files.with_hash(
      {
        'suffix': columns.suffix,
        'capacity': columns.capacity,
        'add_count': columns.add_count,
        'frame_shape': list(columns.frame_shape),
        'frame_dtype': columns.frame_dtype.str,
        'dictionary': hashlib.sha256(dictionary).hexdigest(),
        'block_rows': BLOCK_ROWS,
        'padding': padding,
        'zero_rows': sorted(zero_rows),
        'sections': sections,
        'crc32': checks,
        'digest': columns.digest,
        'bytes': size,
        'sha256': content.hexdigest(),
        'sources': columns.sources,
      }
    ),
  )
  return open_packed(directory, columns.suffix, dictionary)


def open_packed(
  directory: str, suffix: int, dictionary: bytes, preload: bool = False
) -> PackedShard:
  """Opens a packed shard on disk.

  Mapped, its file must not be cut off while it is in use: the system would end
  the process.

  Args:
    directory: of the store.
    suffix: the number of the shard.
    dictionary: of the store.
    preload: whether to read it into memory, rather than map it.

  Raises:
    ValueError: if it is missing, incomplete, or of another store.
  """
  binary, description = paths(directory, suffix)
  try:
    about = _describe(description)
    if about['dictionary'] != hashlib.sha256(dictionary).hexdigest():
      raise ValueError('it was packed with another dictionary')
    if about['block_rows'] != BLOCK_ROWS:
      raise ValueError(f'it has {about["block_rows"]} rows in a block')
    size = os.path.getsize(binary)
    if size != about['bytes']:
      raise ValueError(f'it has {size} bytes in place of {about["bytes"]}')
    with open(binary, 'rb') as file:
      column = {
        name: np.fromfile(file, dtype, count, offset=at - file.seek(0))
        for name, (at, dtype, count) in about['sections'].items()
      }
      data: Any
      if preload:
        file.seek(0)
        data = file.read()
      else:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        # Windows are drawn from all over the file.
        data.madvise(mmap.MADV_RANDOM)
    for name, check in about['crc32'].items():
      if isal_zlib.crc32(column[name]) != check:
        raise ValueError(f'its {name} is damaged')
    columns = Columns(
      about['suffix'],
      about['capacity'],
      about['add_count'],
      column['action'],
      column['reward'],
      column['terminal'],
      tuple(about['frame_shape']),
      np.dtype(about['frame_dtype']),
      about['sources'],
      about['digest'],
    )
    packed = PackedShard(
      columns,
      np.frombuffer(data, np.uint8),
      column['offsets'],
      about['padding'],
      frozenset(about['zero_rows']),
    )
    packed.check()
    return packed
  except (OSError, KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'{binary} cannot be used ({error}); delete it and {description} to have '
      'it made again.'
    ) from error


def _describe(description: str) -> dict[str, Any]:
  """Reads the description of a packed shard.

  Raises:
    ValueError: if it is missing or damaged.
  """
  about = files.read_json(description)
  if about is None:
    raise ValueError(f'there is no {description}')
  return files.check_hash(description, about)


def verify_packed(directory: str, suffix: int) -> str | None:
  """Reads a packed shard on disk and compares it with its hash.

  Returns:
    What is wrong, or None.
  """
  binary, description = paths(directory, suffix)
  try:
    if files.sha256(binary) != _describe(description)['sha256']:
      return f'{binary} is damaged: its hash is not that in {description}.'
  except (OSError, ValueError) as error:
    return f'{binary} cannot be verified: {error}'
  return None


def is_fresh(packed: PackedShard, data_dir: str, directory: str) -> bool:
  """Whether a packed shard was made from the shard that is there now.

  Sizes and times decide; where only a time differs (a copy, a download), hashes,
  and then the new time is noted for the next time.

  Args:
    packed: the packed shard.
    data_dir: the directory of the shards.
    directory: of the store.

  Raises:
    ValueError: if a file of the shard cannot be read.
  """
  now = {}
  for name, source in packed.columns.sources.items():
    path = os.path.join(data_dir, name)
    now[name] = {**source, **files.stat(path)}
    if now[name]['bytes'] != source['bytes']:
      return False
    if now[name] != source and files.sha256(path) != source['sha256']:
      return False
  if now != packed.columns.sources:
    description = paths(directory, packed.columns.suffix)[1]
    about = {**_describe(description), 'sources': now}
    with contextlib.suppress(OSError):  # a cache that is only read
      files.write_json(description, files.with_hash(about))
  return True
