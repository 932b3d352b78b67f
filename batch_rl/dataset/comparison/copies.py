"""Copies of a run, as shards or a store, read once and hashed row by row."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.comparison import hashed_rows
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import frame_reading
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import machine, row_hashes, threads


class Copy:
  """A copy of a run.

  Args:
    run: Run of shards, or a store.

  Attributes:
    path: Directory as given.
    kind: 'shards' or 'store'.
    game: Name of the game; None if unknown.
    run: Name of the run.
    is_atari: Whether the run is of an Atari game; None if unknown, which counts as
      Atari. It may be set before `read`.
    store: Store of the run, not packed.
    rows: Hashed rows, after `read`.

  Raises:
    ValueError: If the run cannot be read.
  """

  rows: hashed_rows.HashedRows

  def __init__(self, run: run_directories.RunDirectory):
    self.path, self.kind = run.directory, 'store' if run.is_store else 'shards'
    manifest = manifests.read(run.data_dir)
    # Only the manifest has the game: a folder may have any name.
    self.game = manifests.look_up(manifest, 'environment', 'game', kind=str)
    self.run = run.name
    self.is_atari = manifests.atari_if_known(manifest)
    self.store = store_lib.Store(run.data_dir, pack=False)

  @property
  def clips_rewards(self) -> bool:
    """Whether rewards are clipped to [-1, 1] before they are compared."""
    return self.is_atari is not False

  @property
  def uncertain(self) -> list[int]:
    """Numbers of the shards that may lack their first row: the last, after a gap."""
    store = self.store
    return [
      placement.suffix
      for placement in store.placements
      if placement.suffix > 0
      and placement.start == 0
      and store.add_count(placement.suffix) < placement.capacity
    ]

  def read(self, with_frames: bool, advance: Callable[[int], None]) -> None:
    """Reads the copy, and sets `rows`.

    Args:
      with_frames: Whether to read and hash frames.
      advance: Callback that receives the number of rows read since its last call.

    Raises:
      ValueError: If the copy is damaged.
    """
    store = self.store
    frame, reward = np.zeros(store.rows, np.uint64), store.reward
    terminal = np.zeros(store.rows, bool)
    terminal[store.terminals] = True
    found = subsets.trajectories(store)
    begin = np.minimum(found.steps_begin, found.stop)
    if with_frames:
      self._hash_frames(frame, advance)
      zero = np.zeros((1, *store.frame_shape), store.frame_dtype)
      is_zero = frame == row_hashes.hash_rows(zero)
      is_zero &= (store.action == 0) & (reward == 0)
      # A gap may end within the padding of an episode, or padding was not logged. So
      # rows of zeros are skipped, rather than a number of rows. An episode of nothing
      # else begins at its end or later, and does not count.
      begin = found.begin.copy()
      for _ in range(store.first_padding()):
        begin += is_zero[np.minimum(begin, found.stop - 1)]
    else:
      advance(store.rows)
    self.rows = hashed_rows.HashedRows(
      frame,
      store.action,
      np.clip(reward, -1, 1) if self.clips_rewards else reward,
      terminal,
      begin,
      found.stop,
      store.shard_rows,
    )

  def _hash_frames(self, out: np.ndarray, advance: Callable) -> None:
    """Hashes the frames of all rows, each shard in a thread."""
    stopped = threading.Event()

    def hash_shard(suffix: int) -> None:
      for rows, frames in frame_reading.iterate_frames(self.store, suffix):
        if stopped.is_set():
          return
        out[rows] = row_hashes.hash_rows(frames)
        advance(len(rows))

    suffixes = self.store.suffixes
    threads.parallel_map(hash_shard, suffixes, machine.num_cpus(), stopped.set)

  def place(self, episode: int, step: int) -> dict[str, Any]:
    """Returns the place of a step: episode, step, shard and position in its ring."""
    row = self.rows.begin[episode] + step
    shard, ring = self.store.ring_of(np.array([row]))
    return {
      'episode': episode,
      'step': step,
      'shard': self.store.suffixes[int(shard[0])],
      'ring_position': int(ring[0]),
    }


def open_copy(path: str) -> Copy:
  """Opens a copy of a run.

  Args:
    path: Directory of a run or a store.

  Raises:
    ValueError: If the path holds no run, or several.
  """
  return Copy(run_directories.only_run(path))
