"""Uniform sampling of a run's transitions; batch k is a function of (seed, k).

The transition at row `i` is valid if

- row `i` is not padding;
- its state, the `stack_size` frames up to row `i`, lies within one trajectory;
- its next state, `update_horizon` rows later, lies in the same trajectory, or the
  episode terminates earlier. A truncated episode (`Store.truncations`) does not
  terminate.

Transitions may span shards, but not gaps. The valid rows of a trajectory are one range
(`row_ranges`).
"""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.dataset.sampling import (
  compiled_batches,
  numbered_batches,
  returns_to_go,
  row_ranges,
  subsets,
)
from batch_rl.dataset.sampling.compiled_batches import Columns
from batch_rl.dataset.store import frame_stacks
from batch_rl.dataset.store import store as store_lib


class Batch(NamedTuple):
  """A batch of n transitions; w is `stack_size + update_horizon`.

  Attributes:
    rows: int64 (n,), row of each transition in the run.
    windows: (n, w, *frame_shape), consecutive frames. The state is the first
      `stack_size` of them; the next state begins at frame `steps`.
    action: Integers (n,).
    reward: float32 (n,), n-step return: sum over j < steps of gamma^j r_{i+j}.
    terminal: uint8 (n,), 1 if the episode terminates within the steps.
    steps: int64 (n,), `update_horizon`, or fewer if the episode ends earlier.
    stack_size: Number of frames in a state.
  """

  rows: np.ndarray
  windows: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  steps: np.ndarray
  stack_size: int

  @property
  def state(self) -> np.ndarray:
    """States (n, stack_size, *frame_shape), oldest frame first: a view of `windows`."""
    return self.windows[:, : self.stack_size]

  @property
  def next_state(self) -> np.ndarray:
    """Next states, as `state`; a copy if some episode ends within the steps."""
    horizon = self.windows.shape[1] - self.stack_size
    if (self.steps == horizon).all():
      return self.windows[:, horizon:]
    frames = self.steps[:, None] + np.arange(self.stack_size)
    return self.windows[np.arange(len(frames))[:, None], frames]


