"""Small shards for the tests, and their packed form."""

import lz4.block
import numpy as np
from hypothesis import strategies as st

from batch_rl.dataset.store import packed_shard
from batch_rl.tests import ring_logs


def write(directory, suffix, add_count, terminal, frames=None, **columns):
  """Writes a shard whose rows have distinct frames and actions."""
  capacity = len(terminal)
  if frames is None:
    frames = np.arange(1, 2 * capacity + 1, dtype=np.uint8).reshape(-1, 2)
  row = np.arange(capacity)
  columns = {'action': row, 'reward': row % 3 - 1, **columns}
  ring_logs.write_shard(
    str(directory), suffix, add_count, frames, terminal=terminal, **columns
  )
  return frames


def kept_rows(suffix, add_count, capacity):
  """Returns the ring positions that are not stale."""
  kept = list(range(min(add_count, capacity)))
  if add_count < capacity and suffix > 0:
    # The last row of the ring comes before its first in time order.
    kept += [capacity - 1]
  return kept


def unpack(packed, dictionary):
  """Decodes all rows of a packed shard with the lz4 package alone."""
  shape, dtype = packed.columns.frame_shape, packed.columns.frame_dtype
  size = dtype.itemsize * int(np.prod(shape)) * packed_shard.BLOCK_ROWS
  data = b''.join(
    lz4.block.decompress(
      packed.blocks[start:stop].tobytes(), size, False, dict=dictionary
    )
    for start, stop in zip(packed.offsets, packed.offsets[1:], strict=False)
  )
  return np.frombuffer(data, dtype).reshape(-1, *shape)


# (suffix, capacity, add_count): full, final and continued rings.
RINGS = st.tuples(
  st.integers(0, 3), st.integers(4, 60), st.integers(0, 200)
).map(lambda ring: (ring[0], ring[1], min(ring[2], (ring[0] + 1) * ring[1])))
