"""What is in a run: episodes, returns, actions, sizes.

Rows are stitched in time order (`shard.place`), so an episode that crosses a seam
is one episode, and padding rows are no steps. Frames are not read.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset import run_directories
from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  stitching,
)
from batch_rl.dataset.store import packed_shard
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files, machine

# More than any environment has; what is above is damage.
_MAX_ACTIONS = 10_000


@dataclasses.dataclass(frozen=True)
class Rows:
  """What the rewards and terminals of a shard say, in time order.

  Attributes:
    rows: how many the shard adds to the run.
    ends: int64 (n,), rows that end an episode.
    sums: float64 (n + 1,), rewards of the rows up to and with each end, and of
      those behind the last.
  """

  rows: int
  ends: np.ndarray
  sums: np.ndarray


def split(reward: np.ndarray, terminal: np.ndarray) -> Rows:
  """Cuts the rows of a shard where episodes end.

  Args:
    reward: float (rows,), in time order, like the next one.
    terminal: uint8 (rows,).
  """
  ends = np.flatnonzero(terminal)
  total = np.concatenate([[0.0], np.cumsum(reward, dtype=np.float64)])
  edges = np.concatenate([[0], ends + 1, [len(terminal)]])
  with np.errstate(invalid='ignore'):  # infinite rewards are the caller's
    return Rows(len(terminal), ends, np.diff(total[edges]))


@dataclasses.dataclass(frozen=True)
class Episodes:
  """The episodes of a run that are there from their first row to their last.

  Attributes:
    suffix: int64 (n,), the shard in which each ends.
    first: int64 (n,), the first row, numbered through the run as it is on disk,
      padding included.
    last: int64 (n,), the row with the terminal.
    returns: float64 (n,), sum of the rewards.
    starts: int64 (m,), ascending, the first row of every episode, also of
      unfinished ones.
    cut: how many begin in rows that are not there.
  """

  suffix: np.ndarray
  first: np.ndarray
  last: np.ndarray
  returns: np.ndarray
  starts: np.ndarray
  cut: int

  def lengths(self, padding: int) -> np.ndarray:
    """Agent steps of each, int64 (n,), with so many padding rows at its start."""
    return np.maximum(self.last - self.first + 1 - padding, 0)


def join(
  placements: Sequence[stitching.Placement], parts: Sequence[Rows | None]
) -> Episodes:
  """Puts episodes together across the seams of shards.

  Args:
    placements: of the shards, in order.
    parts: of the same shards; None for one that cannot be read.
  """
  found: list[tuple[np.ndarray, ...]] = []
  starts: list[np.ndarray] = []
  begun, carried, offset, cut = -1, 0.0, 0, 0  # -1: the beginning is not there
  joined = True
  for i, (placement, part) in enumerate(zip(placements, parts, strict=True)):
    if not (placement.follows and joined):
      whole = i == 0 and placement.suffix == 0 and placement.start == 0
      begun, carried = (0 if whole and placement.rows else -1), 0.0
      if whole and placement.rows:
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
    cut += int((~known).sum())
    found.append(
      (
        np.full(known.sum(), placement.suffix),
        first[:-1][known],
        last[known],
        returns[:-1][known],
      )
    )
    starts.append(last + 1)
    offset += placement.rows
  begins = np.concatenate([*starts, np.empty(0, np.int64)])
  columns = zip(*found, strict=True) if found else [[]] * 4
  suffix, first, last, returns = (
    np.concatenate([*column, np.empty(0, kind)])
    for column, kind in zip(
      columns, (np.int64, np.int64, np.int64, float), strict=True
    )
  )
  return Episodes(suffix, first, last, returns, begins, cut)


def in_time_order(
  array: np.ndarray, placement: stitching.Placement
) -> np.ndarray:
  """The rows of a ring that a shard adds to the run, oldest first."""
  end = placement.start + placement.rows
  over = max(end - placement.capacity, 0)
  if not over:
    return array[placement.start : end]
  return np.concatenate([array[placement.start :], array[:over]])


@dataclasses.dataclass(frozen=True)
class Inspection:
  """What `inspect` found.

  Attributes:
    run: where it is.
    manifest: what the logger wrote beside the shards, or empty.
    placements: of each shard (`shard.Placement`).
    problems: gaps and repetitions, a line each.
    frame_shape: of an observation.
    frame_dtype: of an observation.
    padding: all-zero rows at the start of each episode.
    padding_rows: int64 (shards,), how many each shard has of them.
    bytes: int64 (shards,), size of each on disk.
    actions: int64 (actions,), agent steps by action.
    episodes: those that are there as a whole.
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
  episodes: Episodes

  @property
  def starts(self) -> np.ndarray:
    """int64 (shards + 1,), the run's row at which each shard starts."""
    rows = [placement.rows for placement in self.placements]
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

  @property
  def lengths(self) -> np.ndarray:
    """int64 (episodes,), agent steps of each whole episode."""
    return self.episodes.lengths(self.padding)

  @property
  def game(self) -> str:
    """As the manifest says, or the folder above the run."""
    environment = ('environment', 'game')
    named = manifests.look_up(self.manifest, *environment, kind=str)
    return named or self.run.game

  def shards(self) -> list[dict[str, Any]]:
    """A JSON-able summary of each shard."""
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
    """A JSON-able summary of the run."""
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
      'episodes_cut': self.episodes.cut,
      'bytes': size,
      'bytes_per_transition': size / (rows - padding)
      if rows > padding
      else None,
    }

  def to_json(self) -> dict[str, Any]:
    """All of it, JSON-able."""
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
    """What the manifest has of them by shard; rows have clipped rewards only."""
    entries = manifests.look_up(self.manifest, 'shards', kind=list) or []
    by_shard = {}
    for entry in entries:
      suffix = manifests.look_up(entry, 'suffix', kind=int)
      if (found := self._statistics_of(entry)) is not None:
        by_shard[suffix] = found
    return by_shard

  def _statistics_of(self, entry: Any) -> dict[str, float] | None:
    keys = ('episodes', 'unclipped_return')
    found = manifests.look_up(entry, *keys, kind=dict) or {}
    numbers = {
      key: manifests.look_up(found, key, kind=(int, float))
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


def inspect(run: run_directories.RunDirectory) -> Inspection:
  """Reads actions, rewards and terminals of a run, with all cores.

  Args:
    run: of shards, or a store.

  Raises:
    ValueError: if there are no shards, one is incomplete, a file is damaged, or
      these are not shards of one run (`verify` says all that is wrong).
  """
  manifest = manifests.read(run.logs)
  if run.is_store:
    data = store_lib.Store(run.logs, pack=False)
    placements, problems = data.placements, data.problems
    frame_shape, frame_dtype = data.frame_shape, data.frame_dtype
    summaries = [_read_packed(data, i) for i in range(len(placements))]
  else:
    suffixes = shard_files.list_suffixes(run.logs)
    placements, problems = stitching.place(run.logs, suffixes)
    header = shard_reader.read_header(
      os.path.join(run.logs, shard_files.file_name('observation', suffixes[0]))
    )
    frame_shape, frame_dtype = header.shape[1:], header.dtype
    summaries = _read_shards(run.logs, placements)
  key = manifests.TRUNCATED_ROWS
  if truncated := manifests.look_up(manifest, key, kind=list):
    problems = [
      *problems,
      f'{len(truncated):,} episodes were cut off, and have a terminal for want of '
      f'another sign; nothing here takes it for one (see {key} in the manifest).',
    ]
  parts, actions, paddings, sizes = zip(*summaries, strict=True)
  episodes = join(placements, parts)
  stack_size = manifests.look_up(manifest, 'format', 'stack_size', kind=int)
  padding = min(paddings) if stack_size is None else max(stack_size - 1, 0)
  padding_rows = _count_padding(placements, episodes.starts, padding)
  steps = np.zeros(max(len(counts) for counts in actions), np.int64)
  for counts in actions:
    steps[: len(counts)] += counts
  steps[0] -= padding_rows.sum()  # padding has action 0
  return Inspection(
    run=run,
    manifest=manifest,
    placements=placements,
    problems=problems,
    frame_shape=frame_shape,
    frame_dtype=frame_dtype,
    padding=padding,
    padding_rows=padding_rows,
    bytes=np.array(sizes),
    actions=np.maximum(steps, 0),
    episodes=episodes,
  )


# Of a shard: episodes, action counts, padding and bytes on disk.
_Summary = tuple[Rows, np.ndarray, int, int]


def _read_shards(
  logs: str, placements: Sequence[stitching.Placement]
) -> list[_Summary]:
  bar = tqdm.tqdm(
    total=len(placements), unit='shard', disable=None, leave=False
  )

  def read(placement):
    result = _read_shard(logs, placement)
    bar.update()
    return result

  with bar, concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
    return list(pool.map(read, placements))


def _read_shard(logs: str, placement: stitching.Placement) -> _Summary:
  columns = {}
  for name in ('terminal', 'action', 'reward'):
    path = os.path.join(logs, shard_files.file_name(name, placement.suffix))
    array = shard_reader.read_array(path)
    shard_reader.check_column(
      path, name, array.shape, array.dtype, placement.capacity
    )
    columns[name] = in_time_order(array, placement)
  size = sum(
    files.stat(
      os.path.join(logs, shard_files.file_name(name, placement.suffix))
    )['bytes']
    for name in shard_files.FILES
  )
  return _summarize(logs, placement.suffix, size, **columns)


def _read_packed(data: store_lib.Store, i: int) -> _Summary:
  """Of shard i of a store."""
  start, stop = data.starts[i : i + 2]
  terminal = np.zeros(stop - start, bool)
  ends = data.ends[slice(*np.searchsorted(data.ends, (start, stop)))]
  terminal[ends - start] = True
  suffix = data.suffixes[i]
  size = sum(map(os.path.getsize, packed_shard.paths(data.data_dir, suffix)))
  return _summarize(
    data.data_dir,
    suffix,
    size,
    data.action[start:stop],
    data.reward[start:stop],
    terminal,
  )


def _summarize(
  logs: str,
  suffix: int,
  size: int,
  action: np.ndarray,
  reward: np.ndarray,
  terminal: np.ndarray,
) -> _Summary:
  wrong = None
  if len(odd := action[(action < 0) | (action >= _MAX_ACTIONS)]):
    wrong = f'action {odd[0]}'
  elif len(odd := reward[~np.isfinite(reward)]):
    wrong = f'reward {odd[0]}'
  if wrong:
    raise ValueError(
      f'Shard {suffix} in {logs} has {wrong}; `verify {logs}` says '
      'what else is wrong.'
    )
  rows = split(reward, terminal)
  padding = _padding(action, reward, rows)
  return rows, np.bincount(action, minlength=1), padding, size


def _padding(action: np.ndarray, reward: np.ndarray, rows: Rows) -> int:
  """Padding rows that every episode starting here may have, by all but frames.

  At most three, as in the DQN Replay Dataset: an episode may well begin with more
  rows of action 0.
  """
  empty = (action == 0) & (reward == 0)
  starts = rows.ends[rows.ends < len(empty) - 3] + 1
  for padding in (3, 2, 1):
    if empty[starts[:, None] + np.arange(padding)].all():
      return padding
  return 0


def _count_padding(
  placements: Sequence[stitching.Placement], starts: np.ndarray, padding: int
) -> np.ndarray:
  """Padding rows of each shard, int64 (shards,)."""
  edges = np.concatenate([[0], np.cumsum([p.rows for p in placements])])
  seams = [edges[i] for i, p in enumerate(placements) if i and not p.follows]
  ends = np.array([*seams, edges[-1]])
  # Of the rows before a seam that an episode may not cross.
  before = np.maximum(starts - 1, 0)
  end_of = ends[np.searchsorted(ends, before, 'right').clip(max=len(ends) - 1)]
  rows = starts[:, None] + np.arange(padding)
  rows = rows[rows < end_of[:, None]]
  shards = np.searchsorted(edges, rows, 'right') - 1
  return np.bincount(shards, minlength=len(placements))
