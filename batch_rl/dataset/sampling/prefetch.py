"""Prefetching: numbered batches prepared ahead by threads, taken in order."""

import atexit
import collections
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_SECONDS_TO_EXIT = 5.0  # a batch takes milliseconds, or waits for a shard
_STOPPED = 'The batches were dropped, by a restart or because Python exits.'
_prefetchers: weakref.WeakSet['Prefetcher'] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Prefetcher:
  """Numbered batches, prepared ahead and taken in order.

  Each worker thread prepares one batch at a time, or a few consecutive ones. A batch
  depends on its number only, not on its worker.

  Args:
    load: Function from the number of a batch to the batch. Several threads call it
      at once.
    ahead: Number of batches prepared ahead, at least 1.
    threads: Number of worker threads, at least 1.
    load_consecutive: Function from the number of a batch and a count to as many
      consecutive batches; or to None, if `load` must load each of them, e.g. because
      one cannot be read. None to load all batches by `load`.
    together: Number of batches to load by `load_consecutive`. As many more may be
      ahead.
  """

  def __init__(
    self,
    load: Callable[[int], Any],
    ahead: int,
    threads: int,
    load_consecutive: Callable[[int, int], Sequence[Any] | None] | None = None,
    together: int = 1,
  ):
    self._loaders = load, load_consecutive
    self._ahead = ahead
    self._threads = threads
    self._together = together
    self._workers: list[threading.Thread] = []
    self._requests: queue.SimpleQueue[list[_Batch] | None] = queue.SimpleQueue()
    self._batches: collections.deque[_Batch] = collections.deque()
    self._number = 0  # of the next request
    self._awaited: set[_Batch] = set()
    self._stopped = False
    self._lock = threading.Lock()
    _prefetchers.add(self)
    # The workers have no reference to this object, so that they end with it.
    weakref.finalize(self, _end, self._requests, threads).atexit = False

  def restart(self, first: int = 0) -> None:
    """Drops the prepared batches; the next batch is number `first`."""
    with self._lock:
      self._number = first
      _cancel(self._batches)
      self._batches.clear()

  def take(self) -> Any:
    """Returns the next batch, and requests another one.

    Raises:
      BaseException: If loading the batch raised it; its traceback is kept.
      ValueError: If the prefetcher is stopped.
    """
    with self._lock:
      if self._stopped:
        raise ValueError(_STOPPED)
      if not self._workers:
        self._workers = _start(self._loaders, self._requests, self._threads)
      while len(self._batches) <= self._ahead:
        stop = self._number + self._together
        batches = [_Batch(number) for number in range(self._number, stop)]
        self._number = stop
        self._batches.extend(batches)
        self._requests.put(batches)
      batch = self._batches.popleft()
      self._awaited.add(batch)
    try:
      return batch.result()
    finally:
      self._awaited.discard(batch)

  def stop(self) -> None:
    """Ends the worker threads after their current batches; waits for none."""
    with self._lock:
      self._stopped = True
      _cancel([*self._batches, *self._awaited])
    _end(self._requests, self._threads)


class _Batch:
  """A requested batch: its content, or an error in its place, once it is loaded."""

  def __init__(self, number: int):
    self.number = number
    self.is_cancelled = False
    self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()

  def load(self, load: Callable[[int], Any]) -> None:
    """Loads the batch, in a worker thread."""
    if self.is_cancelled:
      return
    try:
      self.put(load(self.number))
    except BaseException as error:  # It belongs to the taker of the batch.
      self.put(error)

  def put(self, content: Any) -> None:
    """Hands over the content, or an error in its place."""
    self._results.put(content)

  def cancel(self) -> None:
    """Puts an error in the place of the content, unless that is there."""
    self.is_cancelled = True
    self.put(ValueError(_STOPPED))

  def result(self) -> Any:
    """Waits for the batch and returns it.

    Raises:
      BaseException: If loading raised it.
    """
    found = self._results.get()
    if isinstance(found, BaseException):
      raise found
    return found


def _start(
  loaders: tuple[Any, Any],
  requests: queue.SimpleQueue[list[_Batch] | None],
  count: int,
) -> list[threading.Thread]:
  """Starts workers, as daemons: one that waits for a shard does not delay the exit."""
  workers = [
    threading.Thread(
      target=_work, args=(*loaders, requests), name=f'batches_{i}', daemon=True
    )
    for i in range(count)
  ]
  for worker in workers:
    worker.start()
  _threads.update(workers)
  return workers


def _work(
  load: Callable[[int], Any],
  load_consecutive: Callable[[int, int], Sequence[Any] | None] | None,
  requests: queue.SimpleQueue[list[_Batch] | None],
) -> None:
  """Loads requested batches until the request is None."""
  while (batches := requests.get()) is not None:
    if not _load_consecutive(batches, load_consecutive):
      for batch in batches:
        batch.load(load)
        del batch
    del batches  # Their content is the taker's alone.


def _load_consecutive(
  batches: list[_Batch],
  load: Callable[[int, int], Sequence[Any] | None] | None,
) -> bool:
  """Loads consecutive batches at once, unless `load` must load each of them."""
  if load is None or any(batch.is_cancelled for batch in batches):
    return False
  contents: Sequence[Any] | None
  try:
    contents = load(batches[0].number, len(batches))
    if contents is not None and len(contents) != len(batches):
      raise ValueError(
        f'{len(contents)} batches were loaded instead of {len(batches)}.'
      )
  except BaseException as error:  # It belongs to the takers of the batches.
    contents = [error] * len(batches)
  if contents is None:
    return False
  for batch, content in zip(batches, contents, strict=True):
    batch.put(content)
  return True


def _cancel(batches: Iterable[_Batch]) -> None:
  for batch in batches:
    batch.cancel()


def _end(
  requests: queue.SimpleQueue[list[_Batch] | None], workers: int
) -> None:
  for _ in range(workers):
    requests.put(None)


@atexit.register
def _stop_all() -> None:
  """Stops all prefetchers: no worker computes while Python is taken down.

  That includes those of prefetchers that are gone, in their last batches.
  """
  for prefetcher in list(_prefetchers):
    prefetcher.stop()
  deadline = time.monotonic() + _SECONDS_TO_EXIT
  for thread in list(_threads):
    thread.join(max(0.0, deadline - time.monotonic()))
