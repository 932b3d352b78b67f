"""Batches prepared ahead arrive in order."""

import gc
import subprocess
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

from batch_rl.dataset.sampling import prefetch


def make(load, ahead=4, threads=3):
  """Returns a prefetcher, and the function that takes its next batch."""
  feed = prefetch.Prefetcher(load, ahead, threads)
  return feed, feed.take


def numbered(number):
  return number, np.full(2, number, np.float32)


@pytest.mark.parametrize('ahead', [1, 4])
@pytest.mark.parametrize('threads', [1, 2, 5])
def test_batches_are_in_order_with_slow_threads(threads, ahead):
  random = np.random.default_rng(0)
  delays = random.uniform(0, 0.004, 200)

  def load(number):
    time.sleep(delays[number])
    return numbered(number)

  _, get = make(load, ahead, threads)
  for number in range(60):
    found, array = get()
    assert found == number and (array == number).all()


def test_takers_share_the_batches():
  """Threads may take batches at once; each batch is taken once."""
  _, get = make(numbered)
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


def test_a_thread_keeps_what_is_its_own():
  """E.g. the sampler's random generators."""
  local = threading.local()
  made = []

  def load(number):
    if not hasattr(local, 'generator'):
      local.generator = object()
      made.append(local.generator)
    return numbered(number)

  _, get = make(load, threads=2)
  for _ in range(40):
    get()
  assert 1 <= len(made) <= 2


def test_batches_are_prepared_ahead_in_threads():
  seen, threads = [], set()
  enough = threading.Event()

  def load(number):
    seen.append(number)
    threads.add(threading.get_ident())
    if len(seen) >= 5:
      enough.set()
    return np.int64(number), np.zeros(2, np.float32)

  _, get = make(load)
  assert get()[0] == 0
  assert enough.wait(10)  # before they are requested
  assert threading.get_ident() not in threads


