"""Batches made in blocks arrive one by one, in order."""

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.fixed_replay.replay_memory import block_prefetch


def make_feed(load, ahead=4, size=3):
  """Returns a feed of numbers and pairs, and a function that gets the next batch."""
  with tf.Graph().as_default():
    feed = block_prefetch.BlockPrefetcher(
      load, [np.int64, np.float32], [(), (2,)], ahead, size
    )
    with tf.control_dependencies([feed.ready]):
      batch = feed.next()
    session = tf.compat.v1.Session()
  return feed, lambda: session.run(batch)


def block(first, size=3):
  numbers = np.arange(first, first + size)
  return numbers, np.stack([numbers, -numbers], 1).astype(np.float32)


@pytest.mark.parametrize('ahead', [1, 4, 50])
def test_batches_are_in_order_and_restart_anywhere(ahead):
  feed, get = make_feed(block, ahead)
  for first in (0, 40, 7):
    feed.restart(first)
    for number in range(first, first + 10):
      found, pair = get()
      assert found == number
      np.testing.assert_array_equal(pair, [number, -number])


def test_an_error_is_raised_by_a_batch_of_its_block():
  def load(first):
    if first == 3:
      raise ValueError('shard 7 is damaged')
    return block(first)

  _, get = make_feed(load)
  assert [int(get()[0]) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(tf.errors.OpError, match='shard 7 is damaged'):
    get()
