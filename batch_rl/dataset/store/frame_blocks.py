"""Decodes frames of a run from the compressed blocks of its shards."""

import math
import threading
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import lz4_blocks, packed_shard, run_rows
from batch_rl.utils.native import checksums, mapped_files

# Size of the blocks that are decoded at a time.
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
    rows: Rows of the run.
    names: Name of each shard, for error messages.
    remedy: Advice about a damaged shard, for error messages.

  Attributes:
    fault: Error of a damaged block, once one has been decoded.
    tables: Places of the frames, for compiled code.
  """

  def __init__(self, rows: run_rows.RunRows, names: Sequence[str], remedy: str):
    self._starts, self._first = rows.starts, rows.first_kept
    self._rows_kept = rows.rows_kept
    self._frame_shape, self._frame_dtype = rows.frame_shape, rows.frame_dtype
    self._frame_bytes = rows.frame_dtype.itemsize * math.prod(rows.frame_shape)
    self._names = names
    self._remedy = remedy
    self._blocks = [memoryview(b'')] * len(names)
    self._is_mapped = False
    self._decode: Any = None
    self._dictionary = b''
    self.fault: shard_reader.DataError | None = None
    starts, first, kept = self._starts, self._first, self._rows_kept
    # Block b of shard i has entry `_first_entry[i] + b`: its offset, and the
    # CRC-32 of all blocks before it. One more entry ends the shard.
    counts = -(-kept // packed_shard.BLOCK_ROWS)
    self._first_entry = np.concatenate([[0], np.cumsum(counts + 1)])
    entries = self._first_entry[-1]
    # The rows of a shard are one or two segments, each contiguous in the ring.
    # Row r of segment j is at `r + shift[j]` if an entry counts as BLOCK_ROWS rows.
    middle = np.minimum(starts[:-1] + kept - first, starts[1:])
    at = self._first_entry[:-1] * packed_shard.BLOCK_ROWS
    follows = np.array([placement.follows for placement in rows.placements])
    self.tables = Tables(
      addresses=np.zeros(len(names), np.int64),
      segments=_alternate(starts[:-1], middle),
      segment_stops=_alternate(middle, starts[1:]),
      shift=_alternate(at + first - starts[:-1], at - middle),
      breaks=starts[:-1][~follows],
      offsets=np.zeros(entries, np.uint32),
      running_crc32=np.zeros(entries, np.uint32),
      calls=self._calls(),
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
    tables = self.tables
    offsets = tables.offsets
    if packed.offsets[-1] > np.iinfo(np.uint32).max:
      offsets = offsets.astype(np.uint64)
    first = self._first_entry[i]
    entries = slice(first, first + len(packed.offsets))
    offsets[entries] = packed.offsets
    tables.running_crc32[entries] = packed.running_crc32
    self._blocks[i] = packed.blocks.data
    self._is_mapped |= packed.is_mapped
    addresses = tables.addresses.copy()
    addresses[i] = packed.blocks.ctypes.data
    # Readers use the tables of one moment, so these change last, and at once.
    self.tables = tables._replace(
      addresses=addresses, offsets=offsets, calls=self._calls()
    )

  @property
  def available(self) -> np.ndarray:
    """Whether the frames of each shard are available: bool (shards,)."""
    return self.tables.addresses != 0

  @property
  def nbytes(self) -> int:
    """Size of blocks, offsets and checksums, in memory or mapped, in bytes."""
    entries = self.tables.offsets.nbytes + self.tables.running_crc32.nbytes
    return sum(map(len, self._blocks)) + entries

  def windows(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Decodes stacks of consecutive frames (see `Store.windows`)."""
    wanted = rows[:, None] + np.arange(length)
    stops = np.append(self.tables.breaks, self._starts[-1])
    stop = stops[
      np.minimum(np.searchsorted(stops, rows, side='right'), len(stops) - 1)
    ]
    wanted[wanted >= stop[:, None]] = -1
    frames = self.frames(wanted.ravel())
    return frames.reshape(*wanted.shape, *self._frame_shape)

  def frames(self, rows: np.ndarray) -> np.ndarray:
    """Decodes single frames by row (see `Store.frames`)."""
    shard_of = np.searchsorted(self._starts[1:-1], rows, side='right')
    within = rows - self._starts[shard_of]
    in_run = (within >= 0) & (rows < self._starts[-1])
    positions = (within + self._first[shard_of]) % self._rows_kept[shard_of]
    return self.kept_frames(shard_of, np.where(in_run, positions, -1))

  def kept_frames(
    self, shard_of: np.ndarray, positions: np.ndarray
  ) -> np.ndarray:
    """Decodes single frames by position (see `Store.kept_frames`)."""
    frame, block_rows = self._frame_bytes, packed_shard.BLOCK_ROWS
    tables = self.tables
    out = np.zeros((len(positions), frame), np.uint8)
    wanted = np.flatnonzero(
      (positions >= 0) & (tables.addresses[shard_of] != 0)
    )
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
    decoded = _buffer(at_once * block_rows * frame)
    decoded = decoded.reshape(at_once, block_rows, frame)
    for done in range(0, len(first), at_once):
      blocks = first[done : done + at_once]
      self._decode_blocks(
        tables,
        shard_of[blocks],
        entry[blocks],
        rows[blocks] * frame,
        decoded,
      )
      here = slice(*np.searchsorted(nth, [done, done + at_once]))
      out[wanted[here]] = decoded[nth[here] - done, skip[here]]
    return out.view(self._frame_dtype).reshape(len(out), *self._frame_shape)

  def _decode_blocks(
    self,
    tables: Tables,
    shard_of: np.ndarray,
    entries: np.ndarray,
    sizes: np.ndarray,
    decoded: np.ndarray,
  ) -> None:
    """Checks and decodes blocks.

    Args:
      tables: Places of the blocks.
      shard_of: Shard of each block, (n,).
      entries: Entry of each block, (n,).
      sizes: Number of bytes to decode of each block, (n,).
      decoded: Array to decode to, with a row for each block at least.
    """
    begin, end = (
      tables.offsets[e].astype(np.int64) for e in (entries, entries + 1)
    )
    sources = tables.addresses[shard_of] + begin
    copied = content = None
    if self._is_mapped:
      copied, content = self._copy(shard_of, sources, end - begin)
      sources = copied + np.cumsum(end - begin) - (end - begin)
    blocks = zip(
      shard_of.tolist(),
      sources.tolist(),
      begin.tolist(),
      end.tolist(),
      tables.running_crc32[entries].tolist(),
      tables.running_crc32[entries + 1].tolist(),
      sizes.tolist(),
      strict=True,
    )
    target = decoded.ctypes.data
    for s, source, start, stop, before, after, size in blocks:
      found = (
        self._blocks[s][start:stop]
        if content is None
        else content[source - copied : source - copied + stop - start]
      )
      # isal's CRC-32 is faster, but LZ4 is slower after each call: 0.1 ms a batch,
      # on a Xeon with AVX-512.
      if zlib.crc32(found, before) != after:
        raise self._damaged(s, 'its checksum differs')
      try:
        self._decode(source, stop - start, target, size)
      except lz4_blocks.DamagedBlock as error:
        raise self._damaged(s, error) from error
      target += decoded[0].nbytes

  def _copy(
    self, shard_of: np.ndarray, sources: np.ndarray, sizes: np.ndarray
  ) -> tuple[int, memoryview]:
    """Copies blocks (see `mapped_files.copy`)."""
    try:
      return mapped_files.copy(
        list(zip(sources.tolist(), sizes.tolist(), strict=True))
      )
    except mapped_files.UnreadableError as error:
      raise self._damaged(shard_of[error.index], error.strerror) from error

  def _damaged(self, s: int, reason: object) -> shard_reader.DataError:
    self.fault = shard_reader.DataError(
      f'{self._names[s]} is damaged ({reason}); {self._remedy}.'
    )
    return self.fault


def _alternate(even: np.ndarray, odd: np.ndarray) -> np.ndarray:
  return np.stack([even, odd], 1).ravel()


_kept = threading.local()


def _buffer(size: int) -> np.ndarray:
  """Returns the calling thread's buffer of a size, uint8 (size,).

  It is kept, since the system zeroes new memory page by page.
  """
  if len(getattr(_kept, 'buffer', ())) < size:
    _kept.buffer = np.empty(size, np.uint8)
  return _kept.buffer[:size]
