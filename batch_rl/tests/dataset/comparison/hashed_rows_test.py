"""Hashes of transitions against their definition, and their sum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.comparison import hashed_rows
from batch_rl.tests.dataset.comparison import slow_hashes, small_copies

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8)


@settings(max_examples=30)
@given(LENGTHS, st.integers(0, 3), st.integers(0, 99))
def test_hashes_are_as_defined(lengths, padding, seed):
  episodes = small_copies.make_episodes(lengths, seed)
  episodes[-1] = episodes[-1].part(0, lengths[-1] - 1)
  if not episodes[-1].frame:
    episodes.pop()
  rows = small_copies.MemoryCopy(episodes, padding).rows
  expected = slow_hashes.transition_hashes(episodes)
  assert rows.hashes().tolist() == expected
  assert rows.transitions == len(expected)
  assert rows.rows == sum(len(e.frame) for e in episodes)
  total = hashed_rows.total(rows.hashes())
  assert total == sum(expected) % (1 << 64)
  backwards = small_copies.MemoryCopy(episodes[::-1]).rows.hashes()
  assert hashed_rows.total(backwards) == total


def test_the_sum_depends_on_the_links_between_rows():
  """Two halves of episodes are exchanged: the rows are the same."""
  one, two = small_copies.make_episodes([8, 8])

  def join(head, tail):
    columns = ('frame', 'action', 'reward')
    joined = [getattr(head, c)[:4] + getattr(tail, c)[4:] for c in columns]
    return small_copies.Episode(*joined)

  sums = [
    hashed_rows.total(small_copies.MemoryCopy(episodes).rows.hashes())
    for episodes in ([one, two], [join(one, two), join(two, one)])
  ]
  assert sums[0] != sums[1]


def test_negative_zero_is_zero():
  (episode,) = small_copies.make_episodes([5])
  hashes = [
    small_copies.MemoryCopy([episode.change('reward', 2, zero)]).rows.hashes()
    for zero in (0.0, -0.0)
  ]
  np.testing.assert_array_equal(*hashes)


def test_mean_return_is_that_of_terminated_episodes():
  episodes = small_copies.make_episodes([20, 30, 10])
  copy = small_copies.MemoryCopy([*episodes[:2], episodes[2].part(0, 9)], 3)
  expected = np.mean([sum(episode.reward) for episode in episodes[:2]])
  assert copy.rows.mean_return() == pytest.approx(expected)
  unended = small_copies.MemoryCopy([episodes[2].part(0, 9)])
  assert unended.rows.mean_return() is None
