"""Statistics of a run: episodes, returns, lengths, actions and sizes.

Episodes may span shards, and padding rows do not count as agent steps. Frames are not
read.
"""

import dataclasses
import itertools
import os
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_shard
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files

# No environment has this many actions; a larger action means damage.
MAX_ACTIONS = 10_000


@dataclasses.dataclass(frozen=True)
class Episodes:
  """The n complete episodes of a run.

  Rows are numbered through the run as it is on disk, padding included.

  Attributes:
    suffix: int64 (n,), number of the shard in which each episode ends.
    first: int64 (n,), first row of each episode after its padding.
    last: int64 (n,), terminal row of each episode.
    returns: float64 (n,), sum of the rewards of each episode.
  """

  suffix: np.ndarray
  first: np.ndarray
  last: np.ndarray
  returns: np.ndarray


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
    starts: int64 (shards + 1,), first row of each shard, and the number of rows.
    padding: int64 (m,), padding rows of all episodes, ascending.
    bytes: int64 (shards,), size of each shard on disk.
    actions: int64 (actions,), number of agent steps by action.
    episodes: Complete episodes.
    episodes_cut: Number of episodes whose first rows are missing.
  """

  run: run_directories.RunDirectory
  manifest: dict[str, Any]
  placements: list[stitching.Placement]
  problems: list[str]
  frame_shape: tuple[int, ...]
  frame_dtype: np.dtype
  starts: np.ndarray
  padding: np.ndarray
  bytes: np.ndarray
  actions: np.ndarray
  episodes: Episodes
  episodes_cut: int

  @property
  def lengths(self) -> np.ndarray:
    """Agent steps of each complete episode, int64 (episodes,)."""
    return self.episodes.last - self.episodes.first + 1

  @property
  def padding_rows(self) -> np.ndarray:
    """Number of padding rows in each shard, int64 (shards,)."""
    return np.diff(np.searchsorted(self.padding, self.starts))

  @property
  def game(self) -> str:
    """Name of the game in the manifest, or else of the folder above the run."""
    return self.run.game_in(self.manifest)

  def shards(self) -> list[dict[str, Any]]:
    """Returns a JSON-serialisable summary of each shard."""
    recorded = {
      entry.get('suffix'): entry for entry in self.manifest.get('shards') or []
    }
    padding_rows = self.padding_rows.tolist()
    return [
      {
        'shard': placement.suffix,
        'rows': placement.rows,
        'agent_steps': placement.rows - padding_rows[i],
        'padding_rows': padding_rows[i],
        **self._summarize(
          self.episodes.suffix == placement.suffix,
          recorded.get(placement.suffix),
        ),
        'bytes': int(self.bytes[i]),
      }
      for i, placement in enumerate(self.placements)
    ]

  def totals(self) -> dict[str, Any]:
    """Returns a JSON-serialisable summary of the whole run."""
    rows, padding = int(self.starts[-1]), len(self.padding)
    size, steps = int(self.bytes.sum()), rows - padding
    return {
      'shards': len(self.placements),
      'rows': rows,
      'agent_steps': steps,
      'padding_rows': padding,
      **self._summarize(slice(None), self.manifest),
      'episodes_cut': self.episodes_cut,
      'bytes': size,
      'bytes_per_transition': size / steps if steps else None,
    }

  def to_json(self) -> dict[str, Any]:
    """Returns all statistics, JSON-serialisable."""
    return {
      'directory': self.run.directory,
      'game': self.game,
      'agent': self.manifest.get('agent'),
      'frames': {
        'shape': list(self.frame_shape),
        'dtype': str(self.frame_dtype),
      },
      'shards': self.shards(),
      'total': self.totals(),
      'actions': self.actions.tolist(),
      'problems': self.problems,
    }

  def _summarize(self, chosen: Any, recorded: Any) -> dict[str, Any]:
    """Summarizes episodes; only the manifest's entry has returns before clipping."""
    returns = self.episodes.returns[chosen]
    unclipped = {
      key: manifests.look_up(
        recorded, 'episodes', 'unclipped_return', key, kind=(int, float)
      )
      for key in ('mean', 'min', 'max')
    }
    return {
      'episodes': len(returns),
      'length': _statistics(self.lengths[chosen]),
      'return': _statistics(returns),
      'unclipped_return': None if None in unclipped.values() else unclipped,
    }


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
  lowest, highest = data.action_range()
  if lowest < 0 or highest >= MAX_ACTIONS:
    wrong = lowest if lowest < 0 else highest
    row = np.argmax(data.action == wrong)
    suffix = data.suffixes[np.searchsorted(data.starts, row, 'right') - 1]
    raise ValueError(
      f'Shard {suffix} in {data.data_dir} has action {wrong}; run `verify '
      f'{data.data_dir}` to check all files.'
    )
  episodes, padding, num_cut = _find_episodes(data)
  # NumPy counts 64-bit copies: one shard at a time saves memory.
  counts = [
    np.bincount(data.action[start:stop], minlength=max(highest + 1, 1))
    for start, stop in itertools.pairwise(data.starts)
  ]
  actions = np.sum(counts, axis=0)
  actions[0] -= len(padding)  # Padding has action 0.
  return RunStatistics(
    run=run,
    manifest=manifest,
    placements=placements,
    problems=problems,
    frame_shape=data.frame_shape,
    frame_dtype=data.frame_dtype,
    starts=data.starts,
    padding=padding,
    bytes=np.array([_size(run, suffix) for suffix in data.suffixes]),
    actions=np.maximum(actions, 0),
    episodes=episodes,
    episodes_cut=num_cut,
  )


def _find_episodes(data: store_lib.Store) -> tuple[Episodes, np.ndarray, int]:
  """Returns the complete episodes, all padding rows, and the number of cut ones."""
  found = subsets.trajectories(data)
  after_gap = [not placement.follows for placement in data.placements]
  at_reset = ~np.isin(found.begin, data.starts[:-1][after_gap])
  at_reset[:1] |= data.starts_at_reset
  first = np.minimum(found.steps_begin, found.stop)
  rows = found.begin[:, None] + np.arange((first - found.begin).max(initial=0))
  ended = np.isin(found.stop - 1, data.ends)
  complete = ended & at_reset
  last = found.stop[complete] - 1
  shard = np.searchsorted(data.starts, last, 'right') - 1
  episodes = Episodes(
    np.array(data.suffixes)[shard],
    first[complete],
    last,
    found.returns[complete],
  )
  return episodes, rows[rows < first[:, None]], int((ended & ~at_reset).sum())


def _size(run: run_directories.RunDirectory, suffix: int) -> int:
  """Returns the bytes of a shard on disk."""
  paths = [
    os.path.join(run.data_dir, shard_files.file_name(name, suffix))
    for name in shard_files.FILES
  ]
  if run.is_store:
    paths = list(packed_shard.paths(run.data_dir, suffix))
  return sum(files.stat(path)['bytes'] for path in paths)
