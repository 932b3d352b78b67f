"""A whole run with its frames compressed, and random access to them.

The compressed frames (`frame_blocks`) are in memory or in a memory-mapped directory
(`store_directory`). The small columns are read first, so the rows of the run
(`run_rows`) are known at once. Frames are packed in the background (`packer`). A
directory may be a cache beside the shards, or replace them (`convert`).
"""

import concurrent.futures
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import (
  packed_columns,
  packed_shard,
  packer,
  store_directory,
)
from batch_rl.dataset.store.store_directory import find_data, list_shards
from batch_rl.utils import machine

__all__ = ['Store', 'convert', 'find_data', 'list_shards']


class Store(packer.PackedRun):
  """The rows of a run, with their frames compressed.

  Args:
    data_dir: Directory of the shards (`<run>/replay_logs`), or a store.
    suffixes: Numbers of the shards to use, ascending; None for all.
    directory: Directory to keep packed shards in, for other runs and processes
      too; None for memory only.
    max_rows: Number of rows to use from the start of each shard's ring; None for
      all.
    preload: Whether to read shards packed on disk into memory rather than map
      them.
    skip_damaged: Whether to skip damaged shards, with a warning, rather than
      fail.
    pack: Whether to start packing at once (see `start`).
    progress: Callback that receives the number of rows packed each time.
    made_by: Command that makes the directory; see `StoreDirectory.begin`.

  Attributes:
    requested: Numbers of the requested shards, damaged ones included.

  Raises:
    ValueError: If a shard is missing or damaged, has a reward that is not finite,
      or these are not shards of one run.
    ReadError: If a file cannot be read at the moment.
  """

  def __init__(
    self,
    data_dir: str,
    suffixes: Sequence[int] | None = None,
    directory: str | None = None,
    max_rows: int | None = None,
    preload: bool = False,
    skip_damaged: bool = False,
    pack: bool = True,
    progress: Callable[[int], None] = lambda rows: None,
    made_by: str | None = None,
  ):
    self.data_dir = data_dir
    self._skip_damaged = skip_damaged
    self._max_rows = max_rows
    self._is_converted = store_directory.is_store(data_dir)
    path = data_dir if self._is_converted else directory
    self._directory = (
      store_directory.StoreDirectory(path, preload) if path else None
    )
    available = list_shards(data_dir, skip_damaged)
    self.requested = available if suffixes is None else list(suffixes)
    if not self.requested or sorted(set(self.requested)) != self.requested:
      raise ValueError(
        f'The shards {self.requested} are not ascending numbers, at least one.'
      )
    for suffix in self.requested:
      if suffix not in available:
        raise ValueError(f'There is no shard {suffix} in {data_dir}.')
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
      opened = [*filter(None, pool.map(self._open_shard, self.requested))]
    if not opened:
      raise ValueError(f'Every shard in {self.data_dir} is damaged.')
    first, last = self.requested[0], self.requested[-1]
    columns = [columns for columns, _ in opened]
    super().__init__(
      self._directory,
      skip_damaged,
      progress,
      made_by,
      data_dir,
      columns,
      [suffix for suffix in available if first <= suffix <= last],
      max_rows,
      [self._shard_name(c.suffix) for c in columns],
      self._advice(),
    )
    for suffix, (_, packed) in zip(self.suffixes, opened, strict=True):
      if packed is not None:
        self.add(suffix, packed, self._directory.dictionary)
    if pack:
      self.start()

  def __reduce__(self) -> tuple[Any, ...]:
    """Lets another process open the store, for a copy there.

    Raises:
      ValueError: If the packed shards are in memory only.
    """
    if self._directory is None:
      raise ValueError(
        f'The packed run of {self.data_dir} is in memory only, so another process '
        'cannot open it: keep it in a cache directory, or convert it; workers made '
        'by fork can use it.'
      )
    settings = {
      'data_dir': self.data_dir,
      'suffixes': self.requested,
      'directory': self._directory.path,
      'max_rows': self._max_rows,
      'preload': self._directory.preload,
      'skip_damaged': self._skip_damaged,
    }
    return _reopen, (settings, {s: self.digest(s) for s in self.packed})

  def _open_shard(self, suffix):
    """Returns a shard's small columns, and the shard if it is packed already."""
    try:
      if self._is_converted:
        packed = self._directory.open(suffix)
      else:
        packed = self._directory and self._directory.find(suffix, self.data_dir)
      columns = (
        packed.columns if packed else packed_columns.read(self.data_dir, suffix)
      )
      wrong = columns.reward[~np.isfinite(columns.reward)]
      if len(wrong):
        raise ValueError(
          f'Shard {suffix} in {self.data_dir} has reward {wrong[0]}; run `verify '
          f'{self.data_dir}` to check all files.'
        )
      return columns, packed
    except ValueError as error:
      if not self._skip_damaged:
        raise
      logging.warning('Shard %d is not used: %s', suffix, error)
      return None

  def _shard_name(self, suffix: int) -> str:
    if self._directory is None:
      return f'Shard {suffix} of {self.data_dir}, in memory,'
    return packed_shard.paths(self._directory.path, suffix)[0]

  def _advice(self) -> str:
    if self._directory is None:
      return 'start again'
    if self._is_converted:
      return f'delete it and {self._directory.remedy}'
    return 'delete it and start again'

  @property
  def is_on_disk(self) -> bool:
    """Whether packed shards are kept in a directory."""
    return self._directory is not None

  # --- padding ---------------------------------------------------------------

  def padding(self, suffix: int) -> int:
    """Returns the number of padding rows of episodes that begin in a packed shard.

    It is the logger's `stack_size - 1`: three in the DQN Replay Dataset. Without a
    manifest it is inferred from the frames, and at most 3.
    """
    if self._logged_padding is not None:
      return self._logged_padding
    return self._packed[self._index[suffix]].padding

  def leading_padding(self, suffix: int) -> int:
    """Returns the number of padding rows at the start of a packed shard's rows."""
    i = self._index[suffix]
    packed, placement = self._packed[i], self.placements[i]
    columns, padding = packed.columns, self.padding(suffix)
    wrapped = columns.add_count >= columns.capacity
    oldest = columns.add_count % columns.capacity if wrapped else 0
    if placement.start not in (0, oldest, columns.capacity - 1):
      # Packing did not examine this start: assume padding, which is safe.
      return padding
    first = (placement.start + np.arange(min(padding, 3))) % columns.capacity
    is_zero = np.isin(first, list(packed.zero_rows))
    count = int(np.cumprod(is_zero).sum())
    # Packing examined three rows.
    return padding if count == 3 else count

  def first_padding(self) -> int:
    """Returns the number of padding rows at the first known start of an episode.

    Without a manifest at most 3 rows are examined; without a known start, 3 are
    assumed.
    """
    if self._logged_padding is not None:
      return self._logged_padding
    starts = (self.ends + 1).tolist()
    if self.starts_at_reset:
      starts.append(0)
    for row in starts:
      [i], [ring] = self.ring_of(np.array([row]))
      if row + 3 > self.starts[i + 1] or ring + 3 > self._capacities[i]:
        continue  # The three rows are not contiguous in one shard.
      try:
        if self._packed[i]:
          frames = self.frames(np.arange(row, row + 3))
        else:
          path = shard_files.path(
            self.data_dir, 'observation', self.suffixes[i]
          )
          rows = shard_reader.iterate_rows(path, ring + 3)
          frames = np.concatenate(
            [chunk[max(0, ring - start) :].copy() for start, chunk in rows]
          )
      except ValueError:
        if not self._skip_damaged:
          raise
        continue
      zero = ~frames.reshape(3, -1).any(axis=1)
      return int(np.argmin(np.append(zero, False)))
    return 3


