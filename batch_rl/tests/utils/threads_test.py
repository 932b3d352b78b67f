"""Calls in threads: results in order, and an early end after an error."""

import threading
import time

import pytest

from batch_rl.utils import threads


def test_results_are_in_the_order_of_the_items():
  def slow_first(item):
    time.sleep(0.02 * (3 - item))
    return item, threading.current_thread().name

  results = threads.parallel_map(slow_first, range(4), 4)
  assert [item for item, _ in results] == [0, 1, 2, 3]
  assert len({name for _, name in results}) == 4
  assert threads.parallel_map(slow_first, [], 1) == []


def test_an_error_ends_running_calls_and_cancels_the_others():
  stopped, begun = threading.Event(), []

  def work(item):
    begun.append(item)
    if item == 1:
      raise ValueError('item 1')
    assert stopped.wait(60)

  with pytest.raises(ValueError, match='item 1'):
    threads.parallel_map(work, range(50), 2, stopped.set)
  assert len(begun) < 50
