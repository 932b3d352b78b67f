"""One shard of a store as one of Dopamine's replay memories."""

import functools
from typing import Any

import numpy as np
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.store import store as store_lib


class ShardReplayBuffer(circular_replay_buffer.OutOfGraphReplayBuffer):
  """One shard of a store with Dopamine's interface, read-only.

  It has the shard's capacity, but at most `replay_capacity`; shards of whole episodes
  are used whole.

  Args:
    store: Store of the run.
    suffix: Number of the shard; an attribute, too.
    *args: Positional arguments of `OutOfGraphReplayBuffer`.
    **kwargs: Keyword arguments of `OutOfGraphReplayBuffer`.
  """

  def __init__(self, store: store_lib.Store, suffix: int, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._run, self.suffix = store, suffix
    capacity = self._replay_capacity = store.capacity(suffix)
    self.add_count = np.array(store.add_count(suffix))
    self.invalid_range = circular_replay_buffer.invalid_range(
      self.cursor(), capacity, self._stack_size, self._update_horizon
    )

  def _create_storage(self):
    """Does nothing: the columns are made when they are first used."""

  @functools.cached_property
  def _store(self) -> dict[str, Any]:
    """The shard's columns by name, in ring order; stale rows are zero."""
    run, capacity = self._run, self._replay_capacity
    rows = run.rows_of(self.suffix, np.arange(capacity))
    logged = rows >= 0
    return {
      'observation': RingFrames(run, self.suffix),
      'action': np.where(logged, run.action[rows], 0).astype(np.int32),
      'reward': np.where(logged, run.reward[rows], 0).astype(np.float32),
      'terminal': np.isin(rows, run.ends).astype(np.uint8),
    }

  def add(self, *args) -> None:
    """Refuses transitions, since the data never changes.

    Raises:
      RuntimeError: Always.
    """
    raise RuntimeError('A fixed replay is read-only: nothing can be added.')


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
    key = key if isinstance(key, tuple) else (key,)
    first, *rest = (slice(None), *key) if key[0] is ... else key
    ring = np.arange(len(self))[first]
    rows = self._store.rows_of(self._suffix, np.ravel(ring))
    frames = self._store.frames(rows)
    return frames.reshape(*np.shape(ring), *self._store.frame_shape)[
      (slice(None),) * np.ndim(ring) + tuple(rest)
    ]

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    return np.asarray(self[:], dtype)
