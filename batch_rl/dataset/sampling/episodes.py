"""Sequential access to the episodes of a run, one at a time.

An episode is read as its trajectory: the rows that were logged.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import returns_to_go, row_sampler, subsets
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import machine


@dataclasses.dataclass(frozen=True)
class Episode:
  """The n logged rows of an episode, without padding.

  A row is a transition if it is terminal or its next observation was logged: n
  transitions if the episode terminated, n - 1 otherwise.

  Attributes:
    number: Index of the episode among those of the shards in use, from 0.
    shard: Number of the shard in which the episode begins.
    begins_at_reset: Whether the first row is the episode's first observation. If
      not, the first `stack_size - 1` rows serve only as context in the stacks of
      later rows.
    ended: Whether the last row is terminal. If not, the episode was truncated or the
      run stops there.
    action: Integers (n,).
    reward: float32 (n,), rewards as logged.
    observation: (n, *frame_shape).
    unclipped_return: Sum of the rewards before clipping, of the whole episode; None
      if it is unknown. The manifests of this package's own logs have it.
    truncated: Whether the log says that the episode was truncated after its last row.
  """

  number: int
  shard: int
  begins_at_reset: bool
  ended: bool
  action: np.ndarray
  reward: np.ndarray
  observation: np.ndarray
  unclipped_return: float | None = None
  truncated: bool = False

  @property
  def logged_return(self) -> float:
    """Sum of the rewards as logged, clipped ones in the DQN Replay Dataset."""
    return float(self.reward.sum(dtype=np.float64))

  def return_to_go(self, gamma: float = 1.0) -> np.ndarray:
    """Returns the sums over j >= 0 of gamma^j r_{t+j}, to the last row: float32 (n,).

    Args:
      gamma: Discount factor, in [0, 1].

    Raises:
      ValueError: If `gamma` is not.
    """
    row_sampler.check_gamma(gamma)
    rows = np.arange(len(self.reward))
    stops = np.full(len(rows), len(rows))
    sums = returns_to_go.ReturnsToGo(self.reward, stops[:1], gamma)
    return sums.at(rows, stops).astype(np.float32)


class Reader:
  """Iterates over the episodes of a run.

  A missing shard cuts episodes, and so does one that is seen to be damaged when the run
  is opened. Episodes with rows in a shard that packing skipped as damaged are left out.
  Frames of shards are packed in memory, one shard at a time, unless `store` has them;
  frames of a store are memory-mapped.

  Args:
    run: Run of shards, or a store.
    subset: Selection of complete trajectories, e.g. 'random_trajectories(0.1)'; None
      for the whole run.
    store: Store of the run, if one is open already; it is waited for.

  Attributes:
    run: Run that is read.
    manifest: Manifest of the run; empty if it has none.
    game: Name of the game in the manifest, or else of the folder above the run.
    agent: Name of the agent in the manifest, or None.
    frame_shape: Shape of an observation.
    frame_dtype: Dtype of an observation.
    padding: Number of padding rows at the start of an episode.
    rows: Number of rows in all episodes, without padding.
    count: Number of episodes.
    num_actions: Number of actions in the manifest, or else the largest logged action
      plus one.
    hash: Hash of the data (`subsets.hash_of`).

  Raises:
    ValueError: If the run cannot be read, or if the subset is invalid, splits
      trajectories or is empty.
  """

  def __init__(
    self,
    run: run_directories.RunDirectory,
    subset: str | None = None,
    store: store_lib.Store | None = None,
  ):
    self.run = run
    self.manifest = manifests.read(run.data_dir)
    self.game = run.game_in(self.manifest)
    self.agent = manifests.look_up(self.manifest, 'agent', kind=str)
    self._is_packed = run.is_store or store is not None
    if store is None:
      store = store_lib.Store(run.data_dir, pack=False)
    else:
      store.wait()  # Then all damage is known.
    self._store = store
    chosen = all_trajectories = subsets.trajectories(store)
    if subset is not None:
      chosen = subsets.select(chosen, subset)
      is_part = chosen.lengths < all_trajectories.lengths
      if is_part[chosen.selected].any():
        raise ValueError(
          f'The subset {subset!r} splits trajectories; choose complete ones.'
        )
    damaged = subsets.damaged_rows(store, chosen.begin, chosen.stop)
    chosen = chosen.only(np.flatnonzero(damaged == 0))
    self._chosen, self.count = chosen, len(chosen.selected)
    if not self.count:
      raise ValueError(f'{run.directory} has no episode.')
    self._ended = np.isin(chosen.stop - 1, store.terminals)
    self._truncated = np.isin(chosen.stop - 1, store.truncations)
    self._unclipped = self._unclipped_returns(all_trajectories.stop)
    # Index and store of the shard in memory.
    self._loaded: Any = None
    self.frame_shape, self.frame_dtype = store.frame_shape, store.frame_dtype
    self.padding = store.first_padding()
    self.rows = chosen.num_steps
    self.num_actions = (
      manifests.look_up(self.manifest, 'environment', 'num_actions', kind=int)
      or store.action_range()[1] + 1
    )
    self.hash = subsets.hash_of(store, chosen)

  def __iter__(self) -> Iterator[Episode]:
    chosen = self._chosen
    for i in chosen.selected.tolist():
      begin, first = int(chosen.begin[i]), int(chosen.steps_begin[i])
      stop, begins_at_reset = int(chosen.stop[i]), bool(chosen.at_reset[i])
      if first > begin and self._frames(begin, first).any():
        first, begins_at_reset = begin, False  # The padding was not logged.
      elif not begins_at_reset and (rest := self._rest_of_padding(begin, stop)):
        first, begins_at_reset = first + rest, True
      yield Episode(
        i,
        int(chosen.shard[i]),
        begins_at_reset,
        bool(self._ended[i]),
        self._store.action[first:stop].copy(),
        self._store.reward[first:stop].astype(np.float32),
        self._frames(first, stop),
        # Rows before a gap are missing, but not from the recorded return.
        float(self._unclipped[i])
        if chosen.at_reset[i] and not np.isnan(self._unclipped[i])
        else None,
        bool(self._truncated[i]),
      )

  def _rest_of_padding(self, begin: int, stop: int) -> int:
    """Returns the number of rows of zeros with which a trajectory begins.

    A missing shard may have ended within the padding of the episode. Without one, such
    rows are steps, as is the last row.
    """
    store, stop = self._store, min(begin + self.padding, stop - 1)
    is_after_gap = begin in store.breaks and (begin or store.suffixes[0])
    if not is_after_gap or stop <= begin:
      return 0
    frames = self._frames(begin, stop)
    is_zero = (store.action[begin:stop] == 0) & (store.reward[begin:stop] == 0)
    is_zero &= ~frames.any(axis=tuple(range(1, frames.ndim)))
    return int(np.cumprod(is_zero).sum())

  def _unclipped_returns(self, stops: np.ndarray) -> np.ndarray:
    """Returns the recorded unclipped return of each trajectory, or NaN: (n,).

    Args:
      stops: Row after each trajectory, int64 (n,).
    """
    store, recorded = self._store, np.full(len(stops), np.nan)
    for entry in self.manifest.get('shards') or []:
      key = 'episodes', 'unclipped_returns'
      returns = manifests.look_up(entry, *key, kind=list)
      span = store.shard_rows.get(entry.get('suffix'), (0, 0))
      ends = store.ends[slice(*np.searchsorted(store.ends, span))]
      if returns and len(returns) == len(ends):
        recorded[np.searchsorted(stops, ends + 1)] = returns
    return recorded

  def _frames(self, first: int, stop: int) -> np.ndarray:
    """Returns the frames of rows `[first, stop)`: (stop - first, *frame_shape)."""
    store, rows = self._store, np.arange(first, stop)
    if self._is_packed:
      return store.frames(rows)
    shard_of = store.shard_of(rows)
    positions = rows - store.starts[shard_of] + store.first_kept[shard_of]
    parts = []
    for i in np.unique(shard_of).tolist():
      kept = positions[shard_of == i] % store.rows_kept[i]
      parts.append(self._load(i).kept_frames(np.zeros_like(kept), kept))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]

  def _load(self, i: int) -> store_lib.Store:
    """Packs one shard in memory and releases the previous one."""
    if self._loaded is None or self._loaded[0] != i:
      self._loaded = None
      machine.return_freed_memory()
      suffix = self._store.suffixes[i]
      loaded = store_lib.Store(self.run.data_dir, [suffix])
      self._store.check_unchanged(suffix, loaded.digest(suffix))
      loaded.wait()
      self._loaded = i, loaded
    return self._loaded[1]
