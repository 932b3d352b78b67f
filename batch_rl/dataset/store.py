"""A whole run with its frames compressed, and random access to them.

A store holds the shards of a run, packed (`packed_shard.py`) and stitched in time
order, in memory or in a directory that is memory-mapped. Rows of the run are
numbered from 0; `windows` decodes stacks of consecutive frames.

Shards are packed in the background, one after the other, with all cores. The small
columns of all shards are read first, so what the run consists of is known at once.
A directory may be a cache beside the shards, or stand by itself (`convert`):

  store.json   what the shards have in common
  dictionary   for the compression
  shard-0.bin, shard-0.json, ...
  manifest.json   of the run, if it has one
"""

import concurrent.futures
import ctypes
import dataclasses
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psutil

from batch_rl.dataset import files, lz4_blocks, packed_shard, shard

_ABOUT = 'store.json'
_DICTIONARY = 'dictionary'
_VERSION = 1
_log = logging.getLogger('absl')


class Store:
  """The shards of a run, compressed.

  Args:
    data_dir: the directory of the shards (`<run>/replay_logs`), or a store.
    suffixes: numbers of the shards to use, ascending; None for all.
    directory: where packed shards are kept, for other runs and processes too;
      None for memory only.
    max_rows: if given, only so many rows from the start of each shard's ring are
      used.
    first: the shards to pack first.
    skip_damaged: whether to do without damaged shards, with a warning.
    progress: called with numbers of rows that were packed.

  Attributes:
    asked_for: numbers of the shards that were asked for.
    suffixes: of those that are used, ascending.
    placements: where the rows of each shard belong (`shard.Placement`).
    starts: int64 (shards + 1,), the run's row at which each shard starts.
    action: ints (rows,), in time order like the next one.
    reward: (rows,).
    ends: int64 (episodes,), rows that end an episode, ascending.
    frame_shape: of an observation.
    frame_dtype: of an observation.

  Raises:
    ValueError: if there is no such shard, a file is damaged, or these are not
      shards of one run.
  """

  def __init__(
    self,
    data_dir: str,
    suffixes: Sequence[int] | None = None,
    directory: str | None = None,
    max_rows: int | None = None,
    first: Iterable[int] = (),
    skip_damaged: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
  ):
    self.data_dir = data_dir
    self._max_rows = max_rows
    self._skip_damaged = skip_damaged
    self._progress = progress
    self._dictionary = b''
    self._changed = threading.Condition()
    self._error: Exception | None = None
    self._closed = False
    self._damaged: frozenset[int] = frozenset()  # found while packing
    self._stands_alone = is_store(data_dir)
    self._directory = data_dir if self._stands_alone else directory
    if self._directory:
      self._open_directory()
    self._place(suffixes)
    self._preferred = list(first)
    missing = [s for s in self.suffixes if s not in self.packed]
    self._thread = threading.Thread(
      target=self._pack_all, args=(missing,), name='store', daemon=True
    )
    if missing:
      self._thread.start()

  # --- what there is ---------------------------------------------------------

  def _place(self, suffixes: Sequence[int] | None) -> None:
    """Reads all small columns, and stitches the shards."""
    there = list_shards(self.data_dir, self._skip_damaged)
    chosen = there if suffixes is None else list(suffixes)
    self.asked_for = chosen
    for suffix in chosen:
      if suffix not in there:
        raise ValueError(f'There is no shard {suffix} in {self.data_dir}.')
    with concurrent.futures.ThreadPoolExecutor(files.num_cpus()) as pool:
      opened = list(pool.map(self._open_shard, chosen))
    found = [pair for pair in opened if pair is not None]
    if not found:
      raise ValueError(f'Every shard in {self.data_dir} is damaged.')
    columns = [pair[0] for pair in found]
    self._packed = [pair[1] for pair in found]
    self.suffixes = [c.suffix for c in columns]
    self._index = {suffix: i for i, suffix in enumerate(self.suffixes)}
    self._check_alike(columns)
    try:
      self.placements, problems = shard.stitch(
        self.suffixes,
        [c.add_count for c in columns],
        [c.capacity for c in columns],
      )
    except ValueError as error:
      raise ValueError(f'{self.data_dir}: {error}') from None
    between = [s for s in there if chosen[0] <= s <= chosen[-1]]
    for problem in shard.find_missing(between) + problems:
      _log.warning('%s: %s.', self.data_dir, problem)
    if self._max_rows is not None:
      self.placements = [self._cut(p) for p in self.placements]
    self.frame_shape = columns[0].frame_shape
    self.frame_dtype = columns[0].frame_dtype
    self._frame_bytes = self.frame_dtype.itemsize * int(
      np.prod(self.frame_shape, dtype=np.int64)
    )
    self._columns = columns
    rows = [p.rows for p in self.placements]
    self.starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
    # A row at time t within its shard is kept at (t + _first) % _rows_kept.
    self._first = np.array(
      [
        int(c.positions(np.array(p.start))) if p.rows else 0
        for c, p in zip(columns, self.placements, strict=True)
      ]
    )
    self._rows_kept = np.array([c.rows for c in columns])
    self.action = np.concatenate(self._in_time(c.action for c in columns))
    self.reward = np.concatenate(self._in_time(c.reward for c in columns))
    ends = self._in_time(c.terminal for c in columns)
    self.ends = np.concatenate(
      [at + np.flatnonzero(e) for at, e in zip(self.starts, ends, strict=False)]
    )
    self._digests = [c.digest for c in columns]
    # Now all in time order, they need not be there twice.
    self._columns = [_without_arrays(c) for c in columns]
    self._ring_start = np.array([p.start for p in self.placements])
    self._capacities = np.array([p.capacity for p in self.placements])
    counts = -(-self._rows_kept // packed_shard.BLOCK_ROWS)
    # Block b of shard i is at self._offsets[self._first_block[i] + b].
    self._first_block = np.concatenate([[0], np.cumsum(counts + 1)])
    self._offsets = np.zeros(self._first_block[-1], np.uint32)
    self._address = [0] * len(self._packed)  # of their blocks; 0 if not packed
    self._decoders: dict[bytes, Any] = {}
    for i, packed in enumerate(self._packed):
      if packed is not None:
        self._add(i, packed)

  def _in_time(self, columns: Iterable[np.ndarray]) -> list[np.ndarray]:
    """The rows of each shard that are part of the run, oldest first."""
    parts = []
    for column, first, placement in zip(
      columns, self._first, self.placements, strict=True
    ):
      rows = placement.rows
      wrapped = column[: max(0, first + rows - len(column))]
      parts.append(np.concatenate([column[first : first + rows], wrapped]))
    return parts

  def _open_shard(self, suffix):
    """The columns of a shard, and the shard if it is packed already."""
    try:
      if self._stands_alone:
        packed = packed_shard.open_packed(
          self._directory, suffix, self._dictionary
        )
        return packed.columns, packed
      packed = self._find_packed(suffix)
      if packed is not None:
        return packed.columns, packed
      return packed_shard.read_columns(self.data_dir, suffix), None
    except ValueError as error:
      if not self._skip_damaged:
        raise
      _log.warning('Shard %d is not used: %s', suffix, error)
      return None

  def _find_packed(self, suffix):
    """A shard from the cache, if it is there and still that of `data_dir`."""
    if not self._directory or not self._dictionary_is_there():
      return None
    description = packed_shard.paths(self._directory, suffix)[1]
    if not os.path.exists(description):
      return None
    try:
      packed = packed_shard.open_packed(
        self._directory, suffix, self._dictionary
      )
    except ValueError as error:
      _log.warning('Shard %d is packed again: %s', suffix, error)
      return None
    if packed_shard.is_fresh(packed, self.data_dir):
      return packed
    _log.warning(
      'Shard %d in %s has changed and is packed again.', suffix, self.data_dir
    )
    return None

  def _check_alike(self, columns: Sequence[packed_shard.Columns]) -> None:
    one = columns[0]
    for other in columns:
      if (other.frame_shape, other.frame_dtype) != (
        one.frame_shape,
        one.frame_dtype,
      ):
        raise ValueError(
          f'{self.data_dir}: observations are {one.frame_dtype} '
          f'{one.frame_shape} in shard {one.suffix} and {other.frame_dtype} '
          f'{other.frame_shape} in shard {other.suffix}: are these two runs in '
          'one directory?'
        )

  def _cut(self, placement: shard.Placement) -> shard.Placement:
    """Only rows before `max_rows` of the ring, as far as they are in order."""
    capacity, rows = placement.capacity, placement.rows
    if capacity <= self._max_rows or not rows:
      return placement
    end = (placement.start + rows - 1) % capacity + 1
    start = placement.start if placement.start < end else 0
    rows = max(0, min(end, self._max_rows) - start)
    return dataclasses.replace(placement, start=start, rows=rows, follows=False)

  @property
  def rows(self) -> int:
    """Rows of the run, padding included."""
    return int(self.starts[-1])

  @property
  def nbytes(self) -> int:
    """Bytes of what is packed and of all columns, in memory or mapped."""
    blocks = sum(len(p.blocks) for p in self._packed if p is not None)
    columns = (self.action, self.reward, self.ends, self._offsets)
    return blocks + sum(c.nbytes for c in columns) + len(self._dictionary)

  def digest(self, suffix: int) -> str:
    """Identifies a shard's actions, rewards and terminals: hex sha256."""
    return self._digests[self._index[suffix]]

  def action_range(self) -> tuple[int, int]:
    """The smallest and the largest action of the run; (0, -1) without rows."""
    if not self.rows:
      return 0, -1
    return int(self.action.min()), int(self.action.max())

  # --- what is packed --------------------------------------------------------

  @property
  def packed(self) -> list[int]:
    """Numbers of the shards whose frames are there."""
    return [
      suffix
      for suffix, packed in zip(self.suffixes, self._packed, strict=True)
      if packed is not None
    ]

  @property
  def num_packed(self) -> int:
    """How many shards' frames are there."""
    return len(self._packed) - self._address.count(0)

  def capacity(self, suffix: int) -> int:
    """Rows of a shard's ring, at most `max_rows`."""
    capacity = self._columns[self._index[suffix]].capacity
    return capacity if self._max_rows is None else min(capacity, self._max_rows)

  def add_count(self, suffix: int) -> int:
    """Rows added when a shard was dumped, as far as they are in `capacity`."""
    i = self._index[suffix]
    columns, placement = self._columns[i], self.placements[i]
    if self.capacity(suffix) < columns.capacity:
      return placement.start + placement.rows
    return columns.add_count

  def ring_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in `suffixes`, and rows of those shards' rings, of rows."""
    shard_of = np.searchsorted(self.starts[1:-1], rows, side='right')
    ring = self._ring_start[shard_of] + rows - self.starts[shard_of]
    return shard_of, ring % self._capacities[shard_of]

  def rows_of(self, suffixes: np.ndarray, ring: np.ndarray) -> np.ndarray:
    """Rows of the run, or -1: the inverse of `ring_of`, by shard number."""
    i = np.searchsorted(self.suffixes, suffixes)
    within = (ring - self._ring_start[i]) % self._capacities[i]
    there = within < self.starts[i + 1] - self.starts[i]
    return np.where(there, self.starts[i] + within, -1)

  def ring_columns(self, suffix: int) -> 'RingColumns':
    """A shard's columns as arrays in the order of its ring."""
    return RingColumns(self, suffix)

  def padding(self, suffix: int) -> int:
    """All-zero rows at the start of the episodes that begin in a packed shard.

    It is the logger's `stack_size - 1`: three in the DQN Replay Dataset.
    """
    return self._packed[self._index[suffix]].padding

  def lead(self, suffix: int) -> int:
    """Padding rows with which the rows of a packed shard begin."""
    i = self._index[suffix]
    packed, placement = self._packed[i], self.placements[i]
    columns = packed.columns
    wrapped = columns.add_count >= columns.capacity
    oldest = columns.add_count % columns.capacity if wrapped else 0
    if placement.start not in (0, oldest, columns.capacity - 1):
      return packed.padding  # it was not looked at: to be sure
    count = 0
    while (
      count < packed.padding
      and (placement.start + count) % columns.capacity in packed.zero_rows
    ):
      count += 1
    return count

  @property
  def starts_with_run(self) -> bool:
    """Whether row 0 is the first that was ever logged."""
    first = self._columns[0]
    return first.suffix == 0 and first.add_count <= first.capacity

  def first_padding(self) -> int:
    """Padding rows after the first end of an episode, packed or not; at most 3."""
    for end in self.ends.tolist():
      i = int(np.searchsorted(self.starts, end, side='right') - 1)
      if end + 4 > self.starts[i + 1]:
        continue  # look where they are in one shard
      if self._packed[i] is not None:
        frames = self.frames(np.arange(end + 1, end + 4))
      else:
        frames = self._read_frames(i, end + 1, 3)
      zero = ~frames.reshape(3, -1).any(axis=1)
      return int(np.argmin(np.append(zero, False)))
    return 3

  def _read_frames(self, i: int, row: int, count: int) -> np.ndarray:
    """Frames of a shard that is not packed; all but few are read past."""
    placement = self.placements[i]
    start = (placement.start + row - self.starts[i]) % placement.capacity
    name = shard.file_name('observation', self.suffixes[i])
    stop = int(start) + count
    frames = []
    for at, chunk in shard.iterate_rows(
      os.path.join(self.data_dir, name), stop
    ):
      frames.append(chunk[max(0, start - at) :].copy())
    return np.concatenate(frames)

  def prefer(self, suffixes: Iterable[int]) -> None:
    """Packs these shards next."""
    self._preferred = list(suffixes)

  def wait(
    self, suffixes: Iterable[int] | None = None, count: int | None = None
  ) -> None:
    """Waits until shards are packed.

    Args:
      suffixes: which; None for all.
      count: how many of them are enough; None for all.

    Raises:
      ValueError: if one cannot be.
    """
    wanted = set(self.suffixes if suffixes is None else suffixes)
    enough = len(wanted) if count is None else min(count, len(wanted))
    with self._changed:
      while True:
        # With skip_damaged, those that turn out damaged are no longer wanted.
        wanted &= set(self.suffixes) - self._damaged
        if len(wanted.intersection(self.packed)) >= min(enough, len(wanted)):
          break
        self.raise_error()
        if self._closed:
          raise ValueError(f'The store of {self.data_dir} was closed.')
        self._changed.wait()
    self.raise_error()

  def raise_error(self) -> None:
    """Raises what went wrong in the background, if anything did."""
    if self._error is not None:
      raise self._error

  def close(self) -> None:
    """Stops packing; what was packed stays."""
    self._closed = True
    if self._thread.ident is not None:
      self._thread.join()

  def _add(self, i: int, packed: packed_shard.PackedShard) -> None:
    at = self._first_block[i]
    if packed.offsets[-1] > np.iinfo(self._offsets.dtype).max:
      self._offsets = self._offsets.astype(np.uint64)
    self._offsets[at : at + len(packed.offsets)] = packed.offsets
    self._address[i] = packed.blocks.ctypes.data
    self._packed[i] = packed_shard.PackedShard(
      self._columns[i],
      packed.blocks,
      packed.offsets[:0],
      packed.padding,
      packed.zero_rows,
    )

  # --- packing ---------------------------------------------------------------

  def _open_directory(self) -> None:
    """Reads what the shards of a store on disk have in common."""
    about = files.read_json(os.path.join(self._directory, _ABOUT))
    if about is None:
      return
    if about.get('version') != _VERSION:
      raise ValueError(
        f'{self._directory} is a store of version {about.get("version")}, this '
        f'package reads {_VERSION}; delete it to have it made again.'
      )
    with open(os.path.join(self._directory, _DICTIONARY), 'rb') as file:
      self._dictionary = file.read()
    if hashlib.sha256(self._dictionary).hexdigest() != about['dictionary']:
      raise ValueError(
        f'{self._directory}/{_DICTIONARY} is damaged; delete the directory to '
        'have it made again.'
      )

  def _dictionary_is_there(self) -> bool:
    return os.path.exists(os.path.join(self._directory, _ABOUT))

  def _pack_all(self, suffixes: list[int]) -> None:
    """Packs shards, on a thread of its own."""
    try:
      if self._directory is None:
        self._dictionary = self._train_dictionary()
        self._pack_in_turn(suffixes)
      else:
        self._pack_on_disk(suffixes)
    except Exception as error:
      self._error = error
    finally:
      with self._changed:
        self._changed.notify_all()

  def _pack_on_disk(self, suffixes: list[int]) -> None:
    """Packs into the directory, or waits for the process that does."""
    try:
      os.makedirs(self._directory, exist_ok=True)
      lock = self._wait_for_lock(suffixes)
      if lock is None:
        return
      with lock:
        for name in os.listdir(self._directory):
          if name.endswith('.tmp'):
            os.remove(os.path.join(self._directory, name))
        self._begin_directory()
        self._pack_in_turn(self._collect(suffixes))
    except OSError as error:
      raise ValueError(
        f'{self._directory} cannot be written: {error.strerror}; shards that '
        'were packed before are kept.'
      ) from error

  def _wait_for_lock(self, suffixes: list[int]) -> Any:
    """Locks the directory; None if another process packs all that is wanted."""
    path = os.path.join(self._directory, '.lock')
    waiting = False
    while not self._closed:
      lock = files.try_lock(path)
      if lock is not None:
        return lock
      if not waiting:
        holder = files.lock_holder(path)
        _log.info('Replay: %s is being packed by %s.', self.data_dir, holder)
      waiting = True
      self._open_directory()
      suffixes = self._collect(suffixes)
      if not suffixes:
        return None
      time.sleep(0.5)
    return None

  def _begin_directory(self) -> None:
    """Writes what the shards have in common, unless it is there."""
    self._open_directory()
    path = os.path.join(self._directory, _ABOUT)
    about = files.read_json(path)
    if about is None:
      self._dictionary = self._train_dictionary()
      files.write_bytes(
        os.path.join(self._directory, _DICTIONARY), self._dictionary
      )
      about = {
        'version': _VERSION,
        'source': absolute(self.data_dir),
        'dictionary': hashlib.sha256(self._dictionary).hexdigest(),
        'block_rows': packed_shard.BLOCK_ROWS,
        'shards': [],
      }
    manifest = files.read_json(os.path.join(self.data_dir, shard.MANIFEST))
    if manifest:
      files.write_json(os.path.join(self._directory, shard.MANIFEST), manifest)
    about['shards'] = sorted({*about['shards'], *self.suffixes})
    files.write_json(path, about)

  def _collect(self, suffixes: list[int]) -> list[int]:
    """Takes what is packed on disk by now; returns the rest."""
    rest = []
    for suffix in suffixes:
      packed = self._find_packed(suffix)
      if packed is None:
        rest.append(suffix)
      else:
        self._arrive(suffix, packed)
    return rest

  def _arrive(self, suffix: int, packed: packed_shard.PackedShard) -> None:
    with self._changed:
      self._add(self._index[suffix], packed)
      self._changed.notify_all()

  def _pack_in_turn(self, suffixes: list[int]) -> None:
    started, done = time.monotonic(), 0
    total = sum(self._rows_kept[self._index[s]] for s in suffixes)
    with concurrent.futures.ThreadPoolExecutor(
      files.num_cpus(), thread_name_prefix='pack'
    ) as pool:
      left, count = list(suffixes), len(suffixes)
      while left and not self._closed:
        preferred = [s for s in self._preferred if s in left]
        suffix = (preferred or left)[0]
        left.remove(suffix)
        try:
          packed = self._pack(suffix, pool)
        except ValueError as error:
          if not self._skip_damaged:
            raise
          _log.warning('Shard %d is not used: %s', suffix, error)
          with self._changed:
            self._damaged = self._damaged | {suffix}
            self._changed.notify_all()
          continue
        self._arrive(suffix, packed)
        done += packed.columns.rows
        seconds = time.monotonic() - started
        _log.info(
          'Replay: shard %d packed (%d of %d), %.0f bytes a row, %.2g million '
          'rows/min, %.0f min to go.',
          suffix,
          count - len(left),
          count,
          packed.nbytes / max(packed.columns.rows, 1),
          done / seconds * 60e-6,
          seconds / max(done, 1) * (total - done) / 60,
        )
        self._check_room(total - done)

  def _pack(self, suffix: int, pool) -> packed_shard.PackedShard:
    columns = packed_shard.read_columns(self.data_dir, suffix)
    if columns.digest != self.digest(suffix):
      raise ValueError(
        f'Shard {suffix} in {self.data_dir} has changed since it was opened.'
      )
    if self._directory is None:
      return packed_shard.pack_to_memory(
        self.data_dir, columns, self._dictionary, pool, self._progress
      )
    return packed_shard.pack_to_disk(
      self.data_dir,
      columns,
      self._dictionary,
      self._directory,
      pool,
      self._progress,
    )

  def _check_room(self, rows_to_go: int) -> None:
    """Refuses early what would not fit."""
    rows = sum(
      r
      for r, p in zip(self._rows_kept, self._packed, strict=True)
      if p is not None
    )
    needed = self.nbytes / max(rows, 1) * rows_to_go
    if self._directory is None:
      available = psutil.virtual_memory().available
      where, remedy = 'of memory', 'set FixedReplayBuffer.cache_dir'
    else:
      found = os.statvfs(self._directory)
      available = found.f_bavail * found.f_frsize
      where, remedy = f'in {self._directory}', 'make room'
    if needed > available:
      raise ValueError(
        f'The rest of {self.data_dir} needs {needed / 1e9:.1f} GB {where}, and '
        f'{available / 1e9:.1f} GB are free: {remedy}, or use fewer shards.'
      )

  def _train_dictionary(self) -> bytes:
    """Trains it on the first frames of shards from all of the run."""
    spread = np.linspace(0, len(self.suffixes) - 1, 8).round().astype(int)
    runs = []
    for i in np.unique(spread):
      if not self._rows_kept[i]:
        continue
      name = shard.file_name('observation', self.suffixes[i])
      path = os.path.join(self.data_dir, name)
      # More than padding, or a black screen, of several episodes.
      rows = min(int(self._rows_kept[i]), 1000)
      try:
        runs += [c.copy() for _, c in shard.iterate_rows(path, rows)]
      except ValueError:
        if not self._skip_damaged:
          raise
    return packed_shard.train_dictionary(runs) if runs else b''

  # --- frames ----------------------------------------------------------------

  def windows(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Decodes stacks of consecutive frames.

    Args:
      rows: int64 (n,), the run's row of the first frame of each.
      length: frames in each.

    Returns:
      (n, length, *frame_shape). Rows that the run does not have, or that do not
      follow on from the first, or whose shard is not packed yet, are zero.

    Raises:
      ValueError: if the store is damaged.
    """
    shard_of = np.searchsorted(self.starts[1:-1], rows, side='right')
    within = rows - self.starts[shard_of]
    kept_rows = self._rows_kept[shard_of]
    at = within + self._first[shard_of]
    at -= np.where(at >= kept_rows, kept_rows, 0)
    # In one shard and one stretch of its ring: all but a few in a million.
    plain = (
      (within >= 0)
      & (rows + length <= self.starts[shard_of + 1])
      & (at + length <= kept_rows)
    )
    block, skip = np.divmod(at, packed_shard.BLOCK_ROWS)
    most = (length + packed_shard.BLOCK_ROWS - 2) // packed_shard.BLOCK_ROWS + 2
    table = (self._first_block[shard_of] + block)[:, None] + np.arange(most)
    bounds = self._offsets[np.minimum(table, len(self._offsets) - 1)]
    frame = self._frame_bytes
    wanted, size = length * frame, packed_shard.BLOCK_ROWS * frame
    out = np.empty(len(rows) * wanted, np.uint8)
    scratch = np.empty(size, np.uint8)
    target, spare, decode = out.ctypes.data, scratch.ctypes.data, self._decode()
    copy = ctypes.memmove
    for i, (s, bound, begin, is_plain) in enumerate(
      zip(
        shard_of.tolist(),
        bounds.tolist(),
        (skip * frame).tolist(),
        plain.tolist(),
        strict=True,
      )
    ):
      address = self._address[s]
      if not (is_plain and address):
        window = self._frames_one_by_one(int(rows[i]), length)
        out[i * wanted : (i + 1) * wanted] = np.frombuffer(window, np.uint8)
        target += wanted
        continue
      try:
        end = begin + wanted
        first = min(end, size)
        decode(address + bound[0], bound[1] - bound[0], spare, first)
        copy(target, spare + begin, first - begin)
        target += first - begin
        j = 1
        while end > size:
          end -= size
          part = min(end, size)
          decode(address + bound[j], bound[j + 1] - bound[j], target, part)
          target += part
          j += 1
      except lz4_blocks.DamagedBlock as error:
        raise self._damaged_block(s, error) from error
    return out.view(self.frame_dtype).reshape(
      len(rows), length, *self.frame_shape
    )

  def _decode(self) -> Any:
    """The decoder for the store's dictionary, which may arrive late."""
    decode = self._decoders.get(self._dictionary)
    if decode is None:
      decode = lz4_blocks.decoder(
        self._dictionary, packed_shard.BLOCK_ROWS * self._frame_bytes
      )
      self._decoders[self._dictionary] = decode
    return decode

  def _frames_one_by_one(self, row: int, length: int) -> bytes:
    """A window that crosses a seam, of shards or of a ring."""
    stop = row + length
    for i, placement in enumerate(self.placements):
      # Nothing follows on across a seam where rows are missing.
      if row < self.starts[i] < stop and not placement.follows:
        stop = int(self.starts[i])
    frames = self.frames(np.arange(row, min(stop, self.rows)))
    return frames.tobytes() + bytes((length - len(frames)) * self._frame_bytes)

  def frames(self, rows: np.ndarray) -> np.ndarray:
    """Decodes frames of any rows of the run: (n, *frame_shape).

    Rows that the run does not have, or whose shard is not packed yet, are zero.
    """
    shard_of = np.searchsorted(self.starts[1:-1], rows, side='right')
    kept = self._rows_kept[shard_of]
    within = rows - self.starts[shard_of]
    there = (within >= 0) & (rows < self.rows)
    at = np.where(there, (within + self._first[shard_of]) % kept, -1)
    return self.kept_frames(shard_of, at)

  def kept_frames(self, shard_of: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Decodes frames by shard and position in it.

    Args:
      shard_of: (n,), places in `suffixes`.
      at: (n,), positions (`packed_shard.Columns.positions`); -1 gives zeros.

    Returns:
      (n, *frame_shape).
    """
    out = np.zeros((len(at), self._frame_bytes), np.uint8)
    frame, decode = self._frame_bytes, self._decode()
    scratch = np.empty((packed_shard.BLOCK_ROWS, frame), np.uint8)
    last = None
    for i, (s, position) in enumerate(
      zip(shard_of.tolist(), at.tolist(), strict=True)
    ):
      address = self._address[s]
      if position < 0 or not address:
        continue
      block, skip = divmod(position, packed_shard.BLOCK_ROWS)
      if (s, block) != last:
        start, stop = self._offsets[self._first_block[s] + block :][:2].tolist()
        rows = min(
          packed_shard.BLOCK_ROWS,
          int(self._rows_kept[s]) - block * packed_shard.BLOCK_ROWS,
        )
        try:
          decode(
            address + start, stop - start, scratch.ctypes.data, rows * frame
          )
        except lz4_blocks.DamagedBlock as error:
          raise self._damaged_block(s, error) from error
        last = s, block
      out[i] = scratch[skip]
    return out.view(self.frame_dtype).reshape(len(at), *self.frame_shape)

  def _damaged_block(self, s: int, error: Exception) -> ValueError:
    if self._directory is None:
      return ValueError(
        f'Shard {self.suffixes[s]} is damaged in memory: {error}'
      )
    path = packed_shard.paths(self._directory, self.suffixes[s])[0]
    return ValueError(
      f'{path} is damaged ({error}); delete it to have it made again.'
    )


class RingColumns(Mapping):
  """A shard's columns by name, in the order of its ring; stale rows are zero.

  `observation` is decoded where it is indexed; the others are made when they are
  first asked for.
  """

  def __init__(self, store: Store, suffix: int):
    self._store = store
    self._suffix = suffix
    self._made: dict[str, Any] = {}

  def __iter__(self):
    return iter(shard.COLUMNS)

  def __len__(self) -> int:
    return len(shard.COLUMNS)

  def __getitem__(self, name: str) -> Any:
    if name not in shard.COLUMNS:
      raise KeyError(name)
    if name not in self._made:
      self._made[name] = self._make(name)
    return self._made[name]

  def _make(self, name):
    store = self._store
    if name == 'observation':
      return RingFrames(store, self._suffix)
    rows = store.rows_of(
      np.full(store.capacity(self._suffix), self._suffix),
      np.arange(store.capacity(self._suffix)),
    )
    there = rows >= 0
    if name == 'terminal':
      ends = np.isin(rows, store.ends)
      return (ends & there).astype(np.uint8)
    column = {'action': store.action, 'reward': store.reward}[name]
    dtype = {'action': np.int32, 'reward': np.float32}[name]
    return np.where(there, column[rows], 0).astype(dtype)


class RingFrames:
  """The frames of a shard in the order of its ring, decoded where indexed."""

  def __init__(self, store: Store, suffix: int):
    self._store = store
    self._suffix = suffix
    self.shape = (store.capacity(suffix), *store.frame_shape)
    self.dtype = store.frame_dtype
    self.ndim = len(self.shape)

  def __len__(self) -> int:
    return self.shape[0]

  def __getitem__(self, key: Any) -> np.ndarray:
    first, *rest = key if isinstance(key, tuple) else (key,)
    ring = np.arange(len(self))[first]
    rows = self._store.rows_of(np.full(ring.size, self._suffix), np.ravel(ring))
    frames = self._store.frames(rows)
    return frames.reshape(*np.shape(ring), *self._store.frame_shape)[
      (slice(None),) * np.ndim(ring) + tuple(r for r in rest if r is not ...)
    ]

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    return np.asarray(self[:], dtype)


def _without_arrays(columns: packed_shard.Columns) -> packed_shard.Columns:
  nothing = np.empty(0)
  return dataclasses.replace(
    columns, action=nothing, reward=nothing, terminal=nothing
  )


def is_store(directory: str) -> bool:
  """Whether a directory is a store, rather than a run's shards."""
  return '://' not in directory and os.path.exists(
    os.path.join(directory, _ABOUT)
  )


def find_data(run_dir: str) -> str:
  """The directory of a run's shards, or of its store, from what a user gives.

  Args:
    run_dir: the directory above `replay_logs`, or a store.

  Raises:
    ValueError: if it is neither; the usual mistakes are named.
  """
  if is_store(run_dir):
    list_shards(run_dir)
    return run_dir
  return shard.replay_logs_dir(run_dir)


def list_shards(data_dir: str, skip_incomplete: bool = False) -> list[int]:
  """Numbers of the shards in a directory of shards or a store, ascending.

  Args:
    data_dir: the directory.
    skip_incomplete: whether to leave out shards that lack a file, with a
      warning, rather than fail.

  Raises:
    ValueError: if there are none, or one is incomplete.
  """
  if not is_store(data_dir):
    return shard.list_suffixes(data_dir, skip_incomplete=skip_incomplete)
  about = files.read_json(os.path.join(data_dir, _ABOUT)) or {}
  suffixes = about.get('shards', [])
  missing = [
    str(suffix)
    for suffix in suffixes
    if not os.path.exists(packed_shard.paths(data_dir, suffix)[1])
  ]
  if missing or not suffixes:
    raise ValueError(
      f'{data_dir} is an incomplete store: shards {", ".join(missing)} are '
      f'missing; convert {about.get("source")} again.'
    )
  return suffixes


def convert(
  data_dir: str,
  directory: str,
  progress: Callable[[int], None] = lambda rows: None,
) -> Store:
  """Makes a directory that can be used in place of a run's shards.

  What is there already is kept, so that it continues where it was stopped.

  Args:
    data_dir: the directory of the shards (`<run>/replay_logs`).
    directory: of the store.
    progress: called with numbers of rows that were packed.

  Returns:
    The store.

  Raises:
    ValueError: if a shard is damaged, the directory holds something else or
      cannot be written, or another process is at it.
  """
  if is_store(data_dir):
    raise ValueError(f'{data_dir} is a store already.')
  about = files.read_json(os.path.join(directory, _ABOUT))
  try:
    there = os.listdir(directory)
  except FileNotFoundError:
    there = []
  except OSError as error:
    raise ValueError(f'{directory}: {error.strerror}.') from error
  # What a conversion that was killed at its start may have left.
  ours = {_ABOUT, _DICTIONARY, shard.MANIFEST}
  if about is None and {name.removesuffix('.tmp') for name in there} - {
    '.lock',
    *ours,
  }:
    raise ValueError(
      f'{directory} holds something else; choose a new directory for the store.'
    )
  if about is not None and about['source'] != absolute(data_dir):
    raise ValueError(
      f'{directory} is the store of {about["source"]}, not of {data_dir}; '
      'choose another directory.'
    )
  if there:
    path = os.path.join(directory, '.lock')
    lock = files.try_lock(path)
    if lock is None:
      raise ValueError(
        f'{directory} is being written by {files.lock_holder(path)}.'
      )
    lock.close()
  made = Store(data_dir, directory=directory, progress=progress)
  try:
    made.wait()
  finally:
    made.close()
  return made


def absolute(path: str) -> str:
  """The path without links, if it is local."""
  return path if '://' in path else os.path.realpath(path)


def cache_name(data_dir: str) -> str:
  """The folder of a run in a cache: its game, run, and a hash of its path."""
  path = absolute(data_dir).rstrip('/')
  run = [part for part in path.split('/') if part and part != 'replay_logs'][
    -2:
  ]
  digest = hashlib.sha256(path.encode()).hexdigest()[:8]
  return '-'.join([*run, digest])