class Sampler(numbered_batches.NumberedBatches):
  """Draws transitions from a store.

  Args:
    store: Store of a run. Shards that are not packed yet are excluded until
      `refresh`.
    stack_size: Number of frames in a state, at least 1.
    update_horizon: Number of steps in the n-step return, at least 1.
    gamma: Discount factor of the n-step return, in [0, 1].
    subset: Selection of trajectories or transitions, e.g.
      'random_trajectories(0.1)' (see `subsets`); None for the whole run.
    seed: Seed of the batches; None for a random one.
    weighting: Distribution of the transitions, as in `SequenceSampler`: 'steps'
      (uniform), 'trajectories' or 'returns'.
    temperature: Temperature of 'returns', above 0.

  Attributes:
    discounts: gamma^j for each step of the return, float32 (update_horizon,).
    trajectories: Trajectories of the run, with the selected rows of each.
    trajectory_stops: Row after each trajectory, selected or not, int64 (n,).

  Raises:
    ValueError: If a number is out of its range, or the subset cannot be parsed or is
      empty.
  """

  def __init__(
    self,
    store: store_lib.Store,
    stack_size: int,
    update_horizon: int = 1,
    gamma: float = 0.99,
    subset: str | None = None,
    seed: int | None = None,
    weighting: str = 'steps',
    temperature: float = 0.1,
  ):
    row_ranges.check_weighting(weighting, temperature)
    self.weighting, self.temperature = weighting, temperature
    numbered_batches.check_counts(
      stack_size=stack_size, update_horizon=update_horizon
    )
    if not 0 <= gamma <= 1:
      raise ValueError(f'gamma={gamma} is not in [0, 1].')
    self.store = store
    self.stack_size = stack_size
    self.update_horizon = update_horizon
    self.subset = subset
    self.gamma = gamma
    self.discounts = np.array(
      [gamma**j for j in range(update_horizon)], np.float32
    )
    self.trajectories = trajectories(store)
    self.trajectory_stops = self.trajectories.stop
    if subset:
      self.trajectories = select(store, self.trajectories, subset)
    self._shards: frozenset[int] | None = None
    self._compiled = compiled_batches.CompiledBatches(
      store, stack_size, self.discounts
    )
    super().__init__(seed)
    self.refresh()

  # --- index of valid rows -----------------------------------------------------

  def restrict(self, suffixes: Iterable[int] | None) -> None:
    """Draws from these shards only, as if the run had no others; None for all."""
    self._shards = None if suffixes is None else frozenset(suffixes)
    self.refresh()

  def refresh(self) -> None:
    """Updates the index with the shards packed since the last refresh."""
    with self._refreshing:
      packed = self.store.packed
      used = [
        suffix
        for suffix in packed
        if self._shards is None or suffix in self._shards
      ]
      first, stop, returns = self._valid_ranges(used)
      lengths = stop - first
      # One assignment, because other threads may be drawing.
      self._ranges = row_ranges.Ranges(
        len(packed),
        first,
        np.cumsum(lengths),
        row_ranges.cumulative_weights(
          lengths, returns, self.weighting, self.temperature
        ),
      )

  @property
  def num_transitions(self) -> int:
    """Number of transitions that can be drawn now."""
    return self._ranges.total

  @property
  def num_trajectories(self) -> int:
    """Number of trajectories in the subset, partial ones included.

    They are those in all shards, except the shards found damaged so far.
    """
    return len(_without_lost(self.store, self.trajectories).selected)

  def num_selected(self, suffixes: Iterable[int]) -> int:
    """Returns the number of the subset's agent steps in shards, packed or not."""
    chosen = self.trajectories
    spans = (chosen.shard_rows[s] for s in suffixes if s in chosen.shard_rows)
    return sum(chosen.between(*span).num_steps for span in spans)

  def valid_rows(self) -> np.ndarray:
    """Returns all rows that can be drawn now, ascending: int64 (num_transitions,)."""
    ranges = self._ranges
    return ranges.rows(np.arange(ranges.total))

  def is_valid(self, rows: np.ndarray) -> np.ndarray:
    """Returns whether rows, int64 (n,), can be drawn now: bool (n,)."""
    return self._ranges.contain(rows)

  def subset_hash(self) -> str:
    """Returns the hash of the subset; see `hash_of`."""
    return hash_of(self.store, self.trajectories)

  def _valid_ranges(self, suffixes: Sequence[int]):
    """Returns first rows, stops and returns of the ranges of valid rows."""
    chosen, found = self.trajectories, row_ranges.pieces(self.store, suffixes)
    # Skip padding, and rows whose stack would begin before the trajectory.
    first = found.begin + np.maximum(self.stack_size - 1, found.padding)
    stop = found.stop - np.where(found.terminates, 0, self.update_horizon)
    # Restrict each range to the subset.
    trajectory = np.searchsorted(chosen.begin, found.begin, side='right') - 1
    first = np.maximum(first, chosen.start[trajectory])
    stop = np.minimum(stop, chosen.stop[trajectory])
    not_empty = stop > first
    returns = chosen.returns[trajectory[not_empty]]
    return first[not_empty], stop[not_empty], returns

  # --- drawing ---------------------------------------------------------------

  def wait_until_compiled(self) -> bool:
    """Waits until batches are made by compiled code (`compiled_batches`).

    Batches are the same without. It is loaded in the background.

    Returns:
      Whether compiled code is available.
    """
    return self._compiled.wait()

  def draw(self, number: int, count: int) -> np.ndarray:
    """Draws the rows of a batch from the valid rows, with replacement.

    Args:
      number: Number of the batch, at least 0.
      count: Number of rows to draw.

    Returns:
      Rows, int64 (count,): a function of seed, number, count and valid rows.

    Raises:
      ValueError: If there is no valid row, or packing in the background failed.
    """
    ranges = self._current_ranges()
    return ranges.draw(self._generator(number), count, self.weighting)

  def _current_ranges(self) -> row_ranges.Ranges:
    # Not that of another batch, whose block is damaged.
    self.store.raise_packing_error()
    if self._ranges.num_shards != self.store.num_packed:
      self.refresh()
    ranges = self._ranges
    if not ranges.total:
      raise ValueError(
        f'No valid transition in {self.store.data_dir}'
        + (f', subset {self.subset}.' if self.subset else '.')
      )
    return ranges

  def batch(self, number: int, count: int) -> Batch:
    """Returns batch `number` with `count` transitions; see `draw`."""
    return _batch(*self.windows((number, count)), self.stack_size)

  def gather(self, rows: np.ndarray) -> Batch:
    """Returns the transitions at rows, int64 (n,), as one batch.

    Raises:
      ValueError: If a row cannot be drawn; see `valid_rows`.
    """
    rows = np.asarray(rows, np.int64)
    outside = rows[~self.is_valid(rows)]
    if len(outside):
      raise ValueError(
        f'Row {outside[0]} has no valid transition; see valid_rows().'
      )
    return _batch(*self.windows(rows), self.stack_size)

  def windows(
    self, which: np.ndarray | tuple[int, int]
  ) -> tuple[Columns, np.ndarray]:
    """Returns transitions with windows of frames.

    Args:
      which: Rows, int64 (n,); or a number and a count, to draw a batch.

    Returns:
      The small columns, and the windows, (n, w, *frame_shape); see `Batch`.
    """
    made = self._compiled_batch(which, is_stacked=False)
    if made is not None:
      return made
    rows = which if isinstance(which, np.ndarray) else self.draw(*which)
    length = self.stack_size + self.update_horizon
    windows = self.store.windows(rows - (self.stack_size - 1), length)
    return self.columns(rows), windows

  def stacks(
    self, which: np.ndarray | tuple[int, int]
  ) -> tuple[Columns, np.ndarray, np.ndarray]:
    """Returns transitions with states and next states.

    Args:
      which: Rows, int64 (n,); or a number and a count, to draw a batch.

    Returns:
      The small columns, the states and the next states, (n, *frame_shape,
      stack_size) each.
    """
    if self.store.frame_dtype.itemsize == 1:
      made = self._compiled_batch(which, is_stacked=True)
      if made is not None:
        columns, (states, next_states) = made
        return columns, states, next_states
    columns, windows = self.windows(which)
    states, next_states = (
      frame_stacks.channels_last(windows, first, self.stack_size)
      for first in (np.zeros_like(columns.steps), columns.steps)
    )
    return columns, states, next_states

  def consecutive(
    self, number: int, count: int, batches: int, is_stacked: bool
  ) -> tuple[Columns, list[np.ndarray]] | None:
    """Returns consecutive batches, made by one call of compiled code.

    Threads that make several batches in a call wait less for the interpreter's lock.

    Args:
      number: Number of the first batch.
      count: Number of transitions in a batch.
      batches: Number of batches.
      is_stacked: Whether to return states and next states instead of windows.

    Returns:
      The small columns of all batches, one after the other, (batches * count,); and
      for each batch the windows, (count, w, *frame_shape), or the states and next
      states, (2, count, *frame_shape, stack_size). None if they must be made one by
      one: compiled code is not available, or a batch cannot be read.
    """
    if self.weighting != 'steps':
      return None  # Compiled code draws uniformly.
    if is_stacked and self.store.frame_dtype.itemsize != 1:
      return None
    ranges = self._current_ranges()
    draw = compiled_batches.Draw(
      self._key, np.uint64(number), ranges.first, ranges.cumulative
    )
    return self._compiled.make(count, draw, is_stacked, batches)

  def _compiled_batch(self, which, is_stacked):
    """Returns columns and frames from compiled code, or None."""
    if self.weighting != 'steps' and not isinstance(which, np.ndarray):
      which = self.draw(*which)  # Compiled code draws uniformly.
    if isinstance(which, np.ndarray):
      made = self._compiled.make(which, None, is_stacked)
    else:
      made = self.consecutive(*which, 1, is_stacked)
    if made is None:
      return None
    columns, [frames] = made
    return columns, frames

  def columns(self, rows: np.ndarray) -> Columns:
    """Returns the small columns of transitions at rows, int64 (n,)."""
    columns = self.named_columns(rows, Columns._fields)
    # Actions have the dtype in which they are stored.
    action = columns['action'].astype(self.store.action.dtype)
    return Columns(**(columns | {'action': action}))

  def named_columns(
    self, rows: np.ndarray, names: Iterable[str]
  ) -> dict[str, np.ndarray]:
    """Returns columns of transitions by name; see `batch_rl.dataset.sampling.columns`.

    Args:
      rows: Rows of the run, int64 (n,).
      names: Names of the columns.
    """
    at = columns_lib.Rows(self, rows)
    return {name: columns_lib.COLUMNS[name](at) for name in names}

  @functools.cached_property
  def returns_to_go(self) -> returns_to_go.ReturnsToGo:
    """Returns to go of all rows, discounted by `gamma`."""
    return returns_to_go.ReturnsToGo(
      self.store.reward, self.trajectory_stops, self.gamma
    )

  @functools.cached_property
  def return_weights(self) -> np.ndarray:
    """Weights of the trajectories by their returns, float64 (n,)."""
    chosen = self.trajectories
    selected = chosen.returns[chosen.selected]
    # Others are drawn by no batch.
    returns = np.clip(chosen.returns, selected.min(), selected.max())
    return returns_to_go.weights(returns, selected.min(), selected.max())

  def __getstate__(self) -> dict[str, Any]:
    state = super().__getstate__()
    state.pop(
      'returns_to_go', None
    )  # It holds all rewards, which the store has.
    return state


