"""Batches of transitions, made by a compiled function once it is loaded.

Numba takes half a second to import, and some ten seconds to compile the function, or a
minute on a busy machine. The result of compiling is kept on disk, beside the package or
in the user's cache directory (`NUMBA_CACHE_DIR` names another). From the first batch on,
a thread does both, and meanwhile `Sampler` makes the same batches without it.
"""

import os
import threading
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from batch_rl.dataset.store import frame_stacks
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils.native import mapped_files

_SECONDS_TO_LOAD = 5.0  # on a busy machine, unless it has to be compiled
_COMPILING = (
  'Replay: sampling is being compiled; until then it is slower. The result is kept; if '
  'every start compiles it again, set NUMBA_CACHE_DIR to a writable directory.'
)

# Arguments of a draw, for rows that are given.
_NO_ROWS = np.zeros(0, np.int64)
_NO_DRAW = np.zeros(2, np.uint64), np.uint64(0), _NO_ROWS, _NO_ROWS


class Batch(NamedTuple):
  """A batch of n transitions; w is `stack_size + update_horizon`.

  Its frames are windows, or stacks, or left out.

  Attributes:
    rows: int64 (n,), row of each transition in the run.
    action: Integers (n,).
    reward: float32 (n,), n-step return: sum over j < steps of gamma^j r_{i+j}.
    next_action: int32 (n,), action in the next state.
    next_reward: float32 (n,), reward of the action in the next state.
    terminal: uint8 (n,), 1 if the episode terminates within the steps.
    steps: int64 (n,), `update_horizon`, or fewer if the episode ends earlier.
    stack_size: Number of frames in a state.
    windows: (n, w, *frame_shape), consecutive frames. The state is the first
      `stack_size` of them; the next state begins at frame `steps`.
    stacks: States and next states, (n, *frame_shape, stack_size) each.
  """

  rows: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  next_action: np.ndarray
  next_reward: np.ndarray
  terminal: np.ndarray
  steps: np.ndarray
  stack_size: int
  windows: Any = None
  stacks: Any = None

  def stacked(self) -> 'Batch':
    """Returns a batch with stacks in place of windows."""
    stacks = tuple(
      frame_stacks.channels_last(self.windows, first, self.stack_size)
      for first in (np.zeros_like(self.steps), self.steps)
    )
    return self._replace(windows=None, stacks=stacks)

  @property
  def state(self) -> np.ndarray:
    """States (n, stack_size, *frame_shape), oldest frame first: a view of `windows`.

    States from `stacks` are (n, *frame_shape, stack_size).
    """
    if self.stacks is not None:
      return self.stacks[0]
    return self.windows[:, : self.stack_size]

  @property
  def next_state(self) -> np.ndarray:
    """Next states, as `state`; a copy if some episode ends within the steps."""
    if self.stacks is not None:
      return self.stacks[1]
    horizon = self.windows.shape[1] - self.stack_size
    if (self.steps == horizon).all():
      return self.windows[:, horizon:]
    frames = self.steps[:, None] + np.arange(self.stack_size)
    return self.windows[np.arange(len(frames))[:, None], frames]


# The columns that compiled code makes, in its order.
COLUMNS = Batch._fields[:7]


