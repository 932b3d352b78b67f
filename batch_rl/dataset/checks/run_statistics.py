"""Statistics of a run: episodes, returns, lengths, actions and sizes.

Episodes may span shards, and padding rows do not count as agent steps. Frames are read
only to find the padding of a run without a manifest.
"""

from typing import Any

import numpy as np

from batch_rl.atari import roms
from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.dataset.store import packed_shard
from batch_rl.dataset.store import store as store_lib
from batch_rl.minatar import games as minatar
from batch_rl.utils import files

# No environment has this many actions; a larger action means damage.
MAX_ACTIONS = 10_000


class RunStatistics:
  """Statistics of a run with n complete episodes, read on all processors.

  Rows are numbered through the run as it is on disk, padding included.

  Args:
    run: Run of shards, or a store.

  Attributes:
    run: Run that was read.
    manifest: Manifest of the run; empty if it has none.
    game: Name of the game in the manifest, or else of the folder above the run.
    data: Store of the run, not packed.
    problems: Gaps, repeated rows and remarks, one line each.
    padding: int64 (m,), padding rows of all episodes, ascending.
    actions: int64 (actions,), number of agent steps by action.
    ends_in: int64 (n,), number of the shard in which each episode ends.
    first: int64 (n,), first row of each episode after its padding.
    last: int64 (n,), terminal row of each episode.
    lengths: int64 (n,), agent steps of each episode.
    returns: float64 (n,), sum of the rewards of each episode.
    episodes_cut: Number of episodes whose first rows are missing.

  Raises:
    ValueError: If there are no shards, a shard is incomplete or damaged, or the
      shards belong to different runs.
  """

  def __init__(self, run: run_directories.RunDirectory):
    self.run = run
    self.manifest = manifests.read(run.data_dir)
    listed = self.manifest.get('shards') or []
    self._recorded = {entry.get('suffix'): entry for entry in listed}
    self.game = run.game_in(self.manifest)
    self.data = data = store_lib.Store(run.data_dir, pack=False)
    self.problems = list(data.problems)
    if truncated := len(data.truncations):
      self.problems.append(
        f'{truncated:,} episodes were truncated. The shards mark their ends as terminal; '
        'batches do not treat them so.'
      )
    found = subsets.trajectories(data)
    first = np.minimum(found.steps_begin, found.stop)
    most = (first - found.begin).max(initial=0)
    rows = found.begin[:, None] + np.arange(most)
    self.padding = rows[rows < first[:, None]]
    self.actions = self._count_actions()
    ended = np.isin(found.stop - 1, data.ends)
    complete = ended & found.at_reset
    self.first = first[complete]
    self.last = found.stop[complete] - 1
    self.lengths = self.last - self.first + 1
    shard, _ = data.ring_of(self.last)
    self.ends_in = np.array(data.suffixes)[shard]
    self.returns = found.returns[complete]
    self.episodes_cut = int((ended & ~found.at_reset).sum())

  def _count_actions(self) -> np.ndarray:
    """Returns the number of agent steps by action."""
    data = self.data
    lowest, highest = data.action_range()
    if lowest < 0 or highest >= MAX_ACTIONS:
      raise ValueError(
        f'{data.data_dir} has action {lowest if lowest < 0 else highest}: actions are 0 to '
        f'{MAX_ACTIONS - 1:,}.'
      )
    # NumPy counts 64-bit copies: one shard at a time saves memory.
    counts = [
      np.bincount(part, minlength=max(highest + 1, 1))
      for part in np.split(data.action, data.starts[1:-1])
    ]
    actions = np.sum(counts, axis=0)
    actions[0] -= len(self.padding)  # Padding has action 0.
    return np.maximum(actions, 0)

  @property
  def action_names(self) -> list[str]:
    """Names of the actions; none if the game is unknown, or has fewer actions."""
    try:
      is_minatar = minatar.is_minatar(self.game)
      names = minatar.ACTIONS if is_minatar else roms.action_names(self.game)
    except (ValueError, ImportError):  # without ale-py
      return []
    actions = len(self.actions)
    return [*names[:actions]] if actions <= len(names) else []

  def shards(self) -> list[dict[str, Any]]:
    """Returns a JSON-serialisable summary of each shard."""
    return [
      {'shard': n, **self._summarize([n], *span, self._recorded.get(n))}
      for n, span in self.data.shard_rows.items()
    ]

  def totals(self) -> dict[str, Any]:
    """Returns a JSON-serialisable summary of the whole run."""
    suffixes = self.data.suffixes
    is_whole = self._recorded.keys() <= {*suffixes}
    recorded = self.manifest if is_whole else {}
    return {
      'shards': len(suffixes),
      'episodes_cut': self.episodes_cut,
      **self._summarize(suffixes, 0, self.data.rows, recorded),
    }

  def to_json(self) -> dict[str, Any]:
    """Returns all statistics, JSON-serialisable."""
    shape, dtype = self.data.frame_shape, self.data.frame_dtype
    return {
      'directory': self.run.directory,
      'game': self.game,
      'agent': self.manifest.get('agent'),
      'frames': {'shape': list(shape), 'dtype': str(dtype)},
      'shards': self.shards(),
      'total': self.totals(),
      'actions': self.actions.tolist(),
      'problems': self.problems,
    }

  def _summarize(
    self, suffixes: list[int], start: int, stop: int, recorded: Any
  ) -> dict[str, Any]:
    """Summarizes the rows of shards; only the manifest has returns before clipping."""
    ended = np.isin(self.ends_in, suffixes)
    returns, size = self.returns[ended], sum(map(self._size, suffixes))
    first, last = np.searchsorted(self.padding, (start, stop)).tolist()
    rows, padding = stop - start, last - first
    steps = rows - padding
    keys, kind = ('episodes', 'unclipped_return'), (int, float)
    unclipped = {
      key: manifests.look_up(recorded, *keys, key, kind=kind)
      for key in ('mean', 'min', 'max')
    }
    return {
      'rows': rows,
      'agent_steps': steps,
      'padding_rows': padding,
      'episodes': len(returns),
      'length': _statistics(self.lengths[ended]),
      'return': _statistics(returns),
      'unclipped_return': None if None in unclipped.values() else unclipped,
      'bytes': size,
      'bytes_per_transition': size / steps if steps else None,
    }

  def _size(self, suffix: int) -> int:
    """Returns the bytes of a shard on disk."""
    directory = self.run.data_dir
    paths: tuple[str, ...] = packed_shard.paths(directory, suffix)
    if not self.run.is_store:
      names = shard_files.FILES
      paths = tuple(shard_files.path(directory, n, suffix) for n in names)
    return sum(files.stat(path)['bytes'] for path in paths)


def _statistics(values: np.ndarray) -> dict[str, float] | None:
  names = ('mean', 'std', 'median', 'min', 'max')
  if not len(values):
    return None
  return {name: float(getattr(np, name)(values)) for name in names}
