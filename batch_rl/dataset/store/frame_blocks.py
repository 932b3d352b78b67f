"""Decodes frames of a run from the compressed blocks of its shards."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import frame_stacks, lz4_blocks, packed_shard


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

  Attributes:
    fault: Error of a damaged block, once one has been decoded.
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
  ):
    self._starts = starts
    self._first = first
    self._rows_kept = rows_kept
    self._follows = follows
    self._frame_shape = frame_shape
    self._frame_dtype = frame_dtype
    self._names = names
    self._frame_bytes = frame_dtype.itemsize * int(
      np.prod(frame_shape, dtype=np.int64)
    )
    counts = -(-rows_kept // packed_shard.BLOCK_ROWS)
    # Block b of shard i is at self._offsets[self._first_block[i] + b].
    self._first_block = np.concatenate([[0], np.cumsum(counts + 1)])
    self._offsets = np.zeros(self._first_block[-1], np.uint32)
    self._blocks: list[np.ndarray | None] = [None] * len(rows_kept)
    self._address = [0] * len(rows_kept)  # Of the blocks; 0 if not packed yet.
    self._decode: Any = None
    self._dictionary = b''
    self.fault: shard_reader.DataError | None = None

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
    if packed.offsets[-1] > np.iinfo(offsets.dtype).max:
      offsets = offsets.astype(np.uint64)
    at = self._first_block[i]
    offsets[at : at + len(packed.offsets)] = packed.offsets
    self._offsets = offsets
    self._blocks[i] = packed.blocks
    # Readers look at the addresses first, so these change last, and atomically.
    self._address = [
      *self._address[:i],
      packed.blocks.ctypes.data,
      *self._address[i + 1 :],
    ]

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
    """Size of blocks and offsets, in memory or mapped, in bytes."""
    blocks = sum(len(b) for b in self._blocks if b is not None)
    return blocks + self._offsets.nbytes

  def windows(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Decodes stacks of consecutive frames (see `Store.windows`)."""
    addresses = self._address
    shard_of = np.searchsorted(self._starts[1:-1], rows, side='right')
    within = rows - self._starts[shard_of]
    kept_rows = self._rows_kept[shard_of]
    at = within + self._first[shard_of]
    at -= np.where(at >= kept_rows, kept_rows, 0)
    # All but a few in a million are contiguous in one ring.
    contiguous = (
      (within >= 0)
      & (rows + length <= self._starts[shard_of + 1])
      & (at + length <= kept_rows)
    )
    block, skip = np.divmod(at, packed_shard.BLOCK_ROWS)
    most = (length + packed_shard.BLOCK_ROWS - 2) // packed_shard.BLOCK_ROWS + 2
    table = (self._first_block[shard_of] + block)[:, None] + np.arange(most)
    bounds = self._offsets[np.minimum(table, len(self._offsets) - 1)]
    frame = self._frame_bytes
    wanted, size = length * frame, packed_shard.BLOCK_ROWS * frame
    # Each block is decoded so that its wanted frames land in place, without a
    # copy. The frames before them spill into earlier windows, which are decoded
    # later: the loop runs backwards.
    shape = (len(rows), length, *self._frame_shape)
    out = frame_stacks.aligned(shape, self._frame_dtype, before=size - frame)
    target, decode = out.ctypes.data + out.nbytes, self._decode
    for i, s, bound, begin, is_contiguous in zip(
      range(len(rows) - 1, -1, -1),
      shard_of[::-1].tolist(),
      bounds[::-1].tolist(),
      (skip * frame)[::-1].tolist(),
      contiguous[::-1].tolist(),
      strict=True,
    ):
      target -= wanted
      address = addresses[s]
      if not (is_contiguous and address):
        window = self._window_across_shards(int(rows[i]), length)
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
    out = np.zeros((len(positions), self._frame_bytes), np.uint8)
    frame, decode, addresses = self._frame_bytes, self._decode, self._address
    scratch = np.empty((packed_shard.BLOCK_ROWS, frame), np.uint8)
    last = None
    for i, (s, position) in enumerate(
      zip(shard_of.tolist(), positions.tolist(), strict=True)
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
    return out.view(self._frame_dtype).reshape(
      len(positions), *self._frame_shape
    )

  def _damaged_block(self, s: int, error: Exception) -> shard_reader.DataError:
    self.fault = shard_reader.DataError(
      f'{self._names[s]} is damaged ({error}); pack it again.'
    )
    return self.fault