def test_a_restart_drops_prepared_batches():
  seed = 1
  feed, get = make(
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


def test_a_restart_drops_batches_in_preparation():
  """Their threads may be busy or waiting; one may have failed."""
  version = 0
  go_on = threading.Event()

  def load(number):
    found = version
    if not found and number:
      go_on.wait(10)
      raise ValueError('dropped')
    return np.int64(number), np.full(2, found, np.float32)

  feed, get = make(load, ahead=6, threads=2)
  assert get()[0] == 0
  version = 1
  feed.restart(3)
  go_on.set()
  for number in range(3, 23):
    found, array = get()
    assert found == number and (array == 1).all()


def test_an_error_is_raised_by_the_batch_it_concerns():
  def load(number):
    if number == 3:
      raise ValueError('shard 7 is damaged')
    return numbered(number)

  _, get = make(load)
  assert [int(get()[0]) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(ValueError, match='shard 7 is damaged') as raised:
    get()
  lines = ''.join(traceback.format_exception(raised.value))
  assert "raise ValueError('shard 7 is damaged')" in lines
  assert get()[0] == 4


# --- consecutive batches -------------------------------------------------------


@pytest.mark.parametrize('together', [1, 3, 8])
@pytest.mark.parametrize('ahead', [1, 8])
def test_batches_loaded_together_are_in_order(together, ahead):
  calls = []

  def load_consecutive(first, count):
    calls.append((first, count))
    # A third of the calls leave their batches to `load`.
    if first // together % 3 == 2:
      return None
    return [(number, 'together') for number in range(first, first + count)]

  feed = prefetch.Prefetcher(
    lambda number: (number, 'alone'), ahead, 3, load_consecutive, together
  )
  ways = set()
  for first in (0, 40):
    feed.restart(first)
    for number in range(first, first + 40):
      found, way = feed.take()
      assert found == number
      ways.add(way)
  assert ways == {'alone', 'together'}
  assert {count for _, count in calls} == {together}


def test_as_many_more_may_be_ahead_as_are_loaded_together():
  loaded = []

  def load_consecutive(first, count):
    loaded.extend(range(first, first + count))
    return range(first, first + count)

  feed = prefetch.Prefetcher(numbered, 8, 1, load_consecutive, 4)
  for number in range(30):
    assert feed.take() == number
    assert max(loaded) <= number + 8 + 4
  deadline = time.monotonic() + 10
  while max(loaded) < 29 + 8 and time.monotonic() < deadline:
    time.sleep(0.001)
  assert max(loaded) >= 29 + 8


@pytest.mark.parametrize('error', [ValueError, SystemExit])
def test_an_error_among_batches_loaded_together_is_of_one_batch(error):
  def load(number):
    if number == 6:
      raise error('shard 7 is damaged')
    return number

  def load_consecutive(first, count):
    numbers = range(first, first + count)
    return None if 6 in numbers else numbers

  feed = prefetch.Prefetcher(load, 8, 2, load_consecutive, 4)
  assert [feed.take() for _ in range(6)] == list(range(6))
  with pytest.raises(error, match='shard 7 is damaged'):
    feed.take()
  assert [feed.take() for _ in range(20)] == list(range(7, 27))


@pytest.mark.parametrize(
  ('contents', 'message'),
  [
    (lambda: 1 / 0, 'division by zero'),
    (lambda: [0], '1 batches were loaded instead of 4'),
    (lambda: range(5), '5 batches were loaded instead of 4'),
  ],
)
def test_an_error_in_loading_batches_together_is_of_all_of_them(
  contents, message
):
  def load_consecutive(first, count):
    return contents() if first == 4 else range(first, first + count)

  feed = prefetch.Prefetcher(numbered, 8, 2, load_consecutive, 4)
  assert [feed.take() for _ in range(4)] == list(range(4))
  for _ in range(4):
    with pytest.raises((ValueError, ZeroDivisionError), match=message):
      feed.take()
  assert [feed.take() for _ in range(20)] == list(range(8, 28))


def test_a_restart_drops_batches_loaded_together():
  version = 0
  go_on = threading.Event()

  def load_consecutive(first, count):
    found = version
    if not found and first:
      go_on.wait(10)
    return [(number, found) for number in range(first, first + count)]

  feed = prefetch.Prefetcher(numbered, 8, 2, load_consecutive, 4)
  assert feed.take() == (0, 0)
  version = 1
  feed.restart(2)  # within the batches of the first call
  go_on.set()
  assert [feed.take() for _ in range(20)] == [(n, 1) for n in range(2, 22)]


def test_threads_start_with_the_first_batch_and_end_with_the_feed():
  before = set(threading.enumerate())
  feed, get = make(numbered, threads=2)
  # Threads of earlier tests may end meanwhile.
  assert set(threading.enumerate()) <= before
  get()
  workers = set(threading.enumerate()) - before
  assert len(workers) == 2
  del feed, get
  gc.collect()
  for worker in workers:
    worker.join(10)
    assert not worker.is_alive()


def test_the_exit_waits_for_threads_of_feeds_that_are_gone(monkeypatch):
  """A thread that returns to Python while it is taken down can crash it."""
  for name in ('_prefetchers', '_threads'):
    monkeypatch.setattr(prefetch, name, weakref.WeakSet())

  begun, go_on = threading.Event(), threading.Event()

  def load(number):
    if number:
      begun.set()
      go_on.wait(10)
    return number

  before = set(threading.enumerate())
  feed = prefetch.Prefetcher(load, ahead=1, threads=1)
  assert feed.take() == 0
  [worker] = set(threading.enumerate()) - before
  assert begun.wait(10)
  del feed
  gc.collect()
  assert worker.is_alive()
  threading.Timer(0.1, go_on.set).start()
  prefetch._stop_all()
  assert not worker.is_alive()


_EXIT = """
import threading, time
from batch_rl.dataset.sampling import prefetch
prefetch._SECONDS_TO_EXIT = 0.1
def load(number):
  if number > 4 and {stuck}:
    threading.Event().wait()
  time.sleep(0.01)
  return number
feeds = [prefetch.Prefetcher(load, 8, 2) for _ in range(3)]
print(feeds[0].take(), feeds[1].take())
"""


@pytest.mark.parametrize('stuck', [False, True])
def test_python_exits_while_batches_are_prepared(stuck):
  done = subprocess.run(
    [sys.executable, '-c', _EXIT.format(stuck=stuck)],
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert (done.returncode, done.stdout, done.stderr) == (0, '0 0\n', '')
