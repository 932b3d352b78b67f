"""The rows that can be drawn: a few contiguous ranges, and draws from them.

The index is small even for long runs, and sampling from it is exactly uniform.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.sampling import returns_to_go, subsets
from batch_rl.dataset.store import store as store_lib

WEIGHTINGS = ('steps', 'trajectories', 'returns')


def check_weighting(weighting: str, temperature: float) -> None:
  """Raises a ValueError unless these are arguments of a sampler."""
  if weighting not in WEIGHTINGS:
    raise ValueError(
      f'weighting={weighting!r} is not one of {", ".join(WEIGHTINGS)}.'
    )
  if not 0 < temperature < math.inf:
    raise ValueError(f'temperature={temperature} is not a positive number.')


class RandomNumbers:
  """Random numbers of a batch, from the words of Philox4x64-10 (Salmon et al., 2011).

  The words are defined by key and counter. NumPy's `Generator` may change what it makes
  of them, so the numbers are made here. `batch_kernel` has the same algorithm.

  Args:
    key: Key of the seed, uint64 (2,).
    number: Number of the batch, the second word of the counter.
  """

  def __init__(self, key: np.ndarray, number: int):
    counter = np.array([0, number, 0, 0], np.uint64)
    self._words = np.random.Philox(key=key, counter=counter)
    self._halves = np.zeros(0, np.uint32)  # of words, to be used next

  def uniform(self, count: int) -> np.ndarray:
    """Draws from [0, 1), float64 (count,), with 53 bits."""
    return (self._words.random_raw(count) >> np.uint64(11)) * 2.0**-53

  def integers(self, bounds: np.ndarray) -> np.ndarray:
    """Draws uniform integers by Lemire's method (2019) with 32 bits.

    Args:
      bounds: Upper bounds, exclusive, from 1 to 2^32: integers (n,).

    Returns:
      int64 (n,).
    """
    out = np.zeros(len(bounds), np.int64)
    left = np.flatnonzero(bounds > 1)  # Others take no random number.
    bound = bounds[left].astype(np.uint64)
    while len(left):
      halves = self._take(len(left))
      product = halves * bound
      rejected = (product & np.uint64(2**32 - 1)) < (
        (np.uint64(2**32) - bound) % bound
      )
      done = int(rejected.argmax()) if rejected.any() else len(left)
      out[left[:done]] = product[:done] >> np.uint64(32)
      # The numbers after a rejected one are draws for it and the later bounds.
      self._halves = np.concatenate([halves[done + 1 :], self._halves])
      left, bound = left[done:], bound[done:]
    return out

  def _take(self, count: int) -> np.ndarray:
    missing = max(0, count - len(self._halves) + 1) // 2
    words = self._words.random_raw(missing).astype('<u8')
    halves = np.concatenate([self._halves, words.view('<u4')])
    self._halves = halves[count:]
    return halves[:count]


class Pieces(NamedTuple):
  """The parts of n trajectories that some shards have, ascending, without gaps.

  A trajectory is one piece, unless the shards lack some of its rows.

  Attributes:
    begin: First row, padding included, int64 (n,).
    stop: Row after the last, int64 (n,).
    padding: Number of padding rows at the beginning, int64 (n,).
    gapless: First row of the gapless range of rows with the piece, int64 (n,).
    at_reset: Whether the piece follows the end of an episode, or begins with the log,
      bool (n,).
    ended: Whether the last row is the episode's, terminal or truncated, bool (n,).
    terminates: Whether the last row is terminal, bool (n,).
  """

  begin: np.ndarray
  stop: np.ndarray
  padding: np.ndarray
  gapless: np.ndarray
  at_reset: np.ndarray
  ended: np.ndarray
  terminates: np.ndarray


class Ranges(NamedTuple):
  """Ascending ranges of rows, none of them empty.

  Attributes:
    first: First row of each range, int64 (ranges,).
    cumulative: Number of rows up to the end of each range, int64 (ranges,).
    weighting: Distribution of the rows, one of `WEIGHTINGS`.
    weights: Cumulative probabilities of the ranges, float64 (ranges,), for 'returns'.
    pieces: The piece of a trajectory that each range is a part of.
    trajectory: Index of the trajectory of each range, int64 (ranges,).
  """

  first: np.ndarray
  cumulative: np.ndarray
  weighting: str
  weights: np.ndarray | None
  pieces: Pieces
  trajectory: np.ndarray

  def draw(self, key: np.ndarray, number: int, count: int) -> np.ndarray:
    """Draws the rows of a batch with replacement, int64 (count,).

    Args:
      key: Key of the seed, uint64 (2,).
      number: Number of the batch.
      count: Number of rows.
    """
    random = RandomNumbers(key, number)
    if self.weighting == 'steps':
      return self.rows(random.integers(np.full(count, self.total)))
    if self.weights is None:
      at = random.integers(np.full(count, len(self.first)))
    else:
      at = np.searchsorted(self.weights, random.uniform(count), side='right')
    lengths = np.diff(self.cumulative, prepend=0)
    return self.first[at] + random.integers(lengths[at])

  @property
  def total(self) -> int:
    """Number of rows in all ranges."""
    return int(self.cumulative[-1]) if len(self.cumulative) else 0

  def rows(self, numbers: np.ndarray) -> np.ndarray:
    """Returns the rows at positions `numbers`, int64 (n,), in the list of all rows."""
    at = np.searchsorted(self.cumulative, numbers, side='right')
    before = np.where(at > 0, self.cumulative[at - 1], 0)
    return self.first[at] + numbers - before

  def contain(self, rows: np.ndarray) -> np.ndarray:
    """Returns whether rows, int64 (n,), are in a range: bool (n,)."""
    if not len(self.first):
      return np.zeros(len(rows), bool)
    at = self.of(rows)
    lengths = np.diff(self.cumulative, prepend=0)
    return (rows >= self.first[at]) & (rows < self.first[at] + lengths[at])

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
    weighting: Distribution of the rows.
    temperature: Temperature of the weighting 'returns'.
  """
  found = pieces(store, suffixes)
  no_frames = found.at_reset & pads
  skipped = np.where(
    no_frames, found.padding, np.maximum(before, found.padding)
  )
  of = np.searchsorted(chosen.begin, found.begin, side='right') - 1
  first = np.maximum(found.begin + skipped, chosen.start[of])
  stop = found.stop - np.where(found.terminates, 0, after)
  stop = np.minimum(stop, chosen.stop[of])
  kept = stop > first
  if complete_only:
    kept &= found.at_reset & found.ended
  first, lengths, of = first[kept], (stop - first)[kept], of[kept]
  weights = None
  if weighting == 'returns' and len(of):
    returns = chosen.returns[of]
    weights = returns_to_go.weights(
      returns, returns.min(), returns.max(), temperature
    )
    weights = np.cumsum(lengths * weights)
    weights /= weights[-1]
  return Ranges(
    first,
    np.cumsum(lengths),
    weighting,
    weights,
    Pieces(*(column[kept] for column in found)),
    of,
  )