class CompiledBatches:
  """Makes batches of a store by `batch_kernel.make_batch`.

  Args:
    store: Store of a run.
    stack_size: Number of frames in a state.
    discounts: Discount of each step of the n-step return, float32 (horizon,).

  Attributes:
    length: Number of frames in a window.
  """

  def __init__(
    self, store: store_lib.Store, stack_size: int, discounts: np.ndarray
  ):
    self._store = store
    # The function would be compiled again for other types of integers.
    self._stack_size = int(stack_size)
    self.length = self._stack_size + len(discounts)
    self._run = store.ends, store.action, store.reward, discounts
    self._kernel: Any = None
    self._thread: threading.Thread | None = None
    self._lock = threading.Lock()

  def __reduce__(self) -> tuple[Any, ...]:
    return CompiledBatches, (self._store, self._stack_size, self._run[3])

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
    rows: np.ndarray,
    batches: int,
    frames: str | None,
    draw: tuple[np.ndarray, np.uint64, np.ndarray, np.ndarray] | None = None,
  ) -> list[Batch] | None:
    """Makes batches of equal size.

    Args:
      rows: Rows of all batches, int64 (n,); to be filled if they are drawn.
      batches: Number of batches.
      frames: Form of the frames: 'windows', 'stacks', or None for none.
      draw: Arguments `draw` of `batch_kernel.make_batch`; None for given rows.

    Returns:
      The batches. None if the function is not loaded yet, or fails, e.g. because a
      block is damaged.

    Raises:
      ValueError: If `frames` is unknown, or the rows do not divide into the batches.
    """
    if frames not in ('windows', 'stacks', None):
      raise ValueError(f"frames={frames!r} is not 'windows', 'stacks' or None.")
    # Compiled code would write outside its memory.
    if batches < 1 or len(rows) % batches:
      raise ValueError(f'{len(rows)} rows do not divide by batches={batches}.')
    if self._kernel is None:
      self._start_loading()
      return None
    return self._make(self._kernel, rows, batches, frames, draw)

  def _make(self, kernel, rows, batches, frames, draw=None):
    store, stack_size = self._store, self._stack_size
    # The function would be compiled again for another layout.
    rows = np.require(rows, np.int64, ['C', 'W'])
    # Compiled code stacks bytes only.
    is_stacked = frames == 'stacks' and store.frame_dtype.itemsize == 1
    tables = store.frame_tables
    n, total = len(rows) // batches, len(rows)
    float_, int_ = np.float32, np.int32
    dtypes = store.action.dtype, float_, int_, float_, np.uint8, np.int64
    columns = rows, *(np.empty(total, dtype) for dtype in dtypes)
    shape: tuple[int, ...] = (n, self.length, *store.frame_shape)
    if is_stacked:
      shape = 2, n, *store.frame_shape, stack_size
    arrays = [
      frame_stacks.aligned(shape, store.frame_dtype)
      for _ in range(batches if frames else 0)
    ]
    outputs = np.array([array.ctypes.data for array in arrays], np.int64)
    pwritev = tables.calls[3]
    copying = mapped_files.reserve() if pwritev else (0, 0, 0)
    while True:
      status = kernel.make_batch(
        draw or _NO_DRAW,
        self._run,
        tuple(tables),  # Numba accepts plain tuples faster than named ones.
        copying,
        columns,
        self.length,
        stack_size if is_stacked else 0,
        n,
        outputs,
      )
      if status != kernel.NO_ROOM:
        break
      copying = mapped_files.reserve(2 * copying[2])
    if status != kernel.DONE:
      return None
    made = []
    for i in range(batches):
      part = slice(i * n, (i + 1) * n)
      windows = arrays[i] if frames and not is_stacked else None
      stacks = tuple(arrays[i]) if is_stacked else None
      small = [column[part] for column in columns]
      batch = Batch._make([*small, stack_size, windows, stacks])
      stacks_late = frames == 'stacks' and not is_stacked
      made.append(batch.stacked() if stacks_late else batch)
    return made

  def _load(self) -> None:
    """Imports Numba, and compiles the function for this store, or loads it."""
    if not self._store.frame_tables.calls[5]:
      return  # The checksums' function has no address here.
    slow = threading.Timer(_SECONDS_TO_LOAD, logging.info, [_COMPILING])
    slow.start()
    try:
      with _loading:
        from batch_rl.dataset.sampling import batch_kernel

        self._make(batch_kernel, np.zeros(0, np.int64), 1, 'windows')
        self._kernel = batch_kernel
    except Exception as error:  # Batches can be made without.
      text = 'Replay: sampling is slow, because it cannot be compiled: %s: %s'
      logging.warning(text, type(error).__name__, error)
    finally:
      slow.cancel()


# A fork waits for the end of loading: in a process forked during an import, the import
# would never end.
_loading = threading.RLock()
os.register_at_fork(
  before=_loading.acquire,
  after_in_parent=_loading.release,
  after_in_child=_loading.release,
)
