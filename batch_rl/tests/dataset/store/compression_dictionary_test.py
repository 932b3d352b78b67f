"""The dictionary of a store: small, deterministic, and useful."""

import lz4.block
import numpy as np
import pytest

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import (
  compression_dictionary,
  lz4_blocks,
  packed_shard,
)

SAMPLE = 'data/Pong/1/replay_logs'


@pytest.fixture(scope='module')
def real_frames():
  path = f'{SAMPLE}/{shard_files.file_name("observation", 6)}'
  return np.concatenate(
    [c.copy() for _, c in shard_reader.iterate_rows(path, 1200)]
  )


def test_dictionary_is_small_and_deterministic(real_frames):
  runs = [real_frames[:600], real_frames[600:]]
  dictionary = compression_dictionary.train(runs)
  assert dictionary == compression_dictionary.train([r.copy() for r in runs])
  # LZ4 refers 64 KB back, which includes the first frames of the block itself.
  assert 10_000 < len(dictionary) <= 62 << 10


def test_dictionary_improves_compression_of_other_frames(real_frames):
  dictionary = compression_dictionary.train([real_frames[:500]])
  size = packed_shard.BLOCK_ROWS
  blocks = [real_frames[at : at + size] for at in range(600, 1200 - size, size)]

  def packed_bytes(words):
    compress = lz4_blocks.compressor(words, 5)
    return sum(len(compress(block.tobytes())) for block in blocks)

  assert packed_bytes(dictionary) < 0.95 * packed_bytes(b'')


@pytest.mark.parametrize(
  'frames',
  [
    np.zeros((400, 8, 8), np.uint8),  # Only padding.
    np.ones((199, 8, 8), np.uint8),  # Too few frames.
    np.concatenate([np.zeros((300, 9), 'u1'), np.ones((100, 9), 'u1')]),
    np.ones((201, 300, 300), np.uint8),  # Frames that are too large.
  ],
  ids=lambda frames: str(frames.shape),
)
def test_dictionary_is_empty_if_it_would_not_help(frames):
  assert compression_dictionary.train([frames]) == b''


@pytest.mark.parametrize(
  'frames',
  [
    np.ones((400, 8, 8), np.uint8),
    np.random.default_rng(0).integers(0, 256, (300, 40, 40)).astype(np.uint8),
    np.random.default_rng(0).normal(size=(500, 4, 1)),
    np.arange(300, dtype=np.int64)[:, None] % 256,
    np.arange(1, 251, dtype=np.uint8),
    # So large that no whole frame fits, and not contiguous.
    np.random.default_rng(0).integers(0, 9, (230, 130, 120, 2), 'u1')[..., :1],
  ],
  ids=lambda frames: f'{frames.dtype}{frames.shape}',
)
def test_dictionary_works_for_any_dtype_and_shape(frames):
  dictionary = compression_dictionary.train([frames[:100], frames[100:]])
  assert len(dictionary) <= 62 << 10
  block = frames[: packed_shard.BLOCK_ROWS].tobytes()
  compressed = lz4_blocks.compressor(dictionary, 5)(block)
  decoded = lz4.block.decompress(compressed, len(block), False, dict=dictionary)
  assert decoded == block
