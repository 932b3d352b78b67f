"""The rows of a run in time order: actions, rewards and ends, without frames."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_columns


class RunRows:
  """The rows of a run, stitched from its shards and numbered from 0.

  Args:
    data_dir: Directory of the shards, or a store.
    columns: Small columns of the shards to use, in ascending order.
    listed: Numbers of the shards in the directory over the same range, ascending.
    max_rows: Number of rows to use from the start of each shard's ring; None for
      all. Shards of whole episodes are used whole.

  Attributes:
    data_dir: Directory of the shards, or a store.
    has_whole_episodes: Whether each shard begins and ends with an episode.
    starts_at_reset: Whether row 0 begins an episode: it is the first row of the run,
      or of a shard of whole episodes.
    suffixes: Numbers of the shards in use, ascending.
    placements: Rows that each shard adds to the run (`stitching.Placement`).
    problems: Missing and repeated rows, one line each.
    starts: First row of each shard, then the number of rows: int64 (shards + 1,).
    rows: Number of rows in the run, padding included.
    shard_rows: `(first, stop)` rows of each shard, by shard number.
    breaks: First rows of the shards that do not follow the shard before, int64.
    action: Integer actions in time order, (rows,).
    reward: Rewards in time order, (rows,).
    ends: Last rows of episodes, ascending: int64 (episodes,).
    truncations: Entries of `ends` at which the episode was truncated rather than
      terminated: int64 (truncations,).
    terminals: The other entries of `ends`: int64 (terminals,).
    logged_padding: Number of padding rows of an episode; None without a manifest that
      tells.
    frame_shape: Shape of an observation.
    frame_dtype: Dtype of an observation.
    rows_kept: Number of rows that the packed shard keeps, (shards,).
    first_kept: Position of each shard's first row among those, (shards,).

  Raises:
    ValueError: If these are not shards of one run.
  """

  def __init__(
    self,
    data_dir: str,
    columns: Sequence[packed_columns.Columns],
    listed: Sequence[int],
    max_rows: int | None = None,
  ):
    self.data_dir = data_dir
    self._columns = list(columns)  # with their rows, until these are stitched
    first = columns[0]
    self.has_whole_episodes = first.truncated is not None
    self.starts_at_reset = self.has_whole_episodes or (
      first.suffix == 0 and first.add_count <= first.capacity
    )
    self._max_rows = None if self.has_whole_episodes else max_rows
    self.suffixes = [c.suffix for c in columns]
    self._index = {suffix: i for i, suffix in enumerate(self.suffixes)}
    self._check_same_frames()
    self.frame_shape, self.frame_dtype = first.frame_shape, first.frame_dtype
    self._stitch(listed)
    rows = [p.rows for p in self.placements]
    self.starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
    self.rows = int(self.starts[-1])
    spans = itertools.pairwise(self.starts.tolist())
    self.shard_rows = dict(zip(self.suffixes, spans, strict=True))
    # Row `starts[i] + t` is at position `(first_kept[i] + t) % rows_kept[i]` of its
    # packed shard, and at `(_ring_start[i] + t) % _capacities[i]` of its ring.
    self.rows_kept = np.array([c.rows for c in columns])
    self._ring_start = np.array([p.start for p in self.placements])
    self._capacities = np.array([p.capacity for p in self.placements])
    first_kept = np.minimum(self._ring_start, self.rows_kept - 1)
    self.first_kept = np.where(rows, first_kept, 0)
    self.breaks = self.starts[:-1][[not p.follows for p in self.placements]]
    placed = list(zip(columns, self.first_kept, rows, strict=True))
    self.action, self.reward, terminal = (
      np.concatenate(
        [np.roll(getattr(c, name), -start)[:n] for c, start, n in placed]
      )
      for name in packed_columns.NAMES
    )
    self.ends = np.flatnonzero(terminal)
    # The arrays above replace those of the shards.
    self._columns = [c.without_rows() for c in columns]
    manifest = manifests.read(data_dir)
    self.truncations = np.intersect1d(self.ends, self._truncated_rows(manifest))
    self.terminals = np.setdiff1d(self.ends, self.truncations)
    self.logged_padding = manifests.padding(manifest)

  def check_frames(self, shape: Sequence[int], dtype: Any) -> None:
    """Raises a ValueError unless observations are those that an agent expects."""
    logged = self.frame_shape, self.frame_dtype
    expected = tuple(shape), np.dtype(dtype)
    if logged != expected:
      raise ValueError(
        f'{self.data_dir} holds observations of shape {logged[0]} {logged[1]}, '
        f'the agent expects {expected[0]} {expected[1]}: bind AnyAgent.observation_shape '
        'and AnyAgent.observation_dtype, or choose other data.'
      )

  def _check_same_frames(self) -> None:
    columns, first = self._columns, self._columns[0]
    if not first.frame_dtype.itemsize * math.prod(first.frame_shape):
      raise ValueError(
        f'{self.data_dir}: the observations of shard {first.suffix} are empty, '
        f'{first.frame_dtype} {first.frame_shape}.'
      )
    formats = {f'{c.frame_dtype} {c.frame_shape}': c.suffix for c in columns}
    if len(formats) > 1:
      listed = [f'{one} in shard {suffix}' for one, suffix in formats.items()]
      raise ValueError(
        f'{self.data_dir}: observations are {" and ".join(listed)}: are these two '
        'runs in one directory?'
      )

  def _stitch(self, listed: Sequence[int]) -> None:
    counts = [c.add_count for c in self._columns]
    capacities = [c.capacity for c in self._columns]
    try:
      placements, problems = (
        stitching.join_whole_episodes(self.suffixes, capacities)
        if self.has_whole_episodes
        else stitching.stitch(self.suffixes, counts, capacities)
      )
    except ValueError as error:
      raise ValueError(f'{self.data_dir}: {error}') from None
    problems = stitching.find_missing(listed) + problems
    self.problems = [f'{self.data_dir}: {problem}.' for problem in problems]
    if os.path.isdir(os.path.join(self.data_dir, shard_files.PARTIAL)):
      self.problems.append(f'{self.data_dir} {shard_files.UNFINISHED}.')
    for problem in self.problems:
      logging.warning('%s', problem)
    self.placements = [self._limit(p) for p in placements]

  def _limit(self, placement: stitching.Placement) -> stitching.Placement:
    """Limits a placement to the first `max_rows` of its ring, in time order."""
    capacity, rows = placement.capacity, placement.rows
    if self._max_rows is None or capacity <= self._max_rows or not rows:
      return placement
    end = (placement.start + rows - 1) % capacity + 1
    start = placement.start if placement.start < end else 0
    rows = max(0, min(end, self._max_rows) - start)
    start = start if rows else 0  # The ring's last row may be the only one.
    return placement._replace(start=start, rows=rows, follows=False)

  def _truncated_rows(self, manifest: Mapping[str, Any]) -> np.ndarray:
    """Returns the rows that shards or the manifest list as truncated: int64 (n,)."""
    if self.has_whole_episodes:
      of_shards = [
        start + np.array(columns.truncated, np.int64)
        for start, columns in zip(self.starts, self._columns, strict=False)
      ]
      return np.concatenate(of_shards)
    key = manifests.TRUNCATED_ROWS
    listed = manifests.look_up(manifest, key, kind=list) or []
    rows, capacity = np.array(listed, np.int64), int(self._capacities[0])
    # A ring's last row is its shard's first in time order.
    suffixes, ring = (rows + 1) // capacity, rows % capacity
    in_use = np.isin(suffixes, self.suffixes)
    return self.rows_of(suffixes[in_use], ring[in_use])

  def action_range(self) -> tuple[int, int]:
    """Returns the smallest and the largest action; (0, -1) without rows."""
    if not self.rows:
      return 0, -1
    return int(self.action.min()), int(self.action.max())

  def digest(self, suffix: int) -> str:
    """Returns the SHA-256 of a shard's small columns, in hex."""
    return self._columns[self._index[suffix]].digest

  def check_unchanged(self, suffix: int, digest: str) -> None:
    """Checks that a shard whose columns had a digest is in use, and still has it.

    Raises:
      ValueError: If the digests differ.
    """
    if suffix not in self.suffixes or digest != self.digest(suffix):
      raise ValueError(
        f'Shard {suffix} in {self.data_dir} has changed since it was opened.'
      )

  def capacity(self, suffix: int) -> int:
    """Returns the number of rows in a shard's ring, at most `max_rows`."""
    capacity = self._columns[self._index[suffix]].capacity
    return capacity if self._max_rows is None else min(capacity, self._max_rows)

  def add_count(self, suffix: int) -> int:
    """Returns the number of rows added before a dump, limited by `max_rows`."""
    i = self._index[suffix]
    columns, placement = self._columns[i], self.placements[i]
    if self.capacity(suffix) < columns.capacity:
      return placement.start + placement.rows
    return columns.add_count

  def shard_of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the shards of rows, as indices of `suffixes`: int64 (n,)."""
    return np.searchsorted(self.starts[1:-1], rows, side='right')

  def ring_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shards and ring positions of rows.

    Args:
      rows: Rows of the run, int64 (n,).

    Returns:
      Indices into `suffixes`, and positions in those shards' rings: int64 (n,).
    """
    shard_of = self.shard_of(rows)
    ring = self._ring_start[shard_of] + rows - self.starts[shard_of]
    return shard_of, ring % self._capacities[shard_of]

  def rows_of(self, suffixes: np.ndarray | int, ring: np.ndarray) -> np.ndarray:
    """Returns rows of the run, given shard numbers and ring positions.

    Args:
      suffixes: Shard numbers, (n,), or that of all.
      ring: Positions in those shards' rings, (n,).

    Returns:
      int64 (n,); -1 for positions that hold no row of the run.
    """
    i = np.searchsorted(self.suffixes, suffixes)
    within = (ring - self._ring_start[i]) % self._capacities[i]
    in_run = within < self.starts[i + 1] - self.starts[i]
    return np.where(in_run, self.starts[i] + within, -1)
