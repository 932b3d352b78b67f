"""Batches prepared ahead arrive in order."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2

from batch_rl.fixed_replay.replay_memory import prefetch


@pytest.fixture
def make_feed():
  """Returns a function that makes a feed, and one that gets its next batch."""

  def make(load, ahead=4, threads=3):
    graph = tf.Graph()
    with graph.as_default():
      feed = prefetch.Prefetcher(
        load, [np.int64, np.float32], [(), (2,)], ahead, threads
      )
      with tf.control_dependencies([feed.ready]):
        batch = feed.next()
      session = tf.compat.v1.Session()
    return feed, lambda: session.run(batch)

  return make


def test_batches_are_in_order_with_slow_threads(make_feed):
  random = np.random.default_rng(0)
  delays = random.uniform(0, 0.004, 200)

  def load(number):
    time.sleep(delays[number])
    return np.int64(number), np.full(2, number, np.float32)

  _, get = make_feed(load)
  for number in range(100):
    found, array = get()
    assert found == number and (array == number).all()


def test_autotuning_is_off(make_feed):
  """A restart would sometimes wait for its thread."""
  feed, _ = make_feed(
    lambda number: (np.int64(number), np.zeros(2, np.float32))
  )
  graph_def = feed.ready.graph.as_graph_def()
  functions = graph_def.library.function
  nodes = [*graph_def.node, *(n for f in functions for n in f.node_def)]
  [node] = [node for node in nodes if node.op == 'OptionsDataset']
  options = dataset_options_pb2.Options()
  options.ParseFromString(node.attr['serialized_options'].s)
  assert not options.autotune_options.enabled
  assert options.autotune_options.HasField('enabled')


def test_batches_are_prepared_ahead_in_threads(make_feed):
  seen, threads = [], set()
  enough = threading.Event()

  def load(number):
    seen.append(number)
    threads.add(threading.get_ident())
    if len(seen) >= 5:
      enough.set()
    return np.int64(number), np.zeros(2, np.float32)

  _, get = make_feed(load)
  assert get()[0] == 0
  assert enough.wait(10)  # before they are requested
  assert threading.get_ident() not in threads


def test_a_restart_drops_prepared_batches(make_feed):
  seed = 1
  feed, get = make_feed(
    lambda number: (np.int64(number), np.full(2, seed, np.float32))
  )
  assert [get()[0] for _ in range(3)] == [0, 1, 2]
  seed = 2
  feed.restart()
  for number in range(5):
    found, array = get()
    assert found == number and (array == 2).all()
  feed.restart(40)
  assert [int(get()[0]) for _ in range(3)] == [40, 41, 42]


def test_an_error_is_raised_by_the_batch_it_concerns(make_feed):
  def load(number):
    if number == 3:
      raise ValueError('shard 7 is damaged')
    return np.int64(number), np.zeros(2, np.float32)

  _, get = make_feed(load)
  assert [int(get()[0]) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(tf.errors.OpError, match='shard 7 is damaged'):
    get()


_EXITS_WHILE_PREPARING = """
import time
import numpy as np
import batch_rl
import tensorflow as tf
from batch_rl.fixed_replay.replay_memory import prefetch as feed_lib
tf.compat.v1.disable_v2_behavior()
def load(number):
  time.sleep(0.01)
  return (np.int64(number),)
feed = feed_lib.Prefetcher(load, [np.int64], [()], 8, 2)
with tf.control_dependencies([feed.ready]):
  batch = feed.next()
session = tf.compat.v1.Session()
print(session.run(batch))
"""


def test_python_exits_while_batches_are_prepared():
  done = subprocess.run(
    [sys.executable, '-c', _EXITS_WHILE_PREPARING],
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.returncode == 0 and done.stdout == '[np.int64(0)]\n', done.stderr
