"""The rows that can be drawn: a few contiguous ranges, and draws from them.

The index is small even for long runs, and sampling from it is exactly uniform.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.store import store as store_lib

WEIGHTINGS = ('steps', 'trajectories', 'returns')


def return_weights(
  returns: np.ndarray, among: np.ndarray, temperature: float = 0.1
) -> np.ndarray:
  """Returns the weights of trajectories by their returns, float64 (n,), at most 1.

  Return weighting of Hong et al., 2023 (arXiv 2306.13085): exp((g - 1) / temperature),
  where g is the return, normalised so that the lowest is 0 and the highest is 1.

  Args:
    returns: Undiscounted returns, float64 (n,).
    among: Returns of the trajectories that are drawn, float64 (m,).
    temperature: Temperature, above 0.
  """
  lowest, highest = among.min(), among.max()
  below = np.clip(returns, lowest, highest) - highest
  # Divided in this order, exponents are at most 0 and never NaN.
  return np.exp(below / ((highest - lowest) or 1.0) / temperature)


def draw_numbers(
  key: np.ndarray, number: int, total: int, count: int
) -> np.ndarray:
  """Draws integers from [0, total) by Lemire's method (2019) with 32 bits.

  The random words come from Philox4x64-10 (Salmon et al., 2011), so key and counter
  define them. NumPy's `Generator` may change what it makes of them, so the numbers
  are made here. `batch_kernel` has the same algorithm.

  Args:
    key: Key of the seed, uint64 (2,).
    number: Number of the batch, the second word of the counter.
    total: Upper bound, exclusive, from 1 to 2^32.
    count: Number of integers.

  Returns:
    int64 (count,).
  """
  words = np.random.Philox(key=key, counter=_counter(number))
  threshold = (2**32 - total) % total
  drawn: np.ndarray = np.zeros(0, np.int64)
  while (missing := count - len(drawn)) > 0:
    halves = words.random_raw(-(-missing // 2)).astype('<u8').view('<u4')
    product = halves * np.uint64(total)
    accepted = product[product & np.uint64(2**32 - 1) >= threshold]
    drawn = np.append(drawn, (accepted >> np.uint64(32)).astype(np.int64))
  return drawn[:count]


def _counter(number: int) -> np.ndarray:
  return np.array([0, number, 0, 0], np.uint64)


class Ranges(NamedTuple):
  """Ascending ranges of rows, none of them empty.

  The rows of a range are in one trajectory, and in shards without a gap.

  Attributes:
    first: First row of each range, int64 (ranges,).
    cumulative: Number of rows up to the end of each range, int64 (ranges,).
    weights: Cumulative probabilities of the ranges, float64 (ranges,); None if all
      rows are equally likely.
    begin: First row in use of the trajectory, padding included, int64 (ranges,).
    gapless: First row of the shards without a gap, int64 (ranges,).
    first_step: First agent step of the trajectory, int64 (ranges,). It may be in a
      shard that is not in use.
    terminates: Whether the trajectory's last row in use is terminal, bool (ranges,).
  """

  first: np.ndarray
  cumulative: np.ndarray
  weights: np.ndarray | None
  begin: np.ndarray
  gapless: np.ndarray
  first_step: np.ndarray
  terminates: np.ndarray

  def draw(self, key: np.ndarray, number: int, count: int) -> np.ndarray:
    """Draws the rows of a batch with replacement, int64 (count,).

    Args:
      key: Key of the seed, uint64 (2,).
      number: Number of the batch.
      count: Number of rows.
    """
    if self.weights is None:
      return self.rows(draw_numbers(key, number, self.total, count))
    words = np.random.Philox(key=key, counter=_counter(number))
    uniform = (words.random_raw(2 * count) >> np.uint64(11)) * 2.0**-53
    at = self.weights.searchsorted(uniform[:count], side='right')
    lengths = self.cumulative[at] - self._before(at)
    return self.first[at] + (uniform[count:] * lengths).astype(np.int64)

  @property
  def total(self) -> int:
    """Number of rows in all ranges."""
    return int(self.cumulative[-1]) if len(self.cumulative) else 0

  def rows(self, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows at positions `numbers`, int64 (n,), in the list of all rows."""
    at = np.searchsorted(self.cumulative, numbers, side='right')
    return self.first[at] + numbers - self._before(at)

  def contain(self, rows: np.ndarray) -> np.ndarray:
    """Returns whether rows, int64 (n,), are in a range: bool (n,)."""
    if not len(self.first):
      return np.zeros(len(rows), bool)
    at = self.of(rows)
    lengths = self.cumulative[at] - self._before(at)
    return (rows >= self.first[at]) & (rows < self.first[at] + lengths)

  def _before(self, at: np.ndarray) -> np.ndarray:
    """Returns the numbers of rows before ranges, given as indices: int64 (n,)."""
    return np.where(at > 0, self.cumulative[at - 1], 0)

  def of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the ranges that contain rows, as indices: int64 (n,)."""
    return np.maximum(np.searchsorted(self.first, rows, side='right') - 1, 0)


def find(
  store: store_lib.Store,
  suffixes: Sequence[int],
  chosen: subsets.Trajectories,
  *,
  before: int,
  after: int,
  pads: bool = False,
  complete_only: bool = False,
  weighting: str = 'steps',
  temperature: float = 0.1,
) -> Ranges:
  """Returns the rows to draw from.

  A row is not padding. It has `before` frames before it in its trajectory, and `after`
  rows after it unless the episode terminates earlier.

  Args:
    store: Store of a run.
    suffixes: Numbers of the shards to use, packed ones.
    chosen: Trajectories of the run, with the selected rows of each.
    before: Number of frames before a row.
    after: Number of rows after a row.
    pads: Whether frames before an episode's first one are zero, rather than missing.
    complete_only: Whether to exclude trajectories whose beginning or end is missing.
    weighting: Distribution of the rows. 'steps': uniform. 'trajectories': uniform over
      the trajectories, then over the rows of one. 'returns': a row of a trajectory is
      drawn in proportion to the trajectory's `return_weights`.
    temperature: Temperature of 'returns'.
  """
  start, stop, leading = _gapless(store, suffixes)
  begin = np.union1d(start, chosen.begin)
  end = np.append(begin[1:], store.rows)
  within = np.searchsorted(start, begin, side='right') - 1
  in_use = within >= 0
  in_use[in_use] = begin[in_use] < stop[within[in_use]]
  begin, end, within = begin[in_use], end[in_use], within[in_use]
  end = np.minimum(end, stop[within])
  of = np.searchsorted(chosen.begin, begin, side='right') - 1

  is_start = begin == start[within]
  shard = store.shard_of(begin)
  # Only the frames of packed shards are known.
  paddings = [store.padding(s) if s in suffixes else 0 for s in store.suffixes]
  padding = np.array(paddings)[shard]
  # A shard may begin within an episode, or within its padding.
  at_reset = store.has_whole_episodes | (begin == 0) & store.starts_at_reset
  at_reset &= leading[within] == padding
  at_reset = np.where(is_start, at_reset, chosen.at_reset[of])
  padding = np.where(is_start, leading[within], padding * at_reset)
  terminates = np.isin(end - 1, store.terminals)

  skipped = np.where(at_reset & pads, padding, np.maximum(before, padding))
  first = np.maximum(begin + skipped, chosen.start[of])
  stops = np.minimum(end - np.where(terminates, 0, after), chosen.stop[of])
  kept = stops > first
  if complete_only:
    kept &= at_reset & np.isin(end - 1, store.ends)
  lengths, weights = (stops - first)[kept], None
  if weighting == 'returns' and kept.any():
    returns = chosen.returns[of[kept]]
    weights = lengths * return_weights(returns, returns, temperature)
  elif weighting == 'trajectories':
    weights = np.ones(len(lengths))
  if weights is not None:
    weights = np.cumsum(weights)
    weights /= weights[-1:]
  first_step = np.where(
    begin == chosen.begin[of], begin + padding, chosen.steps_begin[of]
  )
  return Ranges(
    first[kept],
    np.cumsum(lengths),
    weights,
    begin[kept],
    start[within[kept]],
    first_step[kept],
    terminates[kept],
  )


def _gapless(store: store_lib.Store, suffixes: Sequence[int]) -> np.ndarray:
  """Returns the ranges of rows that shards have without a gap, int64 (3, n).

  Returns:
    First row, row after the last, and number of padding rows at the beginning.
  """
  found: list[list[int]] = []
  goes_on = False
  for i, suffix in enumerate(store.suffixes):
    placement, stop = store.placements[i], int(store.starts[i + 1])
    if not placement.rows:
      continue
    is_used = suffix in suffixes
    if is_used and goes_on and placement.follows:
      found[-1][1] = stop
    elif is_used:
      found.append([int(store.starts[i]), stop, store.leading_padding(suffix)])
    goes_on = is_used
  return np.array(found, np.int64).reshape(-1, 3).T
