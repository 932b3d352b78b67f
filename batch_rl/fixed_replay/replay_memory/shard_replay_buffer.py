"""One shard of a store as one of Dopamine's replay memories."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store as store_lib


class ShardReplayBuffer(circular_replay_buffer.OutOfGraphReplayBuffer):
  """One shard of a store with Dopamine's interface, read-only.

  Its capacity is that of the shard, but at most `replay_capacity`.

  Args:
    store: Store of the run.
    suffix: Number of the shard.
    *args: Positional arguments of `OutOfGraphReplayBuffer`.
    **kwargs: Keyword arguments of `OutOfGraphReplayBuffer`.
  """

  def __init__(self, store: store_lib.Store, suffix: int, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._store = RingColumns(store, suffix)
    self._suffix = suffix
    self._replay_capacity = store.capacity(suffix)
    self.add_count = np.array(store.add_count(suffix))
    self.invalid_range = circular_replay_buffer.invalid_range(
      self.cursor(),
      self._replay_capacity,
      self._stack_size,
      self._update_horizon,
    )

  def _create_storage(self):
    self._store = {}

  @property
  def suffix(self) -> int:
    """Number of the shard."""
    return self._suffix

  def add(self, *args) -> None:
    """Refuses transitions, since the data never changes.

    Raises:
      RuntimeError: Always.
    """
    raise RuntimeError('A fixed replay is read-only: nothing can be added.')


class RingColumns(Mapping):
  """A shard's columns by name, in ring order; stale rows are zero.

  Observations are decoded when they are indexed. The other columns are built on
  first use.
  """

  def __init__(self, store: store_lib.Store, suffix: int):
    self._store = store
    self._suffix = suffix
    self._columns: dict[str, Any] = {}

  def __iter__(self):
    return iter(shard_files.COLUMNS)

  def __len__(self) -> int:
    return len(shard_files.COLUMNS)

  def __getitem__(self, name: str) -> Any:
    if name not in shard_files.COLUMNS:
      raise KeyError(name)
    if name not in self._columns:
      self._columns[name] = self._build(name)
    return self._columns[name]

  def _build(self, name):
    store = self._store
    if name == 'observation':
      return RingFrames(store, self._suffix)
    rows = store.rows_of(
      np.full(store.capacity(self._suffix), self._suffix),
      np.arange(store.capacity(self._suffix)),
    )
    logged = rows >= 0
    if name == 'terminal':
      ends = np.isin(rows, store.ends)
      return (ends & logged).astype(np.uint8)
    column = {'action': store.action, 'reward': store.reward}[name]
    dtype = {'action': np.int32, 'reward': np.float32}[name]
    return np.where(logged, column[rows], 0).astype(dtype)


class RingFrames:
  """The frames of a shard in ring order, decoded when they are indexed."""

  def __init__(self, store: store_lib.Store, suffix: int):
    self._store = store
    self._suffix = suffix
    self.shape = (store.capacity(suffix), *store.frame_shape)
    self.dtype = store.frame_dtype
    self.ndim = len(self.shape)

  def __len__(self) -> int:
    return self.shape[0]

  def __getitem__(self, key: Any) -> np.ndarray:
    if self._suffix not in self._store.packed:
      self._store.prefer([self._suffix])
      self._store.wait([self._suffix])
    first, *rest = key if isinstance(key, tuple) else (key,)
    ring = np.arange(len(self))[first]
    rows = self._store.rows_of(np.full(ring.size, self._suffix), np.ravel(ring))
    frames = self._store.frames(rows)
    return frames.reshape(*np.shape(ring), *self._store.frame_shape)[
      (slice(None),) * np.ndim(ring) + tuple(r for r in rest if r is not ...)
    ]

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    return np.asarray(self[:], dtype)
