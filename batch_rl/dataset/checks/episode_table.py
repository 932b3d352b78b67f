"""The episodes of a run, assembled from the rewards and terminals of its shards."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from batch_rl.dataset.shards import stitching


@dataclasses.dataclass(frozen=True)
class Segments:
  """The rows of one shard in time order, divided after each terminal.

  Attributes:
    rows: Number of rows that the shard adds to the run.
    ends: int64 (n,), terminal rows.
    sums: float64 (n + 1,), sum of the rewards in each segment; the last segment has
      no terminal.
  """

  rows: int
  ends: np.ndarray
  sums: np.ndarray


def split_shard(reward: np.ndarray, terminal: np.ndarray) -> Segments:
  """Divides the rows of a shard after each terminal.

  Args:
    reward: float (rows,), rewards in time order.
    terminal: uint8 (rows,), terminals in time order.
  """
  ends = np.flatnonzero(terminal)
  total = np.concatenate([[0.0], np.cumsum(reward, dtype=np.float64)])
  edges = np.concatenate([[0], ends + 1, [len(terminal)]])
  with np.errstate(invalid='ignore'):  # Callers check for infinite rewards.
    return Segments(len(terminal), ends, np.diff(total[edges]))


@dataclasses.dataclass(frozen=True)
class EpisodeTable:
  """The n complete episodes of a run.

  Rows are numbered through the run as it is on disk, padding included.

  Attributes:
    suffix: int64 (n,), number of the shard in which each episode ends.
    first: int64 (n,), first row of each episode, its padding included.
    last: int64 (n,), terminal row of each episode.
    returns: float64 (n,), sum of the rewards of each episode.
    starts: int64 (m,), first rows of all episodes, unfinished ones included,
      ascending.
    num_partial: Number of episodes whose first rows are missing.
  """

  suffix: np.ndarray
  first: np.ndarray
  last: np.ndarray
  returns: np.ndarray
  starts: np.ndarray
  num_partial: int

  def lengths(self, padding: int) -> np.ndarray:
    """Returns the agent steps of each episode, int64 (n,).

    Args:
      padding: Number of padding rows at the start of each episode.
    """
    return np.maximum(self.last - self.first + 1 - padding, 0)


def join_shards(
  placements: Sequence[stitching.Placement],
  segments: Sequence[Segments | None],
  starts_at_reset: bool | None = None,
) -> EpisodeTable:
  """Joins the segments of all shards into episodes.

  Args:
    placements: Placements of the shards, in order.
    segments: Segments of the same shards; None for a shard that cannot be read.
    starts_at_reset: Whether the first row begins an episode; None if that is the case
      for the first shard of a log only.
  """
  columns: list[tuple[np.ndarray, ...]] = []
  starts: list[np.ndarray] = []
  # First row and rewards of the open episode; the row is -1 if it is missing.
  begun, carried = -1, 0.0
  offset = num_partial = 0
  joined = True
  for i, (placement, part) in enumerate(zip(placements, segments, strict=True)):
    if not (placement.follows and joined):
      at_reset = placement.suffix == 0 and placement.start == 0
      if starts_at_reset is not None:
        at_reset = starts_at_reset
      at_reset = at_reset and i == 0 and placement.rows > 0
      begun, carried = (0 if at_reset else -1), 0.0
      if at_reset:
        starts.append(np.zeros(1, np.int64))
    joined = part is not None
    if part is None:
      offset += placement.rows
      continue
    last = offset + part.ends
    first = np.concatenate([[begun], last + 1]).astype(np.int64)
    returns = part.sums.copy()
    returns[0] += carried
    begun, carried = int(first[-1]), float(returns[-1])
    known = first[:-1] >= 0
    num_partial += int((~known).sum())
    columns.append(
      (
        np.full(known.sum(), placement.suffix),
        first[:-1][known],
        last[known],
        returns[:-1][known],
      )
    )
    starts.append(last + 1)
    offset += placement.rows
  suffix, first, last, returns = (
    np.concatenate([*parts, np.empty(0, dtype)])
    for parts, dtype in zip(
      zip(*columns, strict=True) if columns else [[]] * 4,
      (np.int64, np.int64, np.int64, float),
      strict=True,
    )
  )
  all_starts = np.concatenate([*starts, np.empty(0, np.int64)])
  return EpisodeTable(suffix, first, last, returns, all_starts, num_partial)