def _reopen(settings: Mapping[str, Any], digests: Mapping[int, str]) -> Store:
  """Opens a pickled store, and waits for the shards that were packed in it.

  Which rows are drawn depends on these shards.

  Args:
    settings: Arguments of `Store`.
    digests: `Columns.digest` of the shards that were packed, by number.

  Raises:
    ValueError: If one of these shards cannot be used any more, or has changed.
  """
  store = Store(**settings, pack=False)
  for suffix, digest in digests.items():
    if suffix not in store.suffixes or store.digest(suffix) != digest:
      raise ValueError(
        f'Shard {suffix} in {store.data_dir} has changed since it was opened.'
      )
  store.start(first=digests)
  store.wait(digests)
  if damaged := sorted(store.damaged & digests.keys()):
    raise ValueError(
      f'Shard {damaged[0]} in {store.data_dir} is damaged, but was packed before.'
    )
  return store


def convert(
  data_dir: str,
  directory: str,
  progress: Callable[[int], None] = lambda rows: None,
  made_by: str | None = None,
) -> Store:
  """Converts a run's shards to a store that can be used in their place.

  Shards already packed are kept, so an interrupted conversion continues. Shards that
  it still lacked, and that the run no longer has, are left out.

  Args:
    data_dir: Directory of the shards (`<run>/replay_logs`).
    directory: Directory of the store.
    progress: Callback that receives the number of rows packed each time.
    made_by: Command that makes the store; see `StoreDirectory.begin`.

  Returns:
    The store.

  Raises:
    ValueError: If a shard is damaged, or the directory has other content, cannot
      be written, or is being written by another process.
  """
  if store_directory.is_store(data_dir):
    raise ValueError(f'{data_dir} is a store already.')
  if not directory:
    raise ValueError(f'The name of the store for {data_dir} is empty.')
  target = store_directory.StoreDirectory(directory)
  target.check_empty_or_of(data_dir)
  if os.path.exists(directory):
    # A conversion does not wait for another, as a cache does.
    lock = target.try_lock()
    if lock is None:
      raise ValueError(f'{directory} is being written by {target.lock_holder}.')
    lock.close()
  made = Store(
    data_dir, directory=directory, progress=progress, made_by=made_by
  )
  try:
    made.wait()
  finally:
    made.close()
  lock = target.try_lock()
  # Another conversion that holds the lock does the same at its end.
  if lock is not None:
    with lock:
      target.read()
      target.drop_missing()
  return made
