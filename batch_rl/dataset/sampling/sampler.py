"""Transitions of a run, drawn uniformly; batch k is a function of (seed, k).

A transition of row `i` is valid if its state, the `stack_size` frames that end with
row `i`, lies in one episode without padding that replaces frames of another, and
its next state, up to `update_horizon` rows later, is there, or the episode ends
before it; where it was cut off (`Store.truncations`) it did not end. Seams of shards are no
seams for a transition; missing rows are.

Valid rows are stretches, one an episode, so an index of them is small however long
the run is, and drawing from them is exact.
"""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.store import store as store_lib


class Batch(NamedTuple):
  """Transitions; n is their number, w is `stack_size + update_horizon`.

  Attributes:
    rows: int64 (n,), the run's row of each.
    windows: (n, w, *frame_shape). The state is the first `stack_size` frames, the
      next state the `stack_size` frames from `steps` on.
    action: ints (n,).
    reward: float32 (n,), sum over j < steps of gamma^j r_{i+j}.
    terminal: uint8 (n,), whether an episode ends within the steps.
    steps: int64 (n,), `update_horizon`, or fewer where the episode ends before.
  """

  rows: np.ndarray
  windows: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  steps: np.ndarray


class Sampler:
  """Draws transitions from a store.

  Args:
    store: of a run; shards that are not packed yet are left out until `refresh`.
    stack_size: frames in a state.
    update_horizon: the 'n' of n-step returns.
    gamma: discount factor, for n-step returns.
    subset: which part of the data, e.g. 'random_trajectories(0.1)'; see `subsets`.
      None for all.
    seed: of the batches; None for one by chance.

  Raises:
    ValueError: if the subset's text is wrong, or it selects nothing.
  """

  def __init__(
    self,
    store: store_lib.Store,
    stack_size: int,
    update_horizon: int = 1,
    gamma: float = 0.99,
    subset: str | None = None,
    seed: int | None = None,
  ):
    self.store = store
    self.stack_size = stack_size
    self.update_horizon = update_horizon
    self.subset = subset
    self._discounts = np.array(
      [gamma**j for j in range(update_horizon)], np.float32
    )
    self._trajectories = trajectories(store)
    if subset:
      self._trajectories = subsets.select(self._trajectories, subset)
    self._shards: frozenset[int] | None = None
    self._lock = threading.Lock()
    self._refreshing = threading.Lock()
    self.reseed(seed)
    self.refresh()

  # --- which transitions -----------------------------------------------------

  def restrict(self, suffixes: Iterable[int] | None) -> None:
    """Draws from these shards only, as if there were no others; None for all."""
    self._shards = None if suffixes is None else frozenset(suffixes)
    self.refresh()

  def refresh(self) -> None:
    """Takes in the shards that have been packed by now."""
    with self._refreshing:
      packed = self.store.packed
      used = [
        suffix
        for suffix in packed
        if self._shards is None or suffix in self._shards
      ]
      first, stop = self._valid_stretches(used)
      # All at once: other threads may be drawing.
      self._stretches = (len(packed), first, np.cumsum(stop - first))

  @property
  def num_transitions(self) -> int:
    """Transitions that can be drawn now."""
    return _total(self._stretches)

  @property
  def num_trajectories(self) -> int:
    """Trajectories in the subset, whole or cut, of all shards."""
    return len(self._trajectories.selected)

  def valid_rows(self) -> np.ndarray:
    """All rows that can be drawn now, ascending: int64 (num_transitions,)."""
    stretches = self._stretches
    return _rows(stretches, np.arange(_total(stretches)))

  def is_valid(self, rows: np.ndarray) -> np.ndarray:
    """Whether rows, int64 (n,), can be drawn now: bool (n,)."""
    _, first, cumulative = self._stretches
    if not len(first):
      return np.zeros(len(rows), bool)
    at = np.maximum(np.searchsorted(first, rows, side='right') - 1, 0)
    before = np.where(at > 0, cumulative[at - 1], 0)
    return (rows >= first[at]) & (rows < first[at] + cumulative[at] - before)

  def subset_hash(self) -> str:
    """Identifies the data; see `hash_of`."""
    return hash_of(self.store, self._trajectories)

  def _valid_stretches(self, suffixes: Sequence[int]):
    """First rows of stretches of valid rows, and the rows after them."""
    store, chosen = self.store, self._trajectories
    low, high = [], []
    for start, stop, lead, paddings in self._connected(suffixes):
      ends = store.ends[slice(*np.searchsorted(store.ends, (start, stop)))]
      begins = np.concatenate([[start], ends + 1])
      ended = np.append(~np.isin(ends, store.truncations), False)
      after = np.append(ends + 1, stop)
      # Rows before which something else than this episode, or nothing, lies.
      shard_of = np.searchsorted(paddings[:, 0], begins, side='right') - 1
      padding = paddings[shard_of, 1]
      padding[0] = lead
      first = begins + np.maximum(self.stack_size - 1, padding)
      last = np.where(ended, after, after - self.update_horizon)
      # What the subset has of each episode.
      episode = np.searchsorted(chosen.begin, begins, side='right') - 1
      low.append(np.maximum(first, chosen.start[episode]))
      high.append(np.minimum(last, chosen.stop[episode]))
    if not low:
      return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, stop = np.concatenate(low), np.concatenate(high)
    some = stop > first
    return first[some], stop[some]

  def _connected(self, suffixes: Sequence[int]):
    """Yields `(start, stop, lead, paddings)` of rows without a seam.

    `lead` is how many of the first rows are padding, `paddings` is int64
    (shards, 2): from which row on episodes have how much padding.
    """
    store = self.store
    start = stop = lead = 0
    paddings: list = []
    before = None
    for i, (suffix, placement) in enumerate(
      zip(store.suffixes, store.placements, strict=True)
    ):
      if suffix not in suffixes:
        before = None if placement.rows else before
        continue
      if before is None or not placement.follows:
        if stop > start:
          yield start, stop, lead, np.array(paddings)
        start = int(store.starts[i])
        lead = store.lead(suffix)
        paddings = []
      paddings.append((int(store.starts[i]), store.padding(suffix)))
      stop = int(store.starts[i + 1])
      before = suffix
    if stop > start:
      yield start, stop, lead, np.array(paddings)

  # --- drawing ---------------------------------------------------------------

  def reseed(self, seed: int | None) -> None:
    """Starts again with batch 0 of another seed; None for one by chance."""
    sequence = np.random.SeedSequence(seed)
    self._key = sequence.generate_state(2, np.uint64)
    self._next = 0

  def skip(self, batches: int) -> None:
    """Leaves out so many of the numbers that `next_number` gives."""
    with self._lock:
      self._next += batches

  def next_number(self) -> int:
    """Numbers batches: 0, 1, 2, ... since the last `reseed`."""
    with self._lock:
      number = self._next
      self._next += 1
    return number

  def draw(self, number: int, count: int) -> np.ndarray:
    """The rows of a batch: uniform over valid ones, with replacement.

    Args:
      number: of the batch.
      count: how many.

    Returns:
      int64 (count,), a function of the seed, the number, the count and the valid
      rows.
    """
    self.store.raise_error()
    if self._stretches[0] != self.store.num_packed:
      self.refresh()
    # The counter's lowest word counts within the batch.
    bits = np.random.Philox(key=self._key, counter=[0, number, 0, 0])
    stretches = self._stretches
    total = _total(stretches)
    if not total:
      raise ValueError(
        f'No whole transition in {self.store.data_dir}'
        + (f', subset {self.subset}.' if self.subset else '.')
      )
    numbers = np.random.Generator(bits).integers(total, size=count)
    return _rows(stretches, numbers)

  def batch(self, number: int, count: int) -> Batch:
    """Batch `number`, of `count` transitions."""
    return self.gather(self.draw(number, count))

  def gather(self, rows: np.ndarray) -> Batch:
    """The transitions of rows, int64 (n,)."""
    store, horizon = self.store, self.update_horizon
    windows = store.windows(
      rows - (self.stack_size - 1), self.stack_size + horizon
    )
    ends = store.ends
    at = np.searchsorted(ends, rows)
    if len(ends):
      to_end = np.where(
        at < len(ends), ends[np.minimum(at, len(ends) - 1)] - rows, horizon
      )
    else:
      to_end = np.full(len(rows), horizon)
    terminal = to_end < horizon
    steps = np.minimum(to_end + 1, horizon)
    if horizon == 1:
      reward = store.reward[rows].astype(np.float32)
    else:
      ahead = np.arange(horizon)
      rewards = store.reward[np.minimum(rows[:, None] + ahead, store.rows - 1)]
      within = ahead < steps[:, None]
      reward = np.sum(
        np.where(within, self._discounts * rewards, 0), axis=1, dtype=np.float32
      )
    return Batch(
      rows, windows, store.action[rows], reward, terminal.view(np.uint8), steps
    )

  def next_action_and_reward(
    self, batch: Batch
  ) -> tuple[np.ndarray, np.ndarray]:
    """Action int32 and reward float32 of the row of the next state, (n,)."""
    rows = np.minimum(batch.rows + batch.steps, self.store.rows - 1)
    return (
      self.store.action[rows].astype(np.int32),
      self.store.reward[rows].astype(np.float32),
    )


