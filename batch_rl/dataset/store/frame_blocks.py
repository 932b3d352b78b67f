"""Decodes frames of a run from the compressed blocks of its shards."""

import bisect
import ctypes
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import frame_stacks, lz4_blocks, packed_shard
from batch_rl.utils.native import checksums, mapped_files

# Size of the blocks that `kept_frames` decodes at a time.
_DECODED_BYTES = 4 << 20


class Tables(NamedTuple):
  """Places of the compressed frames, for compiled code (`batch_kernel`).

  Attributes:
    addresses: Address of the blocks of each shard, int64 (shards,); 0 if these are
      not available.
    segments: First row of each segment: rows of a shard contiguous in its ring,
      int64 (2 * shards,).
    segment_stops: Row after each segment, int64 (2 * shards,).
    shift: Offset of each segment, int64 (2 * shards,). Row r is frame
      (r + shift) % BLOCK_ROWS of entry (r + shift) // BLOCK_ROWS.
    breaks: First rows of the shards that do not follow the shard before, int64.
    offsets: Offset of each block, unsigned (entries,).
    running_crc32: CRC-32 of the blocks before each block, uint32 (entries,).
    calls: Bytes of a frame; address and size of the dictionary; address of
      `pwritev`, or 0 if no block is mapped; rows of a block; address of
      `checksums.crc32_address`: int64 (6,).
  """

  addresses: np.ndarray
  segments: np.ndarray
  segment_stops: np.ndarray
  shift: np.ndarray
  breaks: np.ndarray
  offsets: np.ndarray
  running_crc32: np.ndarray
  calls: np.ndarray


