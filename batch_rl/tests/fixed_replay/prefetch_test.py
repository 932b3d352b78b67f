"""Batches arrive in order, whoever prepares them."""

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


def test_batches_are_in_order_whatever_the_threads_do(make_feed):
  random = np.random.default_rng(0)
  delays = random.uniform(0, 0.004, 200)

  def load(number):
    time.sleep(delays[number])
    return np.int64(number), np.full(2, number, np.float32)

  _, get = make_feed(load)
  for number in range(100):
    found, array = get()
    assert found == number and (array == number).all()


def test_nothing_is_tuned(make_feed):
  """A restart would wait, now and then, for the thread that does it."""
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
  assert enough.wait(10)  # nobody has asked for them
  assert threading.get_ident() not in threads


def test_a_restart_drops_what_was_prepared(make_feed):
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


def test_what_goes_wrong_is_said_when_it_is_asked_for(make_feed):
  def load(number):
    if number == 3:
      raise ValueError('shard 7 is damaged')
    return np.int64(number), np.zeros(2, np.float32)

  _, get = make_feed(load)
  assert [int(get()[0]) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(tf.errors.OpError, match='shard 7 is damaged'):
    get()


_EXITS_IN_THE_MIDST = """
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
  for _ in range(2):
    done = subprocess.run(
      [sys.executable, '-c', _EXITS_IN_THE_MIDST],
      capture_output=True,
      text=True,
      timeout=60,
      check=False,
    )
    assert done.returncode == 0 and done.stdout == '[np.int64(0)]\n', (
      done.stderr
    )
