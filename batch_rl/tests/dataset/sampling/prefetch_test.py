import threading
import time
import traceback

import numpy as np
import pytest

from batch_rl.dataset.sampling import prefetch


def numbered(first, count):
  return list(range(first, first + count))


def make(load=numbered, ahead=8, threads=3, together=1):
  return prefetch.Prefetcher(load, ahead, threads, together)


def take(feed, count):
  return [feed.take() for _ in range(count)]


@pytest.mark.parametrize('ahead', [1, 8])
@pytest.mark.parametrize('threads', [1, 5])
@pytest.mark.parametrize('together', [1, 3, 10])
def test_batches_are_in_order_with_slow_threads(threads, ahead, together):
  delays = np.random.default_rng(0).uniform(0, 0.004, 200)
  calls = []

  def load(first, count):
    calls.append((first, count))
    time.sleep(delays[first])
    return numbered(first, count)

  feed = make(load, ahead, threads, together)
  for first in (0, 40, 7):
    feed.restart(first)
    assert take(feed, 30) == list(range(first, first + 30))
  assert {count for _, count in calls} == {together}


def test_as_many_more_may_be_ahead_as_are_loaded_together():
  loaded, threads = [], set()

  def load(first, count):
    threads.add(threading.get_ident())
    loaded.extend(range(first, first + count))
    return numbered(first, count)

  feed = make(load, 8, 2, 4)
  for number in range(30):
    assert feed.take() == number
    assert max(loaded) <= number + 8 + 4
  deadline = time.monotonic() + 10
  while max(loaded) < 29 + 8 and time.monotonic() < deadline:
    time.sleep(0.001)
  assert max(loaded) >= 29 + 8
  assert threading.get_ident() not in threads and len(threads) <= 2


@pytest.mark.parametrize('together', [1, 4])
def test_a_restart_drops_batches_in_preparation(together):
  """Their threads may be busy or waiting; one may have failed."""
  version = 0
  go_on = threading.Event()

  def load(first, count):
    found = version
    if not found and first:
      go_on.wait(10)
      raise ValueError('dropped')
    return [(number, found) for number in range(first, first + count)]

  feed = make(load, 6, 2, together)
  assert feed.take() == (0, 0)
  version = 1
  feed.restart(2)  # maybe within the batches of the first call
  go_on.set()
  assert take(feed, 20) == [(number, 1) for number in range(2, 22)]


@pytest.mark.parametrize('error', [ValueError, SystemExit])
@pytest.mark.parametrize('together', [1, 4])
def test_an_error_is_raised_by_the_batch_it_concerns(together, error):
  def load(first, count):
    if first <= 6 < first + count:
      raise error('shard 7 is damaged')
    return numbered(first, count)

  feed = make(load, together=together)
  assert take(feed, 6) == list(range(6))
  with pytest.raises(error, match='shard 7 is damaged') as raised:
    feed.take()
  lines = ''.join(traceback.format_exception(raised.value))
  assert "raise error('shard 7 is damaged')" in lines
  assert take(feed, 20) == list(range(7, 27))
