"""A whole run with its frames compressed, and random access to them.

The compressed frames (`frame_blocks`) are in memory or in a memory-mapped directory
(`store_directory`). The small columns are read first, so the rows of the run
(`run_rows`) are known at once. Frames are packed in the background (`packer`). A
directory may be a cache beside the shards, or replace them (`convert`).
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.dataset.store import frame_reading, packer, store_directory


class Store(packer.PackedRun):
  """The rows of a run, with their frames compressed; see `PackedRun`."""

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

  def padding(self, suffix: int) -> int:
    """Returns the number of padding rows of episodes that begin in a packed shard.

    It is the logger's `stack_size - 1`: three in the DQN Replay Dataset. Without a
    manifest it is inferred from the frames, and at most 3.
    """
    if self.logged_padding is not None:
      return self.logged_padding
    return self._packed[self._index[suffix]].padding

  def leading_padding(self, suffix: int) -> int:
    """Returns the number of padding rows at the start of a packed shard's rows."""
    begin, stop = self.shard_rows[suffix]
    rows = np.arange(begin, min(begin + self.padding(suffix), stop))
    frames = self.frames(rows)
    is_zero = ~frames.any(axis=tuple(range(1, frames.ndim)))
    return int(np.cumprod(is_zero).sum())

  def first_padding(self) -> int:
    """Returns the number of padding rows at the first known start of an episode.

    Without a manifest at most 3 rows are examined; without a known start, 3 are
    assumed.
    """
    if self.logged_padding is not None:
      return self.logged_padding
    # The row after a gap may be within an episode.
    starts = np.setdiff1d(self.ends + 1, self.breaks).tolist()
    if self.starts_at_reset:
      starts.append(0)
    for row in starts:
      [i], [ring] = self.ring_of(np.array([row]))
      if row + 3 > self.starts[i + 1] or ring + 3 > self._capacities[i]:
        continue  # The three rows are not contiguous in one shard.
      try:
        frames = frame_reading.read_frames(self, np.arange(row, row + 3))
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
    store.check_unchanged(suffix, digest)
  store.start(first=digests)
  store.wait(digests)
  if damaged := sorted(store.damaged & digests.keys()):
    raise ValueError(
      f'Shard {damaged[0]} in {store.data_dir} is damaged, but was packed before.'
    )
  return store


def convert(data_dir: str, directory: str, made_by: str | None = None) -> Store:
  """Converts a run's shards to a store that can be used in their place.

  Shards already packed are kept, so an interrupted conversion continues, and one that
  another process has begun is waited for. Packed shards stay, even if the run has lost
  theirs. The store gets the run's current manifest.

  Args:
    data_dir: Directory of the shards (`<run>/replay_logs`).
    directory: Directory of the store.
    made_by: Command that makes the store; see `StoreDirectory.begin`.

  Returns:
    The store.

  Raises:
    ValueError: If a shard is damaged, or the directory cannot be written, has other
      content, or the store of another log that was in `data_dir`; or if the log is
      unfinished, and lacks a last shard that the store has.
  """
  if store_directory.is_store(data_dir):
    raise ValueError(f'{data_dir} is already a store.')
  if not directory:
    raise ValueError(f'The name of the store for {data_dir} is empty.')
  target = store_directory.StoreDirectory(directory)
  target.check_unused()
  if target.shards_dir not in (None, store_directory.absolute(data_dir)):
    raise ValueError(
      f'{directory} is the store of {target.shards_dir}, not of {data_dir}; '
      'choose another directory.'
    )
  made = Store(data_dir, directory=directory, pack=False, made_by=made_by)
  stale, logged = {*target.present_shards()} - {*made.packed}, {*made.suffixes}
  if stale & logged and stale - logged:
    raise ValueError(
      f'{directory} has shards that are missing from {data_dir}, and others that '
      'differ from its shards: for another log choose a new directory; if the store is '
      'damaged, delete the damaged shards in it.'
    )
  lost = max(stale, default=-1)
  is_unfinished = os.path.isdir(os.path.join(data_dir, shard_files.PARTIAL))
  # A log that was restored before its last shard; a fetched run has an origin.
  if (
    lost > max(logged)
    and is_unfinished
    and 'origin' not in manifests.read(data_dir)
  ):
    raise ValueError(
      f'{data_dir} is unfinished, and lacks shard {lost}, which {directory} has: finish '
      'the run first, or choose a new directory.'
    )
  made.pack()
  # Another conversion that holds the lock does the same at its end.
  if (lock := target.try_lock()) is not None:
    with lock:
      target.read()
      target.keep_only(target.present_shards())
      # Packed shards may be all there before the run's manifest is.
      if manifest := manifests.read(data_dir):
        target.write_manifest(manifest)
  return made