def pieces(store: store_lib.Store, suffixes: Sequence[int]) -> Pieces:
  """Returns the pieces of trajectories in packed shards.

  Args:
    store: Store of a run.
    suffixes: Numbers of the shards to use, packed ones.
  """
  parts = [_pieces_of(store, *stretch) for stretch in _gapless(store, suffixes)]
  if not parts:
    return Pieces(*np.zeros((4, 0), np.int64), *np.zeros((3, 0), bool))
  return Pieces(*map(np.concatenate, zip(*parts, strict=True)))


def _pieces_of(store, start, stop, leading, paddings) -> Pieces:
  """Divides a gapless range of rows at the ends of episodes; see `_gapless`."""
  ends = store.ends[slice(*np.searchsorted(store.ends, (start, stop)))]
  # The last piece is empty if the range stops at an end.
  begin, stops = np.append(start, ends + 1), np.append(ends + 1, stop)
  ended = np.arange(len(begin)) < len(ends)
  shard_of = np.searchsorted(paddings[:, 0], begin, side='right') - 1
  padding = paddings[shard_of, 1]
  padding[0] = leading
  at_reset = np.ones(len(begin), bool)
  all_padding = leading == paddings[0, 1]
  at_reset[0] = store.may_begin_at_reset(start) and all_padding
  return Pieces(
    begin,
    stops,
    padding,
    np.full(len(begin), start),
    at_reset,
    ended,
    ended & ~np.isin(stops - 1, store.truncations),
  )


def _gapless(
  store: store_lib.Store, suffixes: Sequence[int]
) -> Iterator[tuple[int, int, int, np.ndarray]]:
  """Yields `(start, stop, leading, paddings)` of each gapless range of rows.

  `leading` is the number of padding rows at its start. `paddings`, int64
  (shards, 2), has the first row of each shard and the number of padding rows of
  the episodes that begin in it.
  """
  start = stop = leading = 0
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
        yield start, stop, leading, np.array(paddings)
      start = int(store.starts[i])
      leading = store.leading_padding(suffix)
      paddings = []
    paddings.append((int(store.starts[i]), store.padding(suffix)))
    stop = int(store.starts[i + 1])
    before = suffix
  if stop > start:
    yield start, stop, leading, np.array(paddings)