class FrameBlocks:
  """The compressed frames of a run, with random access by row.

  One thread may `add` shards while others decode.

  Args:
    starts: First row of each shard, then the number of rows: int64 (shards + 1,).
    first: Position of each shard's first row among its kept rows, (shards,).
    rows_kept: Number of rows kept of each shard, (shards,).
    follows: Whether each shard's rows directly continue the previous shard's.
    frame_shape: Shape of a frame.
    frame_dtype: Dtype of a frame.
    names: Name of each shard, for error messages.
    remedy: Advice about a damaged shard, for error messages.

  Attributes:
    fault: Error of a damaged block, once one has been decoded.
    tables: Places of the frames, for compiled code.
  """

  def __init__(
    self,
    starts: np.ndarray,
    first: np.ndarray,
    rows_kept: np.ndarray,
    follows: Sequence[bool],
    frame_shape: tuple[int, ...],
    frame_dtype: np.dtype,
    names: Sequence[str],
    remedy: str,
  ):
    self._starts = starts
    self._first = first
    self._rows_kept = rows_kept
    self._follows = follows
    self._frame_shape = frame_shape
    self._frame_dtype = frame_dtype
    self._names = names
    self._remedy = remedy
    self._frame_bytes = frame_dtype.itemsize * int(
      np.prod(frame_shape, dtype=np.int64)
    )
    counts = -(-rows_kept // packed_shard.BLOCK_ROWS)
    # Block b of shard i has entry `_first_entry[i] + b`: its offset, and the
    # CRC-32 of all blocks before it. One more entry ends the shard. A view gives
    # single entries faster than an array.
    self._first_entry = np.concatenate([[0], np.cumsum(counts + 1)])
    self._offsets = np.zeros(self._first_entry[-1], np.uint32).data
    self._running_crc32 = np.zeros(self._first_entry[-1], np.uint32).data
    self._blocks = [memoryview(b'')] * len(rows_kept)
    self._address = [0] * len(rows_kept)  # Of the blocks; 0 if not packed yet.
    self._is_mapped = False
    # The rows of a shard are one or two segments, each contiguous in the ring.
    # Row r of segment j is at `r + _shift[j]` if an entry counts as BLOCK_ROWS rows.
    middle = np.minimum(starts[:-1] + rows_kept - first, starts[1:])
    at = self._first_entry[:-1] * packed_shard.BLOCK_ROWS
    self._segments = _alternate(starts[:-1], middle)
    self._segment_stops = _alternate(middle, starts[1:])
    self._shift = _alternate(at + first - starts[:-1], at - middle)
    self._decode: Any = None
    self._dictionary = b''
    self.fault: shard_reader.DataError | None = None
    breaks = [
      start
      for start, follows in zip(starts, follows, strict=False)
      if not follows
    ]
    self.tables = Tables(
      np.array(self._address, np.int64),
      np.array(self._segments, np.int64),
      np.array(self._segment_stops, np.int64),
      np.array(self._shift, np.int64),
      np.array(breaks, np.int64),
      np.asarray(self._offsets),
      np.asarray(self._running_crc32),
      self._calls(),
    )

  def _calls(self) -> np.ndarray:
    """Returns the sizes and addresses in `Tables.calls`."""
    return np.array(
      [
        self._frame_bytes,
        lz4_blocks.address_of(self._dictionary),
        len(self._dictionary),
        mapped_files.PWRITEV_ADDRESS if self._is_mapped else 0,
        packed_shard.BLOCK_ROWS,
        checksums.crc32_address(),
      ],
      np.int64,
    )

  def add(
    self, i: int, packed: packed_shard.PackedShard, dictionary: bytes
  ) -> None:
    """Makes the frames of a shard available.

    Args:
      i: Index of the shard.
      packed: Packed shard.
      dictionary: Compression dictionary of its blocks.

    Raises:
      ValueError: If the dictionary differs from that of earlier shards.
    """
    if self._decode is None:
      size = packed_shard.BLOCK_ROWS * self._frame_bytes
      self._decode = lz4_blocks.decoder(dictionary, size)
      self._dictionary = dictionary
    elif dictionary != self._dictionary:
      raise ValueError(
        f'{self._names[i]} has another dictionary: another process deleted the '
        'store and created it again; restart this program.'
      )
    offsets = self._offsets
    if packed.offsets[-1] > np.iinfo(np.uint32).max:
      offsets = np.asarray(offsets).astype(np.uint64).data
    first = self._first_entry[i]
    entries = slice(first, first + len(packed.offsets))
    np.asarray(offsets)[entries] = packed.offsets
    np.asarray(self._running_crc32)[entries] = packed.running_crc32
    self._offsets = offsets
    self._blocks[i] = packed.blocks.data
    self._is_mapped |= packed.is_mapped
    # Readers look at the addresses first, so these change last, and atomically.
    self._address = [
      *self._address[:i],
      packed.blocks.ctypes.data,
      *self._address[i + 1 :],
    ]
    self.tables = self.tables._replace(
      addresses=np.array(self._address, np.int64),
      offsets=np.asarray(offsets),
      calls=self._calls(),
    )

  @property
  def available(self) -> list[bool]:
    """Whether the frames of each shard are available."""
    return [address != 0 for address in self._address]

  @property
  def num_available(self) -> int:
    """Number of shards with available frames."""
    return len(self._address) - self._address.count(0)

  @property
  def nbytes(self) -> int:
    """Size of blocks, offsets and checksums, in memory or mapped, in bytes."""
    entries = self._offsets.nbytes + self._running_crc32.nbytes
    return sum(map(len, self._blocks)) + entries

  def windows(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Decodes stacks of consecutive frames (see `Store.windows`)."""
    addresses, segments = self._address, self._segments
    stops, shift = self._segment_stops, self._shift
    frame, block_rows = self._frame_bytes, packed_shard.BLOCK_ROWS
    # Each block is decoded so that its wanted frames land in place, without a
    # copy. The frames before them spill into earlier windows, which are decoded
    # later: the loop runs backwards.
    shape = (len(rows), length, *self._frame_shape)
    before = (block_rows - 1) * frame
    out = frame_stacks.aligned(shape, self._frame_dtype, before)
    target = out.ctypes.data + out.nbytes
    stretches, across = [], []
    for row in rows[::-1].tolist():
      target -= length * frame
      segment = bisect.bisect_right(segments, row) - 1
      # All but a few in a million are contiguous in one ring.
      if (
        row < 0 or row + length > stops[segment] or not addresses[segment >> 1]
      ):
        across.append((row, target))
        continue
      entry, skip = divmod(row + shift[segment], block_rows)
      count = skip + length
      last = entry + -(-count // block_rows)
      stretches.append(
        (segment >> 1, entry, last, count * frame, target - skip * frame)
      )
    self._decode_stretches(stretches)
    for row, target in across:
      window = self._window_across_shards(row, length)
      ctypes.memmove(target, window, len(window))
    return out

  def _window_across_shards(self, row: int, length: int) -> bytes:
    """Decodes a window frame by frame, across shards or a ring's end."""
    stop = row + length
    for start, follows in zip(self._starts, self._follows, strict=False):
      if row < start < stop and not follows:
        stop = int(start)
    stop = min(stop, int(self._starts[-1]))
    frames = self.frames(np.arange(row, stop))
    return frames.tobytes() + bytes((length - len(frames)) * self._frame_bytes)

  def frames(self, rows: np.ndarray) -> np.ndarray:
    """Decodes single frames by row (see `Store.frames`)."""
    shard_of = np.searchsorted(self._starts[1:-1], rows, side='right')
    kept = self._rows_kept[shard_of]
    within = rows - self._starts[shard_of]
    in_run = (within >= 0) & (rows < self._starts[-1])
    positions = np.where(in_run, (within + self._first[shard_of]) % kept, -1)
    return self.kept_frames(shard_of, positions)

  def kept_frames(
    self, shard_of: np.ndarray, positions: np.ndarray
  ) -> np.ndarray:
    """Decodes single frames by position (see `Store.kept_frames`)."""
    frame, block_rows = self._frame_bytes, packed_shard.BLOCK_ROWS
    out = np.zeros((len(positions), frame), np.uint8)
    is_packed = np.array(self._address, np.int64)[shard_of] != 0
    wanted = np.flatnonzero((positions >= 0) & is_packed)
    shard_of, positions = shard_of[wanted], positions[wanted]
    block, skip = np.divmod(positions, block_rows)
    entry = self._first_entry[shard_of] + block
    rows = np.minimum(
      self._rows_kept[shard_of] - block * block_rows, block_rows
    )
    # Consecutive frames of a block share its decoding.
    is_first = np.diff(entry, prepend=-1) != 0
    first, nth = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    at_once = min(len(first), _DECODED_BYTES // (block_rows * frame)) or 1
    decoded = np.empty((at_once, block_rows, frame), np.uint8)
    targets = range(
      decoded.ctypes.data,
      decoded.ctypes.data + decoded.nbytes,
      decoded[0].nbytes,
    )
    for done in range(0, len(first), at_once):
      blocks = first[done : done + at_once]
      stretches = zip(
        shard_of[blocks].tolist(),
        entry[blocks].tolist(),
        (entry[blocks] + 1).tolist(),
        (rows[blocks] * frame).tolist(),
        targets,
        strict=False,
      )
      self._decode_stretches(list(stretches))
      here = slice(*np.searchsorted(nth, [done, done + at_once]))
      out[wanted[here]] = decoded[nth[here] - done, skip[here]]
    return out.view(self._frame_dtype).reshape(len(out), *self._frame_shape)

  def _decode_stretches(
    self, stretches: Sequence[tuple[int, int, int, int, int]]
  ) -> None:
    """Checks and decodes stretches of consecutive blocks.

    Args:
      stretches: Shard, entry of the first block, entry after the last block,
        number of bytes to decode, and address to decode to, of each stretch.
    """
    offsets, running = self._offsets, self._running_crc32
    blocks, addresses = self._blocks, self._address
    size = packed_shard.BLOCK_ROWS * self._frame_bytes
    # isal's CRC-32 is faster, but LZ4 is slower after each call: 0.1 ms a batch, on a
    # Xeon with AVX-512.
    decode, crc32 = self._decode, zlib.crc32
    copied, content = self._copy(stretches) if self._is_mapped else (0, None)
    at = 0
    for s, entry, last, left, target in stretches:
      start, stop = offsets[entry], offsets[last]
      if content is None:
        source, found = addresses[s] + start, blocks[s][start:stop]
      else:
        source, found = copied + at, content[at : at + stop - start]
        at += stop - start
      if crc32(found, running[entry]) != running[last]:
        raise self._damaged(s, 'its checksum differs')
      try:
        while left > 0:
          entry += 1
          stop = offsets[entry]
          decode(source, stop - start, target, left if left < size else size)
          source += stop - start
          start = stop
          target += size
          left -= size
      except lz4_blocks.DamagedBlock as error:
        raise self._damaged(s, error) from error

  def _copy(
    self, stretches: Sequence[tuple[int, int, int, int, int]]
  ) -> tuple[int, memoryview]:
    """Copies the blocks of stretches (see `mapped_files.copy`)."""
    offsets, addresses = self._offsets, self._address
    ranges = [
      (addresses[s] + offsets[entry], offsets[last] - offsets[entry])
      for s, entry, last, _, _ in stretches
    ]
    try:
      return mapped_files.copy(ranges)
    except mapped_files.UnreadableError as error:
      raise self._damaged(stretches[error.index][0], error.strerror) from error

  def _damaged(self, s: int, reason: object) -> shard_reader.DataError:
    self.fault = shard_reader.DataError(
      f'{self._names[s]} is damaged ({reason}); {self._remedy}.'
    )
    return self.fault


def _alternate(even: np.ndarray, odd: np.ndarray) -> list[int]:
  return np.stack([even, odd], 1).ravel().tolist()