def _batch(columns: Columns, windows: np.ndarray, stack_size: int) -> Batch:
  rows, action, reward, _, _, terminal, steps, *_ = columns
  return Batch(rows, windows, action, reward, terminal, steps, stack_size)


def trajectories(store: store_lib.Store) -> subsets.Trajectories:
  """Returns the trajectories of a run: its rows, divided at ends and gaps."""
  # First rows after a gap, and the first row of all.
  after_gap = [
    int(start)
    for start, placement in zip(
      store.starts[:-1], store.placements, strict=True
    )
    if not placement.follows and placement.rows
  ]
  begin = np.unique(np.concatenate([after_gap, store.ends + 1])).astype(
    np.int64
  )
  begin = begin[begin < store.rows]
  stop = np.append(begin[1:], store.rows)
  padded = ~np.isin(begin, after_gap)
  padded[:1] |= store.starts_at_reset
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


def select(
  store: store_lib.Store, data: subsets.Trajectories, subset: str
) -> subsets.Trajectories:
  """Returns a subset of the trajectories that can be drawn.

  A trajectory cannot be drawn if all its steps are in shards found damaged so far.

  Args:
    store: Store of the run.
    data: All trajectories of the run.
    subset: Text of the subset; see `subsets.select`.

  Raises:
    ValueError: If the text cannot be parsed, or the subset is empty.
  """
  return subsets.select(_without_lost(store, data), subset)


