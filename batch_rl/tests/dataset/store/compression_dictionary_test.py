"""The dictionary of a store: small, deterministic, and useful."""

import lz4.block
import numpy as np
import pytest

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import compression_dictionary
from batch_rl.dataset.store.packed_shard import BLOCK_ROWS
from batch_rl.tests.dataset.store import stores


def test_dictionary_is_small_and_improves_compression_of_other_frames():
  path = shard_files.path(stores.SAMPLE, 'observation', 6)
  chunks = [chunk.copy() for _, chunk in shard_reader.iterate_rows(path, 1200)]
  frames = np.concatenate(chunks)
  dictionary = compression_dictionary.train([frames[:300], frames[300:500]])
  # LZ4 refers 64 KB back, which includes the first frames of the block itself.
  assert 10_000 < len(dictionary) <= 62 << 10
  assert dictionary == compression_dictionary.train([frames[:500].copy()])

  def packed_bytes(words):
    starts = range(600, 1200 - BLOCK_ROWS, BLOCK_ROWS)
    kind = dict(mode='high_compression', compression=5, dict=words)
    blocks = [frames[at : at + BLOCK_ROWS] for at in starts]
    return sum(len(lz4.block.compress(block, **kind)) for block in blocks)

  assert packed_bytes(dictionary) < 0.95 * packed_bytes(b'')


_RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
  'frames, helps',
  [
    (np.zeros((400, 8, 8), np.uint8), False),  # Only padding.
    (np.ones((199, 8, 8), np.uint8), False),  # Too few frames.
    (np.repeat(np.eye(2, 9, dtype='u1')[:1] * [[0], [1]], 150, 0), False),
    (np.ones((201, 300, 300), np.uint8), False),  # Frames that are too large.
    (np.ones((400, 8, 8), np.uint8), True),
    (_RANDOM.integers(0, 256, (300, 40, 40), 'u1'), True),
    (_RANDOM.normal(size=(500, 4, 1)), True),
    (np.arange(1, 251, dtype=np.uint8), True),
    # So large that no whole frame fits, and not contiguous.
    (_RANDOM.integers(0, 9, (230, 130, 120, 2), 'u1')[..., :1], True),
  ],
)
def test_frames_of_any_dtype_and_shape(frames, helps):
  dictionary = compression_dictionary.train([frames[:100], frames[100:]])
  assert len(dictionary) <= 62 << 10
  assert helps == bool(dictionary)
