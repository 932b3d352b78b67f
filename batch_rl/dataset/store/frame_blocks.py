"""The rows of a run with their frames, decoded from the compressed blocks of shards."""

import ctypes
import itertools
import math
import zlib
from typing import Any, NamedTuple

import lz4.block
import numpy as np

from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import frame_stacks, packed_shard, run_rows
from batch_rl.utils.native import checksums, mapped_files


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
    breaks: See `RunRows`.
    offsets: Offset of each block, int64 (entries,).
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


class RunFrames(run_rows.RunRows):
  """The rows of a run, and the frames of its packed shards.

  One thread may `add` shards while others decode.

  Args:
    *args: Arguments of `RunRows`.

  Attributes:
    frame_tables: Places of the frames of the shards packed now, for compiled code.
  """

  def __init__(self, *args: Any):
    super().__init__(*args)
    self._frame_bytes = self.frame_dtype.itemsize * math.prod(self.frame_shape)
    # `PackedShard`, once packed.
    self._packed: list[Any] = [None] * len(self.suffixes)
    self._dictionary: bytes | None = None
    # Error of a damaged block, once one has been decoded.
    self._fault: shard_reader.DataError | None = None
    starts, first, kept = self.starts, self.first_kept, self.rows_kept
    # Block b of shard i has entry `_first_entry[i] + b`: its offset, and the
    # CRC-32 of all blocks before it. One more entry ends the shard.
    counts = -(-kept // packed_shard.BLOCK_ROWS)
    self._first_entry = np.concatenate([[0], np.cumsum(counts + 1)])
    entries = self._first_entry[-1]
    # The rows of a shard are one or two segments, each contiguous in the ring.
    # Row r of segment j is at `r + shift[j]` if an entry counts as BLOCK_ROWS rows.
    middle = np.minimum(starts[:-1] + kept - first, starts[1:])
    at = self._first_entry[:-1] * packed_shard.BLOCK_ROWS
    self.frame_tables = Tables(
      addresses=np.zeros(len(self.suffixes), np.int64),
      segments=_alternate(starts[:-1], middle),
      segment_stops=_alternate(middle, starts[1:]),
      shift=_alternate(at + first - starts[:-1], at - middle),
      breaks=self.breaks,
      offsets=np.zeros(entries, np.int64),
      running_crc32=np.zeros(entries, np.uint32),
      calls=self._calls(),
    )

  def _calls(self) -> np.ndarray:
    """Returns the sizes and addresses in `Tables.calls`."""
    dictionary = self._dictionary or b''
    address = ctypes.cast(ctypes.c_char_p(dictionary), ctypes.c_void_p)
    is_mapped = any(packed and packed.file for packed in self._packed)
    calls = [
      self._frame_bytes,
      address.value or 0,
      len(dictionary),
      mapped_files.PWRITEV_ADDRESS if is_mapped else 0,
      packed_shard.BLOCK_ROWS,
      checksums.crc32_address(),
    ]
    return np.array(calls, np.int64)

  def add(
    self, suffix: int, packed: packed_shard.PackedShard, dictionary: bytes
  ) -> None:
    """Makes the frames of a shard available.

    Args:
      suffix: Shard number.
      packed: Packed shard.
      dictionary: Compression dictionary of its blocks.

    Raises:
      ValueError: If the dictionary differs from that of earlier shards.
    """
    i = self._index[suffix]
    if self._dictionary not in (None, dictionary):
      raise ValueError(
        f'Shard {suffix} of {self.data_dir} has another dictionary: another process '
        'deleted the store and created it again; restart this program.'
      )
    # Readers have the address of the first of these equal dictionaries.
    self._dictionary = self._dictionary or dictionary
    tables, first = self.frame_tables, self._first_entry[i]
    entries = slice(first, first + len(packed.offsets))
    tables.offsets[entries] = packed.offsets
    tables.running_crc32[entries] = packed.running_crc32
    # Arrays but the blocks are kept for the whole run, not for each shard.
    self._packed[i] = packed._replace(
      columns=packed.columns.without_rows(),
      offsets=packed.offsets[:0],
      running_crc32=packed.running_crc32[:0],
    )
    addresses = tables.addresses.copy()
    addresses[i] = packed.blocks.ctypes.data
    # Readers use the tables of one moment, so these change last, and at once.
    self.frame_tables = tables._replace(
      addresses=addresses, calls=self._calls()
    )

  @property
  def packed(self) -> list[int]:
    """Numbers of the packed shards, ascending."""
    packed = np.flatnonzero(self.frame_tables.addresses)
    return [self.suffixes[i] for i in packed]

  def file_hashes(self) -> dict[str, str]:
    """Returns the hash of each file of the packed shards, by file name.

    The files are those that the shards were packed from, frames included. A hash
    is the first 16 hexadecimal digits of the SHA-256.
    """
    return {
      name: source['sha256'][:16]
      for packed in self._packed
      if packed
      for name, source in packed.columns.sources.items()
    }

  def windows(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Decodes stacks of consecutive frames.

    Args:
      rows: First row of each stack, int64 (n,).
      length: Number of frames in a stack.

    Returns:
      (n, length, *frame_shape). Frames are zero for rows outside the run, rows
      after a gap, and rows of shards that are not packed yet.

    Raises:
      DataError: If the store is damaged.
    """
    wanted = rows[:, None] + np.arange(length)
    stops = np.append(self.breaks, self.starts[-1])
    place = np.searchsorted(stops, rows, side='right')
    stop = stops[np.minimum(place, len(stops) - 1)]
    wanted[wanted >= stop[:, None]] = -1
    frames = self.frames(wanted.ravel())
    return frames.reshape(*wanted.shape, *self.frame_shape)

  def frames(self, rows: np.ndarray) -> np.ndarray:
    """Decodes single frames.

    Args:
      rows: Rows of the run in any order, int64 (n,).

    Returns:
      (n, *frame_shape). Frames are zero for rows outside the run, and rows of
      shards that are not packed yet.

    Raises:
      DataError: If the store is damaged.
    """
    shard_of = self.shard_of(rows)
    within = rows - self.starts[shard_of]
    in_run = (within >= 0) & (rows < self.starts[-1])
    positions = (within + self.first_kept[shard_of]) % self.rows_kept[shard_of]
    return self.kept_frames(shard_of, np.where(in_run, positions, -1))

  def kept_frames(
    self, shard_of: np.ndarray, positions: np.ndarray
  ) -> np.ndarray:
    """Decodes single frames by shard and position.

    Args:
      shard_of: Indices into `suffixes`, (n,).
      positions: Positions among the shards' kept rows, (n,); -1 gives zeros.

    Returns:
      (n, *frame_shape).

    Raises:
      DataError: If the store is damaged.
    """
    tables = self.frame_tables
    is_stored = (positions >= 0) & (tables.addresses[shard_of] != 0)
    # TensorFlow would copy other memory, all frames of a run for a device at once.
    shape = len(positions), self._frame_bytes
    out = frame_stacks.aligned(shape, np.dtype(np.uint8))
    out[~is_stored] = 0
    wanted = np.flatnonzero(is_stored)
    shard_of = shard_of[wanted]
    block, skip = np.divmod(positions[wanted], packed_shard.BLOCK_ROWS)
    entry = self._first_entry[shard_of] + block
    # Consecutive frames of a block share its decoding.
    bounds = np.flatnonzero(np.diff(entry, prepend=-1, append=-1)).tolist()
    for i, stop in itertools.pairwise(bounds):
      frames = self._decode(tables, shard_of[i], entry[i], skip[i:stop])
      out[wanted[i:stop]] = frames
    return out.view(self.frame_dtype).reshape(len(out), *self.frame_shape)

  def _decode(
    self, tables: Tables, s: int, entry: int, rows: np.ndarray
  ) -> np.ndarray:
    """Checks and decodes a block, and returns some of its rows, uint8 (n, bytes)."""
    begin, end = tables.offsets[entry : entry + 2].tolist()
    before, after = tables.running_crc32[entry : entry + 2].tolist()
    try:
      content = self._packed[s].read(begin, end)
      # isal's CRC-32 is faster, but LZ4 is slower after each call: 0.1 ms a batch,
      # on a Xeon with AVX-512.
      if zlib.crc32(content, before) != after:
        raise ValueError('its checksum differs')
      most = packed_shard.BLOCK_ROWS * self._frame_bytes
      block = lz4.block.decompress(
        content, uncompressed_size=most, dict=self._dictionary
      )
      decoded = np.frombuffer(block, np.uint8).reshape(-1, self._frame_bytes)
      return decoded[rows]
    except (OSError, ValueError, IndexError, lz4.block.LZ4BlockError) as error:
      name, remedy = self._name_and_remedy(self.suffixes[s])
      self._fault = shard_reader.DataError(
        f'{name} is damaged ({error}); {remedy}.'
      )
      raise self._fault from error

  def _name_and_remedy(self, suffix: int) -> tuple[str, str]:
    """Returns the name of a packed shard, and advice if it is damaged."""
    raise NotImplementedError


def _alternate(even: np.ndarray, odd: np.ndarray) -> np.ndarray:
  return np.stack([even, odd], 1).ravel()
