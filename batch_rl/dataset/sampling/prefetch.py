"""Prefetching: numbered batches prepared by threads, taken in order."""

import atexit
import collections
import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

_SECONDS_TO_EXIT = 5.0  # a batch takes milliseconds, or waits for a shard
_TRANSITIONS_TOGETHER = 128
_STOPPED = 'This batch was dropped: the prefetcher was restarted or stopped.'
_prefetchers: weakref.WeakSet['Prefetcher'] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

Load = Callable[[int, int], Sequence[Any]]


def together(batch_size: int, ahead: int, threads: int) -> int:
  """Returns the number of batches that a thread should load in a call."""
  return max(1, min(_TRANSITIONS_TOGETHER // batch_size, ahead // threads))


class Prefetcher:
  """Numbered batches, prefetched and taken in order.

  Each worker thread prepares a few consecutive batches at a time. A batch depends on its
  number only, not on its worker.

  Args:
    load: Function from the number of a batch and a count to as many consecutive
      batches. Several threads call it at once. After an error, it is called again for
      each of the batches.
    ahead: Number of batches prefetched, at least 1.
    threads: Number of worker threads, at least 1.
    together: Number of batches loaded in a call. Up to `together - 1` more than `ahead`
      may be prefetched.
  """

  def __init__(self, load: Load, ahead: int, threads: int, together: int = 1):
    self._load = load
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
      for batch in self._batches:
        batch.cancel()
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
        self._start()
      while len(self._batches) <= self._ahead:
        stop = self._number + self._together
        batches = [_Batch(number) for number in range(self._number, stop)]
        self._number = stop
        self._batches.extend(batches)
        self._requests.put(batches)
      batch = self._batches.popleft()
      self._awaited.add(batch)
    try:
      found = batch.content.get()
      if isinstance(found, BaseException):
        raise found
      return found
    finally:
      self._awaited.discard(batch)

  def stop(self) -> None:
    """Ends the worker threads after their current batches; waits for none."""
    with self._lock:
      self._stopped = True
      self._load = lambda *_: ()  # a graph may keep this object, not its data
      for batch in (*self._batches, *self._awaited):
        batch.cancel()
    _end(self._requests, self._threads)

  def _start(self) -> None:
    """Starts workers, as daemons: one that waits for a shard does not delay the exit."""
    work = functools.partial(_work, self._load, self._requests)
    self._workers = [
      threading.Thread(target=work, name=f'batches_{i}', daemon=True)
      for i in range(self._threads)
    ]
    for worker in self._workers:
      worker.start()
    _threads.update(self._workers)


class _Batch:
  """A requested batch: its content, or an error in its place, once it is loaded."""

  def __init__(self, number: int):
    self.number = number
    self.is_cancelled = False
    self.content: queue.SimpleQueue[Any] = queue.SimpleQueue()

  def cancel(self) -> None:
    """Puts an error in the place of the content, unless that is there."""
    self.is_cancelled = True
    self.content.put(ValueError(_STOPPED))


def _work(load: Load, requests: queue.SimpleQueue[list[_Batch] | None]) -> None:
  """Loads requested batches until the request is None."""
  while (batches := requests.get()) is not None:
    _load(batches, load)
    del batches  # Their content is the taker's alone.


def _load(batches: list[_Batch], load: Load) -> None:
  """Loads consecutive batches; an error belongs to the taker of its batch."""
  batches = [batch for batch in batches if not batch.is_cancelled]
  if not batches:
    return
  try:
    contents = load(batches[0].number, len(batches))
    if len(contents) != len(batches):
      raise ValueError(f'{len(contents)} batches instead of {len(batches)}.')
  except BaseException as error:
    if len(batches) > 1:
      for batch in batches:
        _load([batch], load)
      return
    contents = [error]
  for batch, content in zip(batches, contents, strict=True):
    batch.content.put(content)


def _end(
  requests: queue.SimpleQueue[list[_Batch] | None], workers: int
) -> None:
  for _ in range(workers):
    requests.put(None)


@atexit.register
def _stop_all() -> None:
  """Stops the workers before the interpreter shuts down.

  Workers of deleted prefetchers may still make their last batches.
  """
  for prefetcher in list(_prefetchers):
    prefetcher.stop()
  deadline = time.monotonic() + _SECONDS_TO_EXIT
  for thread in list(_threads):
    thread.join(max(0.0, deadline - time.monotonic()))
