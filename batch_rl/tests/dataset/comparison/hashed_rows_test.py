"""Hashes of transitions against their definition, and their sum."""

import struct

import numpy as np
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.comparison import hashed_rows
from batch_rl.tests.dataset.comparison import small_copies


def transition_hashes(episodes):
  """Returns the hashes of the transitions, as the module defines them."""
  hashes = []
  for episode in episodes:
    frames = [
      xxhash.xxh64_intdigest(struct.pack('<I', number))
      for number in episode.frame
    ]
    last = len(frames) - 1
    for i in range(last + episode.terminated):
      fields = frames[i], episode.action[i], episode.reward[i], i == last
      after = 0 if i == last else frames[i + 1]
      hashes.append(
        xxhash.xxh64_intdigest(struct.pack('<QifQQ', *fields, after))
      )
  return hashes


@settings(max_examples=30, deadline=None)
@given(
  st.lists(st.integers(1, 12), min_size=1, max_size=8),
  st.integers(0, 3),
  st.integers(0, 99),
)
def test_hashes_are_as_defined(lengths, padding, seed):
  episodes = small_copies.make_episodes(lengths, seed)
  if lengths[-1] > 1:
    episodes[-1] = episodes[-1].part(0, lengths[-1] - 1)
  rows = small_copies.MemoryCopy(episodes, padding).rows
  expected = transition_hashes(episodes)
  assert rows.hashes().tolist() == expected
  assert rows.transitions == len(expected)
  assert rows.rows == sum(len(e.frame) for e in episodes)
  total = hashed_rows.total(rows.hashes())
  assert total == sum(expected) % (1 << 64)
  backwards = small_copies.MemoryCopy(episodes[::-1]).rows.hashes()
  assert hashed_rows.total(backwards) == total
  # Negative zero is zero.
  zeros = [
    small_copies.MemoryCopy([episodes[0].change('reward', 0, zero)])
    for zero in (0.0, -0.0)
  ]
  np.testing.assert_array_equal(*(copy.rows.hashes() for copy in zeros))
