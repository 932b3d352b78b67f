"""Batches prepared ahead arrive in order."""

import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

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
      batch = feed.next()
      session = tf.compat.v1.Session()
    return feed, lambda: session.run(batch)

  return make


def numbered(number):
  return np.int64(number), np.full(2, number, np.float32)


@pytest.mark.parametrize('ahead', [1, 4])
@pytest.mark.parametrize('threads', [1, 2, 5])
def test_batches_are_in_order_with_slow_threads(make_feed, threads, ahead):
  random = np.random.default_rng(0)
  delays = random.uniform(0, 0.004, 200)

  def load(number):
    time.sleep(delays[number])
    return numbered(number)

  _, get = make_feed(load, ahead, threads)
  for number in range(60):
    found, array = get()
    assert found == number and (array == number).all()


def test_takers_share_the_batches(make_feed):
  """Sessions may take batches at once; each batch is taken once."""
  _, get = make_feed(numbered)
  found = []

  def take():
    for _ in range(50):
      found.append(int(get()[0]))

  takers = [threading.Thread(target=take) for _ in range(3)]
  for taker in takers:
    taker.start()
  for taker in takers:
    taker.join()
  assert sorted(found) == list(range(150))


def test_a_thread_keeps_what_is_its_own(make_feed):
  """E.g. the sampler's random generators."""
  local = threading.local()
  made = []

  def load(number):
    if not hasattr(local, 'generator'):
      local.generator = object()
      made.append(local.generator)
    return numbered(number)

  _, get = make_feed(load, threads=2)
  for _ in range(40):
    get()
  assert 1 <= len(made) <= 2


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


def test_a_restart_drops_batches_in_preparation(make_feed):
  """Their threads may be busy or waiting; one may have failed."""
  version = 0
  go_on = threading.Event()

  def load(number):
    found = version
    if not found and number:
      go_on.wait(10)
      raise ValueError('dropped')
    return np.int64(number), np.full(2, found, np.float32)

  feed, get = make_feed(load, ahead=6, threads=2)
  assert get()[0] == 0
  version = 1
  feed.restart(3)
  go_on.set()
  for number in range(3, 23):
    found, array = get()
    assert found == number and (array == 1).all()


def test_an_error_is_raised_by_the_batch_it_concerns(make_feed):
  def load(number):
    if number == 3:
      raise ValueError('shard 7 is damaged')
    return numbered(number)

  _, get = make_feed(load)
  assert [int(get()[0]) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(tf.errors.OpError, match='shard 7 is damaged'):
    get()
  assert get()[0] == 4


def test_arrays_of_another_shape_are_refused(make_feed):
  _, get = make_feed(lambda number: (np.int64(number), np.zeros(3, np.float32)))
  with pytest.raises(tf.errors.InvalidArgumentError, match='shape'):
    get()


def test_threads_start_with_the_first_batch_and_end_with_the_feed(make_feed):
  before = set(threading.enumerate())
  feed, get = make_feed(numbered, threads=2)
  assert set(threading.enumerate()) == before
  get()
  workers = set(threading.enumerate()) - before
  assert len(workers) == 2
  del feed, get
  gc.collect()
  for worker in workers:
    worker.join(10)
    assert not worker.is_alive()


_EXIT = """
import threading, time
import numpy as np
import batch_rl
import tensorflow as tf
from batch_rl.fixed_replay.replay_memory import prefetch
tf.compat.v1.disable_v2_behavior()
prefetch._SECONDS_TO_EXIT = 0.1
def load(number):
  if number > 4 and {stuck}:
    threading.Event().wait()
  time.sleep(0.01)
  return (np.int64(number),)
feeds = [prefetch.Prefetcher(load, [np.int64], [()], 8, 2) for _ in range(3)]
batches = [feed.next() for feed in feeds]
session = tf.compat.v1.Session()
print(session.run(batches[0]), session.run(batches[1]))
def take():
  while True:
    session.run(batches[0])
if {taken}:
  threading.Thread(target=take, daemon=True).start()
  time.sleep(0.1)
"""


@pytest.mark.parametrize(('stuck', 'taken'), [(False, False), (True, True)])
def test_python_exits_while_batches_are_prepared(stuck, taken):
  done = subprocess.run(
    [sys.executable, '-c', _EXIT.format(stuck=stuck, taken=taken)],
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout == '[np.int64(0)] [np.int64(0)]\n', done.stderr
