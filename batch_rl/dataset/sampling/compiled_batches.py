"""Batches made by a compiled function, once it is loaded.

Numba takes half a second to import, and some ten seconds to compile the function, or a
minute on a busy machine. The result of compiling is kept on disk, beside the package or
in the user's cache directory (`NUMBA_CACHE_DIR` names another). From the first batch on,
a thread does both, and meanwhile `Sampler` makes the same batches without it.
"""

import importlib
import os
import threading
import time
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from batch_rl.dataset.store import frame_stacks
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils.native import mapped_files

_SECONDS_TO_LOAD = 2.0  # unless it has to be compiled
_COMPILING = 'Replay: sampling is being compiled; until then it is slower.'
_NOT_KEPT = (
  'Each run compiles it again, since no directory for the result is writable: set '
  'NUMBA_CACHE_DIR to one that is.'
)


class Columns(NamedTuple):
  """The small columns of n transitions.

  Attributes:
    rows: int64 (n,), row of each transition in the run.
    action: Integers (n,).
    reward: float32 (n,), n-step return: sum over j < steps of gamma^j r_{i+j}.
    next_action: int32 (n,), action at the next state.
    next_reward: float32 (n,), reward at the next state.
    terminal: uint8 (n,), 1 if the episode terminates within the steps.
    steps: int64 (n,), number of rows from the state to the next state.
    shard: int64 (n,), index of each row's shard in `Store.suffixes`.
    ring: int64 (n,), position of each row in its shard's ring.
  """

  rows: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  next_action: np.ndarray
  next_reward: np.ndarray
  terminal: np.ndarray
  steps: np.ndarray
  shard: np.ndarray
  ring: np.ndarray


class Draw(NamedTuple):
  """The seed of a batch, and the rows to draw from.

  Attributes:
    key: Key of the generator, uint64 (2,).
    number: Number of the batch.
    first: First row of each range of valid rows, int64 (ranges,).
    cumulative: Number of valid rows up to the end of each range, int64 (ranges,).
  """

  key: np.ndarray
  number: np.uint64
  first: np.ndarray
  cumulative: np.ndarray


_NOTHING = Draw(
  np.zeros(2, np.uint64),
  np.uint64(0),
  np.zeros(0, np.int64),
  np.zeros(0, np.int64),
)


class CompiledBatches:
  """Makes batches of a store by `batch_kernel.make_batch`.

  Args:
    store: Store of a run.
    stack_size: Number of frames in a state.
    discounts: Discount of each step of the n-step return, float32 (horizon,).
  """

  def __init__(
    self, store: store_lib.Store, stack_size: int, discounts: np.ndarray
  ):
    self._store = store
    # The function would be compiled again for other types of integers.
    self._stack_size = int(stack_size)
    self._length = self._stack_size + len(discounts)
    columns = store.ends, store.action, store.reward, discounts
    self._run = (*columns, *store.ring_places())
    self._kernel: Any = None
    self._thread: threading.Thread | None = None
    self._lock = threading.Lock()

  def __reduce__(self) -> tuple[Any, ...]:
    discounts = self._run[3]
    return CompiledBatches, (self._store, self._stack_size, discounts)

  def wait(self) -> bool:
    """Waits until the function is loaded; returns whether it can be used."""
    self._start_loading().join()
    return self._kernel is not None

  def _start_loading(self) -> threading.Thread:
    """Starts the thread at the first batch, so that it does not delay the start."""
    with self._lock:
      if self._thread is None:
        self._thread = threading.Thread(
          target=self._load, name='compiled_batches'
        )
        self._thread.start()
      return self._thread

  def make(
    self,
    rows: np.ndarray | int,
    draw: Draw | None,
    is_stacked: bool,
    batches: int = 1,
  ) -> tuple[Columns, list[np.ndarray]] | None:
    """Makes consecutive batches of n transitions.

    Args:
      rows: Rows of the run, int64 (n,), or the number of rows to draw for a batch.
      draw: Seed of the first batch, and rows to draw from; None if `rows` has the
        rows of a single batch.
      is_stacked: Whether to stack frames, which must be of bytes.
      batches: Number of batches.

    Returns:
      The small columns of all batches, one after the other; and for each batch
      windows (n, stack_size + horizon, *frame_shape), or states and next states
      (2, n, *frame_shape, stack_size). None if the function is not loaded yet, or
      fails, e.g. because a block is damaged.
    """
    if self._kernel is None:
      self._start_loading()
      return None
    return self._make(self._kernel, rows, draw, is_stacked, batches)

  def _make(self, kernel, rows, draw, is_stacked, batches):
    store, stack_size = self._store, self._stack_size
    tables = store.frame_tables
    n = int(rows) if draw else len(rows)
    total = n * batches
    columns = Columns(
      np.empty(total, np.int64) if draw else np.array(rows, np.int64),
      np.empty(total, store.action.dtype),
      np.empty(total, np.float32),
      np.empty(total, np.int32),
      np.empty(total, np.float32),
      np.empty(total, np.uint8),
      *np.empty((3, total), np.int64),
    )
    shape: tuple[int, ...] = (n, self._length, *store.frame_shape)
    if is_stacked:
      shape = 2, n, *store.frame_shape, stack_size
    frames = [
      frame_stacks.aligned(shape, store.frame_dtype) for _ in range(batches)
    ]
    outputs = np.array([array.ctypes.data for array in frames], np.int64)
    pwritev = tables.calls[3]
    copying = mapped_files.reserve() if pwritev else (0, 0, 0)
    while True:
      # Numba accepts plain tuples faster than named ones.
      status = kernel.make_batch(
        draw is not None,
        tuple(draw or _NOTHING),
        self._run,
        tuple(tables),
        copying,
        tuple(columns),
        self._length,
        stack_size if is_stacked else 0,
        n,
        outputs,
      )
      if status != kernel.NO_ROOM:
        return (columns, frames) if status == kernel.DONE else None
      copying = mapped_files.reserve(2 * copying[2])

  def _load(self) -> None:
    """Imports Numba, and compiles the function for this store, or loads it."""
    global _num_loading
    crc32 = self._store.frame_tables.calls[5]
    if _is_broken_by_fork or not crc32:
      return
    begin = time.perf_counter()
    slow = threading.Timer(_SECONDS_TO_LOAD, logging.info, [_COMPILING])
    slow.start()
    with _counting:
      _num_loading += 1
    try:
      kernel = importlib.import_module('batch_rl.dataset.sampling.batch_kernel')
      misses = kernel.make_batch.stats.cache_misses.total()
      self._make(kernel, np.zeros(0, np.int64), None, False, 1)
      if kernel.make_batch.stats.cache_misses.total() > misses:
        kept = kernel.make_batch.stats.cache_path is not None
        logging.info(
          'Replay: sampling was compiled in %.0f s. %s',
          time.perf_counter() - begin,
          'Later runs load the result.' if kept else _NOT_KEPT,
        )
      self._kernel = kernel
    except Exception as error:  # Batches can be made without.
      logging.warning(
        'Replay: sampling is slow, because it cannot be compiled: %s: %s',
        type(error).__name__,
        error,
      )
    finally:
      slow.cancel()
      with _counting:
        _num_loading -= 1


def _after_fork() -> None:
  """Gives up in a process forked during an import, which would never end."""
  global _is_broken_by_fork, _num_loading, _counting
  _is_broken_by_fork |= _num_loading > 0
  _num_loading, _counting = 0, threading.Lock()


_counting = threading.Lock()
_num_loading = 0
_is_broken_by_fork = False
os.register_at_fork(after_in_child=_after_fork)
