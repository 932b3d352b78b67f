"""The episodes of a run, one after the other, however long the run is."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import sampler, subsets
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import packed_columns
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import machine

_CHUNK_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class Episode:
  """An episode, or what there is of one; n is its number of rows.

  Its transitions are those of its rows whose next observation is there, or that
  ends it: all n if it ended, n - 1 if not.

  Attributes:
    number: counted from 0 through the run.
    shard: number of the shard in which it begins.
    whole: whether it begins with the first observation. If not, its first
      `stack_size - 1` rows are there for the stacks of later ones only.
    ended: whether its last row is a terminal. If not, it was cut off, or the run
      ends there.
    action: ints (n,).
    reward: float32 (n,), as logged.
    observation: (n, *frame_shape).
  """

  number: int
  shard: int
  whole: bool
  ended: bool
  action: np.ndarray
  reward: np.ndarray
  observation: np.ndarray


class Reader:
  """Reads the episodes of a run.

  Frames of shards are packed in memory, a shard at a time; those of a store are
  mapped.

  Args:
    run: shards, or a store.
    subset: which whole trajectories, e.g. 'random_trajectories(0.1)'; None for
      all.

  Attributes:
    run: as given.
    manifest: of the run; empty if it has none.
    frame_shape: of an observation.
    frame_dtype: of an observation.
    rows: of all episodes, without padding.
    count: episodes.
    num_actions: what the manifest says, or one more than the largest.
    hash: identifies the data (`sampler.hash_of`).

  Raises:
    ValueError: if the run cannot be read, the subset is wrong or cuts
      trajectories, or there is nothing in it.
  """

  def __init__(
    self, run: run_directories.RunDirectory, subset: str | None = None
  ):
    self.run = run
    self.manifest = manifests.read(run.logs)
    self._store = store = store_lib.Store(run.logs, pack=False)
    chosen = everything = sampler.trajectories(store)
    if subset:
      chosen = subsets.select(chosen, subset)
      which = chosen.selected
      if (
        np.any(chosen.start[which] > chosen.steps_begin[which])
        or np.any(chosen.stop[which] < everything.stop[which])
      ):  # fmt: skip
        raise ValueError(
          f'The subset {subset!r} cuts trajectories; choose whole ones.'
        )
    which = chosen.selected
    if not len(which):
      raise ValueError(f'{run.directory} has no episode.')
    self._number = which
    self._begin, self._stop = chosen.begin[which], chosen.stop[which]
    self._shard = chosen.shard[which]
    # Where rows are missing there is no padding.
    follows = np.array([p.follows or not p.rows for p in store.placements])
    follows[0] = store.starts_with_run
    padded = ~np.isin(self._begin, store.starts[:-1][~follows])
    named = ('format', 'stack_size')
    stack_size = manifests.look_up(self.manifest, *named, kind=int)
    padding = stack_size - 1 if stack_size else store.first_padding()
    self._steps = np.minimum(self._begin + padded * padding, self._stop)
    self._padded = padded
    self._ended = np.isin(
      self._stop - 1, np.setdiff1d(store.ends, store.truncations)
    )
    self._loaded: Any = None  # a shard: its place, its store, its columns
    self.frame_shape, self.frame_dtype = store.frame_shape, store.frame_dtype
    self.rows = int((self._stop - self._steps).sum())
    self.count = len(which)
    named = ('environment', 'num_actions')
    self.num_actions = (
      manifests.look_up(self.manifest, *named, kind=int)
      or store.action_range()[1] + 1
    )
    self.hash = sampler.hash_of(store, chosen)

  @property
  def game(self) -> str:
    """As the manifest says, or the folder above the run."""
    named = ('environment', 'game')
    return manifests.look_up(self.manifest, *named, kind=str) or self.run.game

  @property
  def agent(self) -> str | None:
    """Who played, as far as the manifest says."""
    return manifests.look_up(self.manifest, 'agent', kind=str)

  def __iter__(self) -> Iterator[Episode]:
    for i, number in enumerate(self._number.tolist()):
      begin, first = int(self._begin[i]), int(self._steps[i])
      stop, whole = int(self._stop[i]), bool(self._padded[i])
      if first > begin and self._frames(begin, first).any():
        first, whole = begin, False  # an episode without its padding
      yield Episode(
        number,
        int(self._shard[i]),
        whole,
        bool(self._ended[i]),
        self._store.action[first:stop],
        self._store.reward[first:stop].astype(np.float32),
        self._frames(first, stop),
      )

  def _frames(self, first: int, stop: int) -> np.ndarray:
    """Frames of rows of the run, uint8 (stop - first, *frame_shape)."""
    out = np.empty((stop - first, *self.frame_shape), self.frame_dtype)
    store = self._store
    while first < stop:
      i = int(np.searchsorted(store.starts[1:-1], first, side='right'))
      end = min(stop, first + _CHUNK_ROWS, int(store.starts[i + 1]))
      rows = np.arange(first, end)
      at = len(out) - (stop - first)
      if self.run.is_store:
        out[at : at + len(rows)] = store.frames(rows)
      else:
        shard, columns = self._load(i)
        ring = store.ring_of(rows)[1]
        out[at : at + len(rows)] = shard.kept_frames(
          np.zeros(len(rows), np.int64), columns.positions(ring)
        )
      first = end
    return out

  def _load(self, i: int) -> tuple[store_lib.Store, packed_columns.Columns]:
    """Packs one shard, and lets go of the one before."""
    if self._loaded is None or self._loaded[0] != i:
      self._loaded = None
      machine.return_freed_memory()
      suffix = self._store.suffixes[i]
      columns = packed_columns.read(self.run.logs, suffix)
      loaded = store_lib.Store(self.run.logs, [suffix])
      loaded.wait()
      self._loaded = i, loaded, columns
    return self._loaded[1:]
