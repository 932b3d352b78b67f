import struct

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from batch_rl.tests.dataset.comparison import small_copies


@given(
  st.lists(st.integers(1, 12), min_size=1, max_size=8),
  st.integers(0, 3),
  st.integers(0, 99),
)
def test_hashes_are_as_defined(lengths, padding, seed):
  episodes = small_copies.make_episodes(lengths, seed)
  if lengths[-1] > 1:
    episodes[-1].pop()
  rows = small_copies.MemoryCopy(episodes, padding).rows
  expected = []  # as the module defines them
  for episode in episodes:
    packed = [struct.pack('<I', row.frame) for row in episode]
    frames = [*map(xxhash.xxh64_intdigest, packed)]
    following = [*frames[1:], 0]
    for row, frame, after in zip(episode, frames, following, strict=True):
      if after or row.terminal:
        fields = frame, row.action, row.reward, row.terminal, after
        expected.append(xxhash.xxh64_intdigest(struct.pack('<QifQQ', *fields)))
  assert rows.hashes().tolist() == expected
  assert rows.transitions == len(expected)
  assert rows.rows == sum(map(len, episodes))
  total = rows.hashes().sum()
  assert total == sum(expected) % (1 << 64)
  assert small_copies.MemoryCopy(episodes[::-1]).rows.hashes().sum() == total
  # Negative zero is zero.
  zeros = [
    small_copies.MemoryCopy([small_copies.change(episodes[0], 0, reward=zero)])
    for zero in (0.0, -0.0)
  ]
  np.testing.assert_array_equal(*(copy.rows.hashes() for copy in zeros))
