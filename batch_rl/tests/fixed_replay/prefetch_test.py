"""Batches prepared ahead reach a graph in order; see `dataset/sampling/prefetch_test`."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.fixed_replay.replay_memory import prefetch


def make_feed(load):
  """Returns a function that runs a session for the next batch."""
  with tf.Graph().as_default():
    feed = prefetch.Prefetcher(
      load, [np.int64, np.float32], [(), (2,)], ahead=4, threads=3
    )
    batch = feed.next()
    session = tf.compat.v1.Session()
  return lambda: session.run(batch)


def test_batches_are_in_order_and_errors_are_those_of_their_batch():
  def load(number):
    if number == 3:
      raise ValueError('shard 7 is damaged')
    return np.int64(number), np.full(2, number, np.float32)

  get = make_feed(load)
  for number in range(3):
    found, array = get()
    assert found == number and (array == number).all()
  with pytest.raises(tf.errors.OpError, match='shard 7 is damaged'):
    get()
  assert get()[0] == 4


def test_arrays_of_another_shape_are_refused():
  get = make_feed(lambda number: (np.int64(number), np.zeros(3, np.float32)))
  with pytest.raises(tf.errors.InvalidArgumentError, match='shape'):
    get()


# Feeds of both kinds: idle ones, a stuck one, and a stuck one that is waited for.
_EXIT = """
import sys, threading, time
import numpy as np
import batch_rl.agents
import tensorflow as tf
from batch_rl.dataset.sampling import prefetch as base
from batch_rl.fixed_replay.replay_memory import block_prefetch, prefetch
tf.compat.v1.disable_v2_behavior()
base._SECONDS_TO_EXIT = 0.1
# An error names the lines that built the node; TensorFlow does not keep their code.
code = sys._getframe().f_code
def load(number):
  time.sleep(0.01)
  return (np.int64(number),)
def get_stuck(number):
  if number > 4:
    threading.Event().wait()
  return load(number)
def load_block(first):
  time.sleep(0.01)
  return (np.arange(first, first + 2),)
feeds = [
  prefetch.Prefetcher(function, [np.int64], [()], 8, 2)
  for function in (load, load, get_stuck, get_stuck)
]
feeds.append(block_prefetch.BlockPrefetcher(load_block, [np.int64], [()], 8, 2))
with tf.control_dependencies([feeds[-1].ready]):
  batches = [feed.next() for feed in feeds]
session = tf.compat.v1.Session()
print(*(session.run(batch) for batch in batches[1:]))
def take():
  while True:
    session.run(batches[-2])
threading.Thread(target=take, daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.waits
def test_python_exits_while_a_graph_waits_for_batches():
  done = subprocess.run(
    [sys.executable, '-c', _EXIT],
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == ['[np.int64(0)]'] * 4, done.stderr