# How many shards are taken in, first rows of stretches, and how many rows there
# are up to the end of each.
_Stretches = tuple[int, np.ndarray, np.ndarray]


def _total(stretches: _Stretches) -> int:
  """Rows in stretches."""
  cumulative = stretches[2]
  return int(cumulative[-1]) if len(cumulative) else 0


def _rows(stretches: _Stretches, numbers: np.ndarray) -> np.ndarray:
  """The rows with these numbers among all rows of the stretches."""
  _, first, cumulative = stretches
  at = np.searchsorted(cumulative, numbers, side='right')
  return first[at] + numbers - np.where(at > 0, cumulative[at - 1], 0)


def trajectories(store: store_lib.Store) -> subsets.Trajectories:
  """The trajectories of a run: what lies between ends and missing rows."""
  # Where rows are missing, and at the start unless it is that of the run.
  cut = [
    int(start)
    for start, placement in zip(
      store.starts[:-1], store.placements, strict=True
    )
    if not placement.follows and placement.rows
  ]
  begin = np.unique(np.concatenate([cut, store.ends + 1])).astype(np.int64)
  begin = begin[begin < store.rows]
  stop = np.append(begin[1:], store.rows)
  padded = ~np.isin(begin, cut)
  padded[:1] |= store.starts_with_run
  shard_of = np.searchsorted(store.starts, begin, side='right') - 1
  rewarded = np.flatnonzero(store.reward)
  return subsets.Trajectories(
    begin=begin,
    steps_begin=begin + padded * store.first_padding(),
    start=begin,
    stop=stop,
    returns=np.bincount(
      np.searchsorted(begin, rewarded, side='right') - 1,
      store.reward[rewarded],
      len(begin),
    ),
    shard=np.asarray(store.suffixes)[shard_of],
    shard_rows={
      suffix: (int(store.starts[i]), int(store.starts[i + 1]))
      for i, suffix in enumerate(store.suffixes)
    },
  )


def hash_of(store: store_lib.Store, chosen: subsets.Trajectories) -> str:
  """Identifies data: the shards of a run, and the rows selected of them.

  Equal on all machines that have this run; does not depend on `stack_size`,
  `update_horizon` or a seed.

  Returns:
    16 hex digits.
  """
  content = hashlib.sha256()
  for placement in store.placements:
    if placement.suffix in store.damaged:
      continue
    content.update(
      f'{placement.suffix} {placement.start} {placement.rows} '
      f'{store.digest(placement.suffix)}\n'.encode()
    )
  # Whether padding is selected makes no difference.
  for column in (np.maximum(chosen.start, chosen.steps_begin), chosen.stop):
    content.update(column[chosen.selected].astype('<i8').tobytes())
  content.update(store.truncations.astype('<i8').tobytes())
  return content.hexdigest()[:16]
