"""Parallel calls of a function, in threads."""

import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any


def parallel_map(
  function: Callable[[Any], Any],
  items: Iterable[Any],
  jobs: int,
  stop: Callable[[], None] = lambda: None,
) -> list[Any]:
  """Calls a function on each item, in threads.

  Args:
    function: Function of one item.
    items: Arguments of the calls.
    jobs: Number of threads.
    stop: Function called at the first exception or Ctrl-C, to end running calls.
      Pending calls are cancelled.

  Returns:
    Results in the order of the items.
  """
  with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    futures = [pool.submit(function, item) for item in items]
    try:
      for future in concurrent.futures.as_completed(futures):
        future.result()
    except BaseException:
      stop()
      pool.shutdown(wait=False, cancel_futures=True)
      raise
  return [future.result() for future in futures]
