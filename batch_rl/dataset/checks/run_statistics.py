"""Statistics of a run: episodes, returns, lengths, actions and sizes.

Episodes may span shards, and padding rows do not count as agent steps. Frames are not
read.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import episode_table
from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_shard, store_directory
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files

# No environment has this many actions; a larger action means damage.
MAX_ACTIONS = 10_000


@dataclasses.dataclass(frozen=True)
class RunStatistics:
  """Statistics of a run, made by `compute`.

  Attributes:
    run: Run that was read.
    manifest: Manifest of the run; empty if it has none.
    placements: Placement of each shard.
    problems: Gaps, repeated rows and remarks, one line each.
    frame_shape: Shape of an observation.
    frame_dtype: Dtype of an observation.
    padding: Number of padding rows at the start of each episode.
    padding_rows: int64 (shards,), number of padding rows in each shard.
    bytes: int64 (shards,), size of each shard on disk.
    actions: int64 (actions,), number of agent steps by action.
    episodes: Complete episodes.
  """

  run: run_directories.RunDirectory
  manifest: dict[str, Any]
  placements: list[stitching.Placement]
  problems: list[str]
  frame_shape: tuple[int, ...]
  frame_dtype: np.dtype
  padding: int
  padding_rows: np.ndarray
  bytes: np.ndarray
  actions: np.ndarray
  episodes: episode_table.EpisodeTable

  @property
  def starts(self) -> np.ndarray:
    """First row of each shard, and the number of rows: int64 (shards + 1,)."""
    rows = [placement.rows for placement in self.placements]
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

  @property
  def lengths(self) -> np.ndarray:
    """Agent steps of each complete episode, int64 (episodes,)."""
    return self.episodes.lengths(self.padding)

  @property
  def game(self) -> str:
    """Name of the game in the manifest, or else of the folder above the run."""
    return self.run.game_in(self.manifest)

  def shards(self) -> list[dict[str, Any]]:
    """Returns a JSON-serialisable summary of each shard."""
    unclipped = self._unclipped_returns()
    return [
      {
        'shard': placement.suffix,
        'rows': placement.rows,
        'agent_steps': placement.rows - int(self.padding_rows[i]),
        'padding_rows': int(self.padding_rows[i]),
        **self._episode_statistics(self.episodes.suffix == placement.suffix),
        'unclipped_return': unclipped.get(placement.suffix),
        'bytes': int(self.bytes[i]),
      }
      for i, placement in enumerate(self.placements)
    ]

  def totals(self) -> dict[str, Any]:
    """Returns a JSON-serialisable summary of the whole run."""
    rows, padding = int(self.starts[-1]), int(self.padding_rows.sum())
    size = int(self.bytes.sum())
    unclipped = self._statistics_of(self.manifest)
    return {
      'shards': len(self.placements),
      'rows': rows,
      'agent_steps': rows - padding,
      'padding_rows': padding,
      **self._episode_statistics(np.ones(len(self.episodes.last), bool)),
      'unclipped_return': unclipped,
      'episodes_cut': self.episodes.num_partial,
      'bytes': size,
      'bytes_per_transition': size / (rows - padding)
      if rows > padding
      else None,
    }

  def to_json(self) -> dict[str, Any]:
    """Returns all statistics, JSON-serialisable."""
    return {
      'directory': self.run.directory,
      'game': self.game,
      'agent': manifests.look_up(self.manifest, 'agent', kind=str),
      'frames': {
        'shape': list(self.frame_shape),
        'dtype': str(self.frame_dtype),
      },
      'shards': self.shards(),
      'total': self.totals(),
      'actions': self.actions.tolist(),
      'problems': self.problems,
    }

  def _episode_statistics(self, chosen: np.ndarray) -> dict[str, Any]:
    return {
      'episodes': int(chosen.sum()),
      'length': _statistics(self.lengths[chosen]),
      'return': _statistics(self.episodes.returns[chosen]),
    }

  def _unclipped_returns(self) -> dict[int, dict[str, float]]:
    """Returns unclipped returns by shard, which only the manifest records."""
    entries = manifests.look_up(self.manifest, 'shards', kind=list) or []
    by_shard = {}
    for entry in entries:
      suffix = manifests.look_up(entry, 'suffix', kind=int)
      if (statistics := self._statistics_of(entry)) is not None:
        by_shard[suffix] = statistics
    return by_shard

  def _statistics_of(self, entry: Any) -> dict[str, float] | None:
    recorded = manifests.look_up(
      entry, 'episodes', 'unclipped_return', kind=dict
    )
    numbers = {
      key: manifests.look_up(recorded, key, kind=(int, float))
      for key in ('mean', 'min', 'max')
    }
    return None if None in numbers.values() else numbers


def _statistics(values: np.ndarray) -> dict[str, float] | None:
  if not len(values):
    return None
  return {
    'mean': float(values.mean()),
    'std': float(values.std()),
    'median': float(np.median(values)),
    'min': float(values.min()),
    'max': float(values.max()),
  }


def compute(run: run_directories.RunDirectory) -> RunStatistics:
  """Reads actions, rewards and terminals of a run, on all processors.

  Args:
    run: Run of shards, or a store.

  Raises:
    ValueError: If there are no shards, a shard is incomplete or damaged, or the
      shards belong to different runs.
  """
  manifest = manifests.read(run.data_dir)
  data = store_lib.Store(run.data_dir, pack=False)
  placements, problems = data.placements, data.problems
  truncated = len(data.truncations)
  if truncated:
    problems = [
      *problems,
      f'{truncated:,} episodes were truncated. The format has to mark their ends as '
      'terminal; batches do not.',
    ]
  segments, actions, sizes = zip(
    *(_summarize(data, i) for i in range(len(placements))), strict=True
  )
  episodes = episode_table.join_shards(
    placements, segments, data.starts_at_reset
  )
  padding = data.first_padding()
  padding_rows = _count_padding(placements, episodes.starts, padding)
  steps = np.zeros(max(len(counts) for counts in actions), np.int64)
  for counts in actions:
    steps[: len(counts)] += counts
  steps[0] -= padding_rows.sum()  # Padding has action 0.
  return RunStatistics(
    run=run,
    manifest=manifest,
    placements=placements,
    problems=problems,
    frame_shape=data.frame_shape,
    frame_dtype=data.frame_dtype,
    padding=padding,
    padding_rows=padding_rows,
    bytes=np.array(sizes),
    actions=np.maximum(steps, 0),
    episodes=episodes,
  )


def _summarize(
  data: store_lib.Store, i: int
) -> tuple[episode_table.Segments, np.ndarray, int]:
  """Returns segments, action counts and bytes on disk of shard i."""
  start, stop = data.starts[i : i + 2]
  action, reward = data.action[start:stop], data.reward[start:stop]
  terminal = np.zeros(stop - start, bool)
  ends = data.ends[slice(*np.searchsorted(data.ends, (start, stop)))]
  terminal[ends - start] = True
  suffix = data.suffixes[i]
  if store_directory.is_store(data.data_dir):
    paths = list(packed_shard.paths(data.data_dir, suffix))
  else:
    paths = [
      os.path.join(data.data_dir, shard_files.file_name(name, suffix))
      for name in shard_files.FILES
    ]
  size = sum(files.stat(path)['bytes'] for path in paths)
  if len(invalid := action[(action < 0) | (action >= MAX_ACTIONS)]):
    raise ValueError(
      f'Shard {suffix} in {data.data_dir} has action {invalid[0]}; run `verify '
      f'{data.data_dir}` to check all files.'
    )
  segments = episode_table.split_shard(reward, terminal)
  return segments, np.bincount(action, minlength=1), size


def _count_padding(
  placements: Sequence[stitching.Placement], starts: np.ndarray, padding: int
) -> np.ndarray:
  """Returns the number of padding rows in each shard, int64 (shards,)."""
  edges = np.concatenate([[0], np.cumsum([p.rows for p in placements])])
  gaps = [edges[i] for i, p in enumerate(placements) if i and not p.follows]
  ends = np.array([*gaps, edges[-1]])
  # Padding stops at a gap.
  before = np.maximum(starts - 1, 0)
  end_of = ends[np.searchsorted(ends, before, 'right').clip(max=len(ends) - 1)]
  rows = starts[:, None] + np.arange(padding)
  rows = rows[rows < end_of[:, None]]
  shards = np.searchsorted(edges, rows, 'right') - 1
  return np.bincount(shards, minlength=len(placements))
