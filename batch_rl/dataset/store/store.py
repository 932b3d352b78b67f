"""A whole run with its frames compressed, and random access to them.

A store holds the shards of a run, packed (`packed_shard.py`) and stitched in time
order, in memory or in a directory that is memory-mapped (`store_directory.py`). Rows
of the run are numbered from 0; `windows` decodes stacks of consecutive frames.

Shards are packed in the background (`packer.py`). The small columns of all shards
are read first, so what the run consists of is known at once. A directory may be a
cache beside the shards, or take their place (`convert`).
"""

import concurrent.futures
import ctypes
import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  stitching,
)
from batch_rl.dataset.store import (
  frame_stacks,
  lz4_blocks,
  packed_shard,
  packer,
  store_directory,
)
from batch_rl.utils import machine

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
    preload: whether to read what is packed on disk into memory at once, rather
      than map it.
    skip_damaged: whether to do without damaged shards, with a warning.
    pack: whether to start to pack; see `start`.
    progress: called with numbers of rows that were packed.

  Attributes:
    asked_for: numbers of the shards that were asked for.
    suffixes: of those that are used, ascending.
    placements: where the rows of each shard belong (`shard.Placement`).
    problems: gaps and repetitions, a line each.
    starts: int64 (shards + 1,), the run's row at which each shard starts.
    action: ints (rows,), in time order like the next one.
    reward: (rows,).
    ends: int64 (episodes,), rows that end an episode, ascending.
    cuts: int64 (cuts,), those of them where it was cut off: no terminals.
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
    preload: bool = False,
    skip_damaged: bool = False,
    pack: bool = True,
    progress: Callable[[int], None] = lambda rows: None,
  ):
    self.data_dir = data_dir
    self._max_rows = max_rows
    self._skip_damaged = skip_damaged
    self._stands_alone = store_directory.is_store(data_dir)
    path = data_dir if self._stands_alone else directory
    self._directory = (
      store_directory.StoreDirectory(path, preload) if path else None
    )
    self._place(suffixes)
    self._packer = packer.Packer(
      data_dir,
      self._directory,
      self.suffixes,
      self._rows_kept.tolist(),
      self._digests,
      self._arrive,
      skip_damaged,
      progress,
    )
    if pack:
      self.start()

  # --- what there is ---------------------------------------------------------

  def _place(self, suffixes: Sequence[int] | None) -> None:
    """Reads all small columns, and stitches the shards."""
    there = list_shards(self.data_dir, self._skip_damaged)
    chosen = there if suffixes is None else list(suffixes)
    self.asked_for = chosen
    for suffix in chosen:
      if suffix not in there:
        raise ValueError(f'There is no shard {suffix} in {self.data_dir}.')
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
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
      self.placements, problems = stitching.stitch(
        self.suffixes,
        [c.add_count for c in columns],
        [c.capacity for c in columns],
      )
    except ValueError as error:
      raise ValueError(f'{self.data_dir}: {error}') from None
    between = [s for s in there if chosen[0] <= s <= chosen[-1]]
    problems = stitching.find_missing(between) + problems
    self.problems = [f'{self.data_dir}: {problem}.' for problem in problems]
    for problem in self.problems:
      _log.warning('%s', problem)
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
    self.action = self._in_time([c.action for c in columns])
    self.reward = self._in_time([c.reward for c in columns])
    self.ends = np.flatnonzero(self._in_time([c.terminal for c in columns]))
    self._ring_start = np.array([p.start for p in self.placements])
    self._capacities = np.array([p.capacity for p in self.placements])
    self.cuts = np.intersect1d(self.ends, self._read_cuts())
    self._digests = [c.digest for c in columns]
    # Now all in time order, they need not be there twice.
    self._columns = [_without_arrays(c) for c in columns]
    counts = -(-self._rows_kept // packed_shard.BLOCK_ROWS)
    # Block b of shard i is at self._offsets[self._first_block[i] + b].
    self._first_block = np.concatenate([[0], np.cumsum(counts + 1)])
    self._offsets = np.zeros(self._first_block[-1], np.uint32)
    self._address = [0] * len(self._packed)  # of their blocks; 0 if not packed
    self._decode: Any = None
    self._dictionary = b''
    self._fault: shard_reader.DataError | None = None
    dictionary = self._directory.dictionary if self._directory else b''
    for i, packed in enumerate(self._packed):
      if packed is not None:
        self._add(i, packed, dictionary)

  def _in_time(self, columns: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all shards that are part of the run, oldest first: (rows,)."""
    out = np.empty(self.rows, np.result_type(*{c.dtype for c in columns}))
    for column, first, start, stop in zip(
      columns, self._first, self.starts, self.starts[1:], strict=False
    ):
      to_end = min(len(column) - first, stop - start)
      out[start : start + to_end] = column[first : first + to_end]
      out[start + to_end : stop] = column[: stop - start - to_end]
    return out

  def _read_cuts(self) -> np.ndarray:
    """Rows that the manifest says were cut off: int64 (cuts,)."""
    manifest = manifests.read(self.data_dir)
    key = manifests.TRUNCATED_ROWS
    listed = manifests.look_up(manifest, key, kind=list) or []
    rows, capacity = np.array(listed, np.int64), int(self._capacities[0])
    # A ring's last row is the first of its shard in time.
    suffixes, ring = (rows + 1) // capacity, rows % capacity
    there = np.isin(suffixes, self.suffixes)
    found = self.rows_of(suffixes[there], ring[there])
    return found[found >= 0]

  def _open_shard(self, suffix):
    """The columns of a shard, and the shard if it is packed already."""
    try:
      if self._stands_alone:
        packed = self._directory.open(suffix)
        return packed.columns, packed
      packed = self._directory and self._directory.find(suffix, self.data_dir)
      if packed is not None:
        return packed.columns, packed
      return packed_shard.read_columns(self.data_dir, suffix), None
    except ValueError as error:
      if not self._skip_damaged:
        raise
      _log.warning('Shard %d is not used: %s', suffix, error)
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

  def _cut(self, placement: stitching.Placement) -> stitching.Placement:
    """Only rows before `max_rows` of the ring, as far as they are in order."""
    capacity, rows = placement.capacity, placement.rows
    if self._max_rows is None or capacity <= self._max_rows or not rows:
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
    return blocks + sum(c.nbytes for c in columns)

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
      for suffix, address in zip(self.suffixes, self._address, strict=True)
      if address
    ]

  @property
  def num_packed(self) -> int:
    """How many shards' frames are there."""
    return len(self._address) - self._address.count(0)

  def capacity(self, suffix: int) -> int:
    """Rows of a shard's ring, at most `max_rows`."""
    capacity = self._columns[self._index[suffix]].capacity
    return capacity if self._max_rows is None else min(capacity, self._max_rows)

  def ring_sizes(self) -> list[int]:
    """Rows of the rings of all shards, used or not."""
    return [columns.capacity for columns in self._columns]

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
    """Padding rows at the first start of an episode that is seen; at most 3."""
    starts = (self.ends + 1).tolist()
    if self.starts_with_run:
      starts.append(0)
    for row in starts:
      i = int(np.searchsorted(self.starts[1:-1], row, side='right'))
      ring = (self._ring_start[i] + row - self.starts[i]) % self._capacities[i]
      if row + 3 > self.starts[i + 1] or ring + 3 > self._capacities[i]:
        continue  # look where they are in one stretch of one shard
      try:
        if self._address[i]:
          frames = self.frames(np.arange(row, row + 3))
        else:
          frames = self._read_frames(i, row, 3)
      except ValueError:
        if not self._skip_damaged:
          raise
        continue
      zero = ~frames.reshape(3, -1).any(axis=1)
      return int(np.argmin(np.append(zero, False)))
    return 3

  def _read_frames(self, i: int, row: int, count: int) -> np.ndarray:
    """Frames of a shard that is not packed; all but few are read past."""
    placement = self.placements[i]
    start = (placement.start + row - self.starts[i]) % placement.capacity
    name = shard_files.file_name('observation', self.suffixes[i])
    stop = int(start) + count
    frames = []
    for at, chunk in shard_reader.iterate_rows(
      os.path.join(self.data_dir, name), stop
    ):
      frames.append(chunk[max(0, start - at) :].copy())
    return np.concatenate(frames)

  def start(self, first: Iterable[int] = ()) -> None:
    """Starts to pack in the background what is not packed yet.

    Args:
      first: the shards to begin with.
    """
    packed = set(self.packed)
    self._packer.start([s for s in self.suffixes if s not in packed], first)

  def prefer(self, suffixes: Iterable[int]) -> None:
    """Packs these shards next."""
    self._packer.prefer(suffixes)

  def wait(
    self, suffixes: Iterable[int] | None = None, count: int | None = None
  ) -> None:
    """Waits until shards are packed.

    Args:
      suffixes: which; None for all.
      count: how many of them are enough; None for all.

    Raises:
      ValueError: if one cannot be packed.
    """
    self._packer.wait(self.suffixes if suffixes is None else suffixes, count)

  @property
  def damaged(self) -> frozenset[int]:
    """Shards whose frames turned out damaged, with `skip_damaged`."""
    return self._packer.damaged

  def raise_error(self) -> None:
    """Raises what went wrong in the background or while decoding, if anything."""
    if self._fault is not None:
      raise self._fault
    self._packer.raise_error()

  def close(self) -> None:
    """Stops packing; what was packed stays."""
    self._packer.stop()

  def _arrive(
    self, suffix: int, packed: packed_shard.PackedShard, dictionary: bytes
  ) -> None:
    self._add(self._index[suffix], packed, dictionary)

  def _add(
    self, i: int, packed: packed_shard.PackedShard, dictionary: bytes
  ) -> None:
    if self._decode is None:
      size = packed_shard.BLOCK_ROWS * self._frame_bytes
      self._decode = lz4_blocks.decoder(dictionary, size)
      self._dictionary = dictionary
    elif dictionary != self._dictionary:
      raise ValueError(
        f'The store of {self.data_dir} was deleted and made again by another '
        'process; start again.'
      )
    offsets = self._offsets
    if packed.offsets[-1] > np.iinfo(offsets.dtype).max:
      offsets = offsets.astype(np.uint64)
    at = self._first_block[i]
    offsets[at : at + len(packed.offsets)] = packed.offsets
    self._offsets = offsets
    # All that is needed of it is in the arrays of the run.
    self._packed[i] = dataclasses.replace(
      packed, columns=self._columns[i], offsets=packed.offsets[:0]
    )
    # Last, and at once: who reads looks at the addresses first.
    self._address = [
      *self._address[:i],
      packed.blocks.ctypes.data,
      *self._address[i + 1 :],
    ]

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
    addresses = self._address
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
    # A block is decoded to where its last frames are wanted, so that nothing is
    # copied; those before land on earlier windows, which are decoded later.
    shape = (len(rows), length, *self.frame_shape)
    out = frame_stacks.aligned(shape, self.frame_dtype, before=size - frame)
    target, decode = out.ctypes.data + out.nbytes, self._decode
    for i, s, bound, begin, is_plain in zip(
      range(len(rows) - 1, -1, -1),
      shard_of[::-1].tolist(),
      bounds[::-1].tolist(),
      (skip * frame)[::-1].tolist(),
      plain[::-1].tolist(),
      strict=True,
    ):
      target -= wanted
      address = addresses[s]
      if not (is_plain and address):
        window = self._frames_one_by_one(int(rows[i]), length)
        ctypes.memmove(target, window, wanted)
        continue
      try:
        end = begin + wanted
        at = target - begin
        part = min(end, size)
        decode(address + bound[0], bound[1] - bound[0], at, part)
        j = 1
        while end > size:
          at += part
          end -= size
          part = min(end, size)
          decode(address + bound[j], bound[j + 1] - bound[j], at, part)
          j += 1
      except lz4_blocks.DamagedBlock as error:
        raise self._damaged_block(s, error) from error
    return out

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
    frame, decode, addresses = self._frame_bytes, self._decode, self._address
    scratch = np.empty((packed_shard.BLOCK_ROWS, frame), np.uint8)
    last = None
    for i, (s, position) in enumerate(
      zip(shard_of.tolist(), at.tolist(), strict=True)
    ):
      address = addresses[s]
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

  def _damaged_block(self, s: int, error: Exception) -> shard_reader.DataError:
    where = f'Shard {self.suffixes[s]} of {self.data_dir}, in memory,'
    if self._directory is not None:
      where = packed_shard.paths(self._directory.path, self.suffixes[s])[0]
    self._fault = shard_reader.DataError(
      f'{where} is damaged ({error}); have it made again.'
    )
    return self._fault


def _without_arrays(columns: packed_shard.Columns) -> packed_shard.Columns:
  nothing = np.empty(0)
  return dataclasses.replace(
    columns, action=nothing, reward=nothing, terminal=nothing
  )


def find_data(run_dir: str) -> str:
  """The directory of a run's shards, or of its store, from what a user gives.

  Args:
    run_dir: the directory above `replay_logs`, or a store.

  Raises:
    ValueError: if it is neither; the usual mistakes are named.
  """
  if store_directory.is_store(run_dir):
    list_shards(run_dir)
    return run_dir
  return shard_files.replay_logs_dir(run_dir)


def list_shards(data_dir: str, skip_incomplete: bool = False) -> list[int]:
  """Numbers of the shards in a directory of shards or a store, ascending.

  Args:
    data_dir: the directory.
    skip_incomplete: whether to leave out shards that lack a file, with a
      warning, rather than fail.

  Raises:
    ValueError: if there are none, or one is incomplete.
  """
  if not store_directory.is_store(data_dir):
    return shard_files.list_suffixes(data_dir, skip_incomplete=skip_incomplete)
  return store_directory.StoreDirectory(data_dir).shards()


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
  if store_directory.is_store(data_dir):
    raise ValueError(f'{data_dir} is a store already.')
  target = store_directory.StoreDirectory(directory)
  target.check_empty_or_of(data_dir)
  if os.path.exists(directory):
    lock = target.try_lock()
    if lock is None:
      raise ValueError(f'{directory} is being written by {target.lock_holder}.')
    lock.close()
  made = Store(data_dir, directory=directory, progress=progress)
  try:
    made.wait()
  finally:
    made.close()
  return made
