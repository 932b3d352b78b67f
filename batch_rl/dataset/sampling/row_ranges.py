"""Ranges of rows to draw from, of the shards that are packed.

The rows to draw from are a few contiguous ranges, so their index is small even for long
runs, and sampling from it is exactly uniform.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.sampling import returns_to_go
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


def cumulative_weights(
  lengths: np.ndarray, returns: np.ndarray, weighting: str, temperature: float
) -> np.ndarray | None:
  """Returns `Ranges.weights`, given the ranges' lengths and trajectories' returns."""
  if weighting != 'returns' or not len(lengths):
    return None
  weights = returns_to_go.weights(
    returns, returns.min(), returns.max(), temperature
  )
  cumulative = np.cumsum(lengths * weights)
  return cumulative / cumulative[-1]


class Ranges(NamedTuple):
  """Ascending ranges of rows, none of them empty.

  Attributes:
    num_shards: Number of packed shards when the ranges were made.
    first: First row of each range, int64 (ranges,).
    cumulative: Number of rows up to the end of each range, int64 (ranges,).
    weights: Cumulative probabilities of the ranges, float64 (ranges,); None for equal
      ones.
  """

  num_shards: int
  first: np.ndarray
  cumulative: np.ndarray
  weights: np.ndarray | None = None

  def draw(
    self, generator: np.random.Generator, count: int, weighting: str
  ) -> np.ndarray:
    """Draws rows with replacement, int64 (count,).

    Args:
      generator: Source of the random numbers.
      count: Number of rows.
      weighting: 'steps' for a uniform row; otherwise a range is drawn first, by
        `weights`, then a row of it.
    """
    if weighting == 'steps':
      return self.rows(generator.integers(self.total, size=count))
    if self.weights is None:
      at = generator.integers(len(self.first), size=count)
    else:
      at = np.searchsorted(self.weights, generator.random(count), side='right')
    lengths = np.diff(self.cumulative, prepend=0)
    return self.first[at] + generator.integers(lengths[at])

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
    first, cumulative = self.first, self.cumulative
    if not len(first):
      return np.zeros(len(rows), bool)
    at = np.maximum(np.searchsorted(first, rows, side='right') - 1, 0)
    before = np.where(at > 0, cumulative[at - 1], 0)
    return (rows >= first[at]) & (rows < first[at] + cumulative[at] - before)


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
  if len(ends) and ends[-1] == stop - 1:
    begin, stops = np.append(start, ends[:-1] + 1), ends + 1
  else:
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
