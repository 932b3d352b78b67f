import threading

import pytest

from batch_rl.utils import threads


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
