"""Names of a `FixedReplayBuffer` that code written for the 2020 API uses.

In 2020 the buffer was a list of Dopamine's replay memories, `_replay_buffers`, and
subclasses and scripts knew its private names. They keep their meaning here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import store as store_lib
from batch_rl.dataset.store import store_directory
from batch_rl.fixed_replay.replay_memory import (
  loaded_buffers,
  shard_replay_buffer,
)


class MissingShardError(ValueError):
  """A shard is not there."""


class BufferOf2020:
  """Mixin of `FixedReplayBuffer` for code written for the 2020 API.

  A subclass may override `_load_buffer`, `_load_replay_buffers` and
  `_get_checkpoint_suffixes`, or call them. If it assigns Dopamine's memories to
  `_replay_buffers`, they are sampled uniformly over their valid transitions, instead
  of the store.

  Attributes:
    on_reload: Function to call after `reload_buffer` and `load_single_buffer`.
    _loaded_buffers: Whether there is data: False if `replay_suffix` is missing.
    _replay_suffix: Number of the single shard to use, or None.
    _replay_indices: Numbers of the shards to choose from, ascending.
  """

  on_reload: Callable[[], None] = staticmethod(lambda: None)
  _loaded_buffers = False
  _assigned: list[Any] | None = None  # `_replay_buffers` of a subclass
  _assigned_count: np.ndarray | None = None
  # StoreReplay, LoadedBuffers, or the error of a missing shard.
  _source: Any = None
  _data_dir: str
  _skip_damaged: bool
  _store: store_lib.Store | None
  _seed: int | None
  _load_replay_buffers: Callable[[int | None], None]
  _check_unused: Callable[[], None]

  def _get_checkpoint_suffixes(self, start=0, end=None):
    """Returns the shard numbers at positions [start, end), ascending.

    Raises:
      ValueError: If there is none.
    """
    suffixes = self._all_suffixes()
    if chosen := suffixes[start:end]:
      return chosen
    raise ValueError(
      f'No shard between replay_file_start_index={start} and '
      f'replay_file_end_index={end}: {self._data_dir} has {len(suffixes)}, numbered '
      f'{suffixes[0]} to {suffixes[-1]}.'
    )

  def _draw_shards(self, num_buffers):
    """Chooses and loads shards.

    Raises:
      ValueError: If no shard was loaded.
    """
    self._loaded_buffers = False
    self._load_replay_buffers(num_buffers)
    if self._assigned is not None:
      # The list may have changed since it was last sampled.
      self._source = None
    if self._backend is None:
      raise ValueError(
        f'{type(self).__name__}._load_replay_buffers has found no shard in '
        f'{self._data_dir}.'
      )

  def _all_suffixes(self):
    return store_directory.list_shards(self._data_dir, self._skip_damaged)

  def _missing(self, suffix):
    suffixes = self._all_suffixes()
    return MissingShardError(
      f'There is no shard {suffix} in {self._data_dir}, which has {len(suffixes)}, '
      f'numbered {suffixes[0]} to {suffixes[-1]}.'
    )

  def _source_of(self, memories, suffixes):
    """Returns a sampler of memories with one shard each; see `LoadedBuffers`."""
    store = self._store or store_lib.Store(
      self._data_dir, sorted({*suffixes}), pack=False
    )
    # Of Dopamine's JaxFixedReplayBuffer.
    first_row = getattr(self, '_replay_transitions_start_index', 0)
    return loaded_buffers.LoadedBuffers(
      store, memories, suffixes, first_row, self._seed
    )

  def _suffix_of(self, memory):
    """Returns the number of the shard that a memory holds."""
    if isinstance(memory, shard_replay_buffer.ShardReplayBuffer):
      return memory.suffix
    count = int(memory.add_count)
    for suffix in self._all_suffixes():
      if shard_reader.read_add_count(self._data_dir, suffix) == count:
        return suffix
    raise ValueError(
      f'No shard in {self._data_dir} has the add_count {count} of a memory in '
      f'_replay_buffers: load the memories from these shards.'
    )

  @property
  def _backend(self):
    """Data that is sampled: a StoreReplay or LoadedBuffers.

    Raises:
      MissingShardError: If `replay_suffix` is missing.
    """
    if isinstance(self._source, MissingShardError):
      raise self._source
    if self._source is None and self._assigned:
      self._check_unused()
      self._source = self._source_of(
        self._assigned, [*map(self._suffix_of, self._assigned)]
      )
    return self._source

  @property
  def _replay_buffers(self) -> list[Any]:
    """The shards that are sampled from, as Dopamine's replay memories."""
    return self._backend.buffers if self._assigned is None else self._assigned

  @_replay_buffers.setter
  def _replay_buffers(self, buffers: list[Any]) -> None:
    self._assigned, self._source = buffers, None

  @property
  def _num_replay_buffers(self) -> int:
    """Length of `_replay_buffers`."""
    return len(self._replay_buffers)

  @_num_replay_buffers.setter
  def _num_replay_buffers(self, number: int) -> None:
    pass  # It follows from `_replay_buffers`.

  @property
  def add_count(self) -> np.ndarray:
    """Number of transitions that can be sampled now, int64 (), unless assigned."""
    if self._assigned_count is not None:
      return self._assigned_count
    return np.array(
      self._backend.num_transitions if self._loaded_buffers else 0
    )

  @add_count.setter
  def add_count(self, count: np.ndarray) -> None:
    self._assigned_count = count

  def add(self, *args: Any, **kwargs: Any) -> None:
    """Does nothing, since the data never changes."""

  def save(self, *args: Any, **kwargs: Any) -> None:
    """Does nothing, since the data never changes."""

  def load(self, *args: Any, **kwargs: Any) -> None:
    """Does nothing, since the data never changes."""
