"""Trains the LZ4 dictionary that all blocks of a store share."""

import numpy as np
import zstandard

from batch_rl.dataset.store import packed_shard

# LZ4 refers at most 64 KB back. zstd's trainer finds recurring patterns; the whole
# frames serve as backgrounds.
_TRAINED_BYTES = 48 << 10
_FRAMES_BYTES = 14 << 10


def train(sequences: list[np.ndarray]) -> bytes:
  """Trains a dictionary of at most 62 KB.

  Args:
    sequences: Consecutive frames from several places, each (n, *frame_shape).

  Returns:
    The dictionary; empty if frames are too few, or too large to profit from one.
  """
  frames = np.concatenate([s.reshape(len(s), -1) for s in sequences])
  frames = np.ascontiguousarray(frames).view(np.uint8)
  frames = frames[frames.any(axis=1)]
  size = frames.shape[1]
  block_rows = packed_shard.BLOCK_ROWS
  if len(frames) < 200 or size * block_rows > 1 << 20:
    return b''
  random = np.random.default_rng(0)
  most = len(frames) - block_rows
  starts = np.sort(random.choice(most, min(most, 500), False))
  samples: list = [frames[s : s + block_rows].tobytes() for s in starts]
  try:
    trained = zstandard.train_dictionary(
      _TRAINED_BYTES, samples, k=256, d=8
    ).as_bytes()
  except zstandard.ZstdError:
    trained = b''  # No pattern recurs.
  # Any frames serve: a greedy choice of typical ones made blocks no smaller.
  chosen = random.choice(len(frames), _FRAMES_BYTES // size)
  return trained + frames[chosen].tobytes()
