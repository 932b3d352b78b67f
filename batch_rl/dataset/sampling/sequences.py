"""Sequences of agent steps with returns to go; batch k is a function of (seed, k).

Made for models of sequences, such as the Decision Transformer (Chen et al., 2021, arXiv
2106.01345), from the same store as `sampler`. A sequence ends at a step of a trajectory
and has the steps before it, without a copy of the run. Every logged step can be its
last one: also a terminal one, and the last one of a truncated or unfinished episode,
because no next state is needed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.sampling import (
  compiled_batches,
  numbered_batches,
  returns_to_go,
  row_ranges,
  sampler,
)
from batch_rl.dataset.store import store as store_lib


class SequenceBatch(NamedTuple):
  """A batch of n sequences of `length` agent steps, the earliest step first.

  Steps before the trajectory's or the subset's first one are padding: `mask` is False,
  `rows` -1, and the rest zero. The frames of padding are zero too, but for those in
  the stack of the first step.

  Attributes:
    rows: int64 (n, length), row of each step in the run.
    frames: (n, length + stack_size - 1, *frame_shape), consecutive frames. The state of
      step t is frames t to t + stack_size - 1.
    action: Integers (n, length).
    reward: float32 (n, length), rewards as logged.
    terminal: uint8 (n, length), 1 if the episode terminates with the step.
    timestep: int64 (n, length), agent steps since the trajectory's first logged step.
    return_to_go: float32 (n, length), sum over j >= 0 of gamma^j r_{t+j}, to the end
      of the logged trajectory. If the log stops before the episode does, later rewards
      are unknown and count as zero; `SequenceSampler` can exclude such trajectories.
    mask: bool (n, length), whether a step is in the trajectory.
  """

  rows: np.ndarray
  frames: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  timestep: np.ndarray
  return_to_go: np.ndarray
  mask: np.ndarray

  @property
  def state(self) -> np.ndarray:
    """Stacks of frames, (n, length, stack_size, *frame_shape): a read-only view."""
    stack_size = self.frames.shape[1] - self.rows.shape[1] + 1
    stacks = np.lib.stride_tricks.sliding_window_view(
      self.frames, stack_size, axis=1
    )
    return np.moveaxis(stacks, -1, 2)


class _Index(NamedTuple):
  """The steps that can be drawn, one range of rows for each of n trajectories.

  Attributes:
    ranges: Ranges of rows.
    stop: Row after each range, int64 (n,).
    context: First row whose frame is in a stack, int64 (n,).
    gapless: First row of the gapless range of rows with the trajectory, int64 (n,).
    first_step: Row of timestep 0, int64 (n,).
    end: Row after the logged trajectory, int64 (n,).
    terminates: Whether the trajectory's last row is terminal, bool (n,).
  """

  ranges: row_ranges.Ranges
  stop: np.ndarray
  context: np.ndarray
  gapless: np.ndarray
  first_step: np.ndarray
  end: np.ndarray
  terminates: np.ndarray


class SequenceSampler(numbered_batches.NumberedBatches):
  """Draws sequences from a store.

  Args:
    store: Store of a run. Shards that are not packed yet are excluded until
      `refresh`.
    length: Number of agent steps in a sequence, at least 1.
    stack_size: Number of frames in a state, at least 1.
    gamma: Discount factor of the returns to go, in [0, 1].
    weighting: Distribution of the sequences' last steps. 'steps': uniform over the
      steps. 'trajectories': uniform over the trajectories, then over the steps of one.
      'returns': each step of trajectory i has a probability proportional to
      exp(g_i / temperature), where g_i is the trajectory's undiscounted return,
      normalised so that the lowest is 0 and the highest 1: return weighting (RW) of
      Hong et al., 2023 (arXiv 2306.13085).
    temperature: Temperature of 'returns', above 0; the larger, the closer to 'steps'.
    complete_only: Whether to exclude trajectories that a gap in the log or its end cut
      off, whose returns are unknown.
    subset: Selection of trajectories or transitions, e.g. 'best_trajectories(0.1)' (see
      `subsets`); None for the whole run. Steps outside it are in no sequence. Timesteps
      and returns are those of the whole trajectory.
    seed: Seed of the batches; None for a random one.

  Raises:
    ValueError: If an argument is out of its range, or the subset cannot be parsed or is
      empty.
  """

  def __init__(
    self,
    store: store_lib.Store,
    length: int,
    stack_size: int = 1,
    gamma: float = 1.0,
    weighting: str = 'steps',
    temperature: float = 0.1,
    complete_only: bool = False,
    subset: str | None = None,
    seed: int | None = None,
  ):
    numbered_batches.check_counts(length=length, stack_size=stack_size)
    if not 0 <= gamma <= 1:
      raise ValueError(f'gamma={gamma} is not in [0, 1].')
    row_ranges.check_weighting(weighting, temperature)
    self.store = store
    self.length = int(length)
    self.stack_size = int(stack_size)
    self.gamma = gamma
    self.weighting = weighting
    self.temperature = temperature
    self.complete_only = complete_only
    self.subset = subset
    self._trajectories = sampler.trajectories(store)
    self._ends = self._trajectories.stop
    if subset:
      self._trajectories = sampler.select(store, self._trajectories, subset)
    self._returns_to_go = self._make_returns_to_go()
    self._compiled = compiled_batches.CompiledBatches(
      store, self._width, np.zeros(0, np.float32)
    )
    super().__init__(seed)
    self.refresh()

  def __getstate__(self) -> dict[str, Any]:
    state = super().__getstate__()
    del state['_returns_to_go']  # It holds all rewards, which the store has.
    return state

  def __setstate__(self, state: dict[str, Any]) -> None:
    super().__setstate__(state)
    self._returns_to_go = self._make_returns_to_go()

  def _make_returns_to_go(self) -> returns_to_go.ReturnsToGo:
    return returns_to_go.ReturnsToGo(self.store.reward, self._ends, self.gamma)

  @property
  def _width(self) -> int:
    """Number of frames of a sequence."""
    return self.length + self.stack_size - 1

  # --- index of steps ----------------------------------------------------------

  def refresh(self) -> None:
    """Updates the index with the shards packed since the last refresh."""
    with self._refreshing:
      # One assignment, because other threads may be drawing.
      self._index = self._make_index(self.store.packed)

  @property
  def num_steps(self) -> int:
    """Number of steps at which a sequence can end now."""
    return self._index.ranges.total

  @property
  def num_trajectories(self) -> int:
    """Number of trajectories with such steps, partial ones included."""
    return len(self._index.stop)

  def steps(self) -> np.ndarray:
    """Returns the rows of all such steps, ascending: int64 (num_steps,)."""
    ranges = self._index.ranges
    return ranges.rows(np.arange(ranges.total))

  def subset_hash(self) -> str:
    """Returns the hash of the subset; see `sampler.hash_of`."""
    return sampler.hash_of(self.store, self._trajectories)

  def _make_index(self, suffixes: Sequence[int]) -> _Index:
    chosen = self._trajectories
    found = row_ranges.pieces(self.store, suffixes)
    begin, padding = found.begin, found.padding
    of = np.searchsorted(chosen.begin, begin, side='right') - 1
    # Where the episode's beginning is missing, the first rows are only context.
    before = self.stack_size - 1
    skipped = np.where(found.at_reset, padding, np.maximum(before, padding))
    first = np.maximum(begin + skipped, chosen.start[of])
    stop = np.minimum(found.stop, chosen.stop[of])
    # The padding of a trajectory that begins in another shard is not known here.
    is_first = begin == chosen.begin[of]
    first_step = np.where(is_first, begin + padding, chosen.steps_begin[of])
    kept = stop > first
    if self.complete_only:
      kept &= found.at_reset & found.ended
    kept = np.flatnonzero(kept)
    first, stop, of = first[kept], stop[kept], of[kept]
    lengths = stop - first
    return _Index(
      row_ranges.Ranges(
        len(suffixes),
        first,
        np.cumsum(lengths),
        row_ranges.cumulative_weights(
          lengths, chosen.returns[of], self.weighting, self.temperature
        ),
      ),
      stop,
      np.maximum(begin[kept], first - before),
      found.gapless[kept],
      first_step[kept],
      self._ends[of],
      found.terminates[kept],
    )

  # --- drawing -----------------------------------------------------------------

  def wait_until_compiled(self) -> bool:
    """Waits until frames are read by compiled code (`Sampler.wait_until_compiled`)."""
    return self._compiled.wait()

  def draw(self, number: int, count: int) -> np.ndarray:
    """Draws the last steps of a batch's sequences, with replacement.

    Args:
      number: Number of the batch, at least 0.
      count: Number of sequences to draw.

    Returns:
      Rows, int64 (count,): a function of seed, number, count and the steps that can be
      drawn.

    Raises:
      ValueError: If there is no step, or packing in the background failed.
    """
    return self._draw(self._current_index(), number, count)

  def _draw(self, index: _Index, number: int, count: int) -> np.ndarray:
    return index.ranges.draw(self._generator(number), count, self.weighting)

  def _current_index(self) -> _Index:
    self.store.raise_packing_error()
    if self._index.ranges.num_shards != self.store.num_packed:
      self.refresh()
    index = self._index
    if not index.ranges.total:
      complete = 'complete ' * self.complete_only
      raise ValueError(
        f'No step of a {complete}trajectory in {self.store.data_dir}'
        + (f', subset {self.subset}.' if self.subset else '.')
      )
    return index

  def batch(self, number: int, count: int) -> SequenceBatch:
    """Returns batch `number` with `count` sequences; see `draw`."""
    index = self._current_index()
    return self._gather(index, self._draw(index, number, count))

  def gather(self, rows: np.ndarray) -> SequenceBatch:
    """Returns the sequences that end at rows, int64 (n,), as one batch.

    Raises:
      ValueError: If a row is not in `steps()`.
    """
    index, rows = self._current_index(), np.asarray(rows, np.int64)
    outside = rows[~index.ranges.contain(rows)]
    if len(outside):
      raise ValueError(f'No sequence ends at row {outside[0]}; see steps().')
    return self._gather(index, rows)

  def _gather(self, index: _Index, rows: np.ndarray) -> SequenceBatch:
    store, n = self.store, len(rows)
    at = np.searchsorted(index.ranges.first, rows, side='right') - 1
    frames = self._frames(rows, index.context[at], index.gapless[at])
    steps = rows[:, None] + np.arange(1 - self.length, 1)
    mask = steps >= index.ranges.first[at][:, None]
    padding = ~mask
    steps[padding] = 0
    action, reward = store.action[steps], store.reward[steps]
    timestep = steps - index.first_step[at][:, None]
    for column in (action, reward, timestep):
      column[padding] = 0
    steps[padding] = -1
    terminal = np.zeros((n, self.length), np.uint8)
    end = index.end[at]
    terminal[:, -1] = index.terminates[at] & (rows == end - 1)
    return SequenceBatch(
      steps,
      frames,
      action,
      reward.astype(np.float32, copy=False),
      terminal,
      timestep,
      self._sum_rewards(reward, mask, self._returns_to_go.at(rows, end)),
      mask,
    )

  def _sum_rewards(self, reward, mask, last) -> np.ndarray:
    """Returns the returns to go of sequences, given those of their last steps."""
    sums = np.empty((self.length, len(last)))
    sums[-1] = last
    columns = np.ascontiguousarray(reward.T, np.float64)
    for t in range(self.length - 2, -1, -1):
      sums[t] = columns[t] + self.gamma * sums[t + 1]
    return np.where(mask, sums.T, 0).astype(np.float32)

  def _frames(
    self, rows: np.ndarray, context: np.ndarray, gapless: np.ndarray
  ) -> np.ndarray:
    """Returns the frames up to rows, zero before `context`."""
    begin = rows - (self._width - 1)
    # Reading stops at the first gap, so it begins after the one before the row.
    late = np.maximum(gapless - begin, 0)
    begin += late
    made = self._compiled.make(begin + (self._width - 1), None, False)
    if made is not None:
      _, [frames] = made
    else:
      frames = self.store.windows(begin, self._width)
    absent = context - (begin - late)
    for i in np.flatnonzero(absent > 0):
      if late[i]:
        frames[i, late[i] :] = frames[i, : -late[i]].copy()
      frames[i, : absent[i]] = 0
    return frames