def _without_lost(
  store: store_lib.Store, data: subsets.Trajectories
) -> subsets.Trajectories:
  """Returns a copy without trajectories whose selected steps are all damaged."""
  first = np.maximum(data.start, data.steps_begin)
  damaged = damaged_rows(store, first, data.stop)
  is_lost = (damaged > 0) & (damaged == data.stop - first)
  return data.only(np.flatnonzero(~is_lost))


def damaged_rows(
  store: store_lib.Store, first: np.ndarray, stop: np.ndarray
) -> np.ndarray:
  """Returns the number of rows of n ranges in damaged shards (`Store.damaged`).

  Args:
    store: Store of the run.
    first: First row of each range, int64 (n,).
    stop: Row after each range, int64 (n,).

  Returns:
    int64 (n,).
  """
  count = np.zeros(len(first), np.int64)
  for suffix in store.damaged:
    i = store.suffixes.index(suffix)
    begin, end = store.starts[i : i + 2]
    inside = np.minimum(stop, end) - np.maximum(first, begin)
    count += np.maximum(inside, 0)
  return count


def hash_of(store: store_lib.Store, chosen: subsets.Trajectories) -> str:
  """Returns a hash of the data: the shards of a run and the rows selected.

  It is the same on every machine and independent of `stack_size`,
  `update_horizon` and seed.

  Returns:
    16 hexadecimal digits.
  """
  content = hashlib.sha256()
  for placement in store.placements:
    if placement.suffix in store.damaged:
      continue
    content.update(
      f'{placement.suffix} {placement.start} {placement.rows} '
      f'{store.digest(placement.suffix)}\n'.encode()
    )
  # Padding is never drawn, so the hash ignores whether it is selected.
  for column in (np.maximum(chosen.start, chosen.steps_begin), chosen.stop):
    content.update(column[chosen.selected].astype('<i8').tobytes())
  content.update(store.truncations.astype('<i8').tobytes())
  return content.hexdigest()[:16]
