"""Checks of all files of a run.

Each file is read and hashed once, as a stream, and shards are read in parallel. A
damaged file does not stop the checks of the others.
"""

import collections
import concurrent.futures
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import (
  episode_table,
  run_statistics,
  shard_checks,
)
from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_shard, store_directory
from batch_rl.utils import files, machine

# Default without a manifest: that of the DQN Replay Dataset.
_MAX_EPISODE_STEPS = 27_000  # 108,000 frames


@dataclasses.dataclass(frozen=True)
class Report:
  """Result of the verification of a run.

  Attributes:
    data_dir: Directory of the shards.
    shards: JSON-serialisable summary of each shard: shard, rows, stale_rows, episodes,
      mean_return; None for values that cannot be read.
    findings: Errors, then suspicious data, then notes.
    bytes: Total size of the files.
  """

  data_dir: str
  shards: list[dict[str, Any]]
  findings: list[shard_checks.Finding]
  bytes: int

  @property
  def problems(self) -> list[shard_checks.Finding]:
    """All findings except notes."""
    return [f for f in self.findings if f.level != 'note']

  def to_json(self) -> dict[str, Any]:
    """Returns the report, JSON-serialisable."""
    return {
      'replay_logs': self.data_dir,
      'ok': not self.problems,
      'shards': self.shards,
      'findings': [dataclasses.asdict(f) for f in self.findings],
      'bytes': self.bytes,
    }


def verify(data_dir: str, title: str = '') -> Report:
  """Reads every file of a run and checks it against the format and the manifest.

  Args:
    data_dir: Directory of the shards, local or remote.
    title: Title of the progress bar.

  Raises:
    ValueError: If there are no shards.
  """
  return _Verification(data_dir).run(title)


def verify_store(run: run_directories.RunDirectory) -> Report:
  """Checks a store against its own hashes, without the shards it was made from.

  Args:
    run: Store to check.

  Raises:
    ValueError: If the store is incomplete, or a file common to its shards is damaged.
  """
  suffixes = store_directory.StoreDirectory(run.data_dir).shards()
  findings = [
    shard_checks.Finding(
      'error', packed_shard.paths(run.data_dir, suffix)[0], problem
    )
    for suffix in tqdm.tqdm(suffixes, unit='shard', disable=None, leave=False)
    if (problem := packed_shard.verify_packed(run.data_dir, suffix))
  ]
  try:
    manifests.read(run.data_dir)
  except ValueError as error:
    path = os.path.join(run.data_dir, manifests.FILE_NAME)
    findings.append(shard_checks.Finding('error', path, str(error)))
  if findings:
    return Report(run.data_dir, [], findings, 0)
  statistics = run_statistics.compute(run)
  notes = [
    shard_checks.Finding('note', run.data_dir, problem)
    for problem in statistics.problems
  ]
  shards = [
    {
      'shard': entry['shard'],
      'rows': entry['rows'],
      'stale_rows': None,
      'episodes': entry['episodes'],
      'mean_return': entry['return'] and entry['return']['mean'],
    }
    for entry in statistics.shards()
  ]
  return Report(run.data_dir, shards, notes, statistics.totals()['bytes'])


class _Verification:
  """State of one pass over a run."""

  def __init__(self, data_dir: str):
    self._data_dir = data_dir
    self._names = set(files.list_directory(data_dir))
    self._progress = _Progress()
    suffixes = shard_files.list_suffixes(data_dir, complete=False)
    self._shards = [
      shard_checks.ShardChecks(
        data_dir, suffix, self._names, self._progress.advance
      )
      for suffix in suffixes or shard_files.list_suffixes(data_dir)
    ]
    self._findings: list[shard_checks.Finding] = []
    self._manifest: dict[str, Any] = {}
    self._manifest_path = os.path.join(data_dir, manifests.FILE_NAME)

  def run(self, title: str) -> Report:
    size = sum(
      files.stat(path)['bytes']
      for checks in self._shards
      for path in checks.paths.values()
    )
    with self._progress.show(size, title):
      self._read_manifest()
      self._note_unusual_content()
      self._for_each_shard(lambda checks: checks.read_counters())
      self._place()
      expected = self._expected()
      self._for_each_shard(lambda checks: checks.check_columns(expected))
    self._note_stale_rows()
    self._check_manifest()
    episodes = self._join_episodes()
    self._find_repeated_frames()
    findings = [f for checks in self._shards for f in checks.findings]
    findings += self._findings
    return Report(
      self._data_dir,
      [_summarize(checks, episodes) for checks in self._shards],
      sorted(findings, key=lambda f: shard_checks.LEVELS.index(f.level)),
      size,
    )

  def _for_each_shard(
    self, check: Callable[[shard_checks.ShardChecks], None]
  ) -> None:
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
      try:
        list(pool.map(check, self._shards))
      except BaseException:
        self._progress.stop()
        pool.shutdown(cancel_futures=True)
        raise

  def _add(self, level: str, file: str, message: str) -> None:
    self._findings.append(shard_checks.Finding(level, file, message))

  def _look_up(self, *keys: str, kind: Any) -> Any:
    return manifests.look_up(self._manifest, *keys, kind=kind)

  def _read_manifest(self) -> None:
    path = self._manifest_path
    try:
      self._manifest = manifests.read(self._data_dir)
    except ValueError as error:
      self._add('error', path, str(error))
      return
    if not self._manifest:
      self._add(
        'note', path, f'{path} does not exist; only the format was verified.'
      )

  def _note_unusual_content(self) -> None:
    expected = {
      shard_files.file_name(name, checks.suffix)
      for checks in self._shards
      for name in shard_files.FILES
    }
    others = sorted(n for n in self._names - expected if '_ckpt.' in n)
    remarks = []
    if others:
      listing = ', '.join(others[:4]) + (', ...' if len(others) > 4 else '')
      remarks.append(f'has files that are never read: {listing}')
    if shard_files.PARTIAL in self._names:
      remarks.append(
        f'has a folder `{shard_files.PARTIAL}`: the run is under way or was '
        'stopped, and its last rows are not in a shard yet'
      )
    if first := self._shards[0].suffix:
      remarks.append(f'begins with shard {first}')
    for remark in remarks:
      self._add('note', self._data_dir, f'{self._data_dir} {remark}.')

  def _place(self) -> None:
    """Determines which rows each shard adds to the run, and which are missing."""
    lengths = [
      [h.shape[0] for h in checks.headers.values() if h.ndim]
      for checks in self._shards
    ]
    # Groups of consecutive shards with known counters.
    groups: list[list[tuple[shard_checks.ShardChecks, int]]] = [[]]
    for checks, own in zip(self._shards, lengths, strict=True):
      capacity = (
        _majority(own) or _majority(sum(lengths, [])) or max(own, default=0)
      )
      if capacity:
        checks.placement = self._guess_placement(checks, capacity)
      if capacity and checks.add_count is not None:
        groups[-1].append((checks, capacity))
      else:
        groups.append([])
    for missing in stitching.find_missing([c.suffix for c in self._shards]):
      self._add('error', self._data_dir, f'{self._data_dir}: {missing}.')
    for group in filter(None, groups):
      self._stitch(group)

  def _guess_placement(
    self, checks: shard_checks.ShardChecks, capacity: int
  ) -> stitching.Placement:
    """Places a shard without regard to its neighbours."""
    count = checks.add_count
    if count is None:
      # Every shard but the last was dumped with a full ring.
      last = checks is self._shards[-1]
      count = 0 if last else (checks.suffix + 1) * capacity - 1
    return stitching.stitch([checks.suffix], [count], [capacity])[0][0]

  def _stitch(
    self, group: Sequence[tuple[shard_checks.ShardChecks, int]]
  ) -> None:
    try:
      placements, problems = stitching.stitch(
        [checks.suffix for checks, _ in group],
        [checks.add_count or 0 for checks, _ in group],
        [capacity for _, capacity in group],
      )
    except ValueError as error:
      self._add('error', self._data_dir, f'{self._data_dir}: {error}')
      return
    for (checks, _), placement in zip(group, placements, strict=True):
      checks.placement = placement
    for problem in problems:
      self._add('error', self._data_dir, f'{self._data_dir}: {problem}.')

  def _expected(self) -> shard_checks.Expected:
    padding = manifests.padding(self._manifest)
    is_atari = manifests.is_atari(self._manifest)
    frames, skip = (
      self._look_up('environment', key, kind=int)
      for key in ('max_num_frames_per_episode', 'frame_skip')
    )
    types = [
      (header.dtype.str, header.shape[1:])
      for checks in self._shards
      if (header := checks.headers.get('observation'))
    ]
    observation: tuple = ('', ())
    if types:
      observation = collections.Counter(types).most_common(1)[0][0]
    described = self._look_up('format', 'columns', 'observation', kind=list)
    if described and len(described) == 2 and isinstance(described[1], list):
      observation = (described[0], tuple(described[1]))
    return shard_checks.Expected(
      num_actions=self._look_up('environment', 'num_actions', kind=int),
      padding=manifests.PADDING if padding is None else padding,
      max_episode_steps=(
        frames // skip
        if frames and skip
        else _MAX_EPISODE_STEPS
        if is_atari
        else None
      ),
      observation=observation,
      is_atari=is_atari,
    )

  def _note_stale_rows(self) -> None:
    for checks in self._shards:
      placement, count = checks.placement, checks.add_count
      if placement is None or count is None:
        continue
      # A ring dumped when full for the first time lacks only its last row.
      if count < placement.capacity - 1:
        stale = placement.capacity - placement.rows
        self._add(
          'note',
          self._data_dir,
          f'Shard {checks.suffix} has {stale:,} stale rows at or past its '
          f'cursor, {count:,}; they are never read.',
        )

  def _check_manifest(self) -> None:
    path = self._manifest_path
    entries = self._look_up('shards', kind=list)
    if entries is None:
      if self._manifest:
        self._add('note', path, f'{path} does not describe the shards.')
      return
    described: dict[int, dict] = {}
    for entry in entries:
      suffix = manifests.look_up(entry, 'suffix', kind=int)
      listed = manifests.look_up(entry, 'files', kind=dict)
      if suffix is None or listed is None:
        shown = repr(entry)[:60]
        self._add(
          'error', path, f'{path} has a shard with no suffix or files: {shown}.'
        )
      else:
        described[suffix] = listed
    on_disk = {checks.suffix for checks in self._shards}
    for suffix in sorted(described.keys() - on_disk):
      self._add(
        'error',
        path,
        f'Shard {suffix} is in the manifest, but not in {self._data_dir}.',
      )
    for checks in self._shards:
      if checks.suffix in described:
        self._compare(checks, described[checks.suffix])
      else:
        self._add(
          'error',
          path,
          f'Shard {checks.suffix} is in {self._data_dir}, but not in the manifest.',
        )

  def _compare(
    self, checks: shard_checks.ShardChecks, described: Mapping[str, Any]
  ) -> None:
    """Compares the files of a shard with their manifest entries."""
    own = {
      shard_files.file_name(name, checks.suffix) for name in shard_files.FILES
    }
    for file in sorted(described.keys() - self._names - own):
      path = os.path.join(self._data_dir, file)
      self._add('error', path, f'{path} is in the manifest, but missing.')
    for name, path in checks.paths.items():
      file = shard_files.file_name(name, checks.suffix)
      expected = manifests.look_up(described, file, 'sha256', kind=str)
      actual = checks.hashes.get(name, expected)
      if expected is None:
        self._add('error', path, f'The manifest has no sha256 of {path}.')
      elif actual != expected:
        self._add(
          'error',
          path,
          f'{path} is not the file that the manifest describes (sha256 '
          f'{actual[:12]}..., not {expected[:12]}...).',
        )

  def _find_repeated_frames(self) -> None:
    """Finds shards with the same frames as an earlier one, such as a renamed copy."""
    paths: dict[str, str] = {}
    for checks in self._shards:
      if digest := checks.hashes.get('observation'):
        path = checks.paths['observation']
        other = paths.setdefault(digest, path)
        if other != path:
          # In other environments, episodes may repeat themselves.
          level = 'suspicious' if manifests.is_atari(self._manifest) else 'note'
          self._add(level, path, f'{path} has the same frames as {other}.')

  def _join_episodes(self) -> episode_table.EpisodeTable:
    placements, segments = [], []
    for checks in self._shards:
      if checks.placement is not None:
        placements.append(checks.placement)
        segments.append(checks.segments)
    return episode_table.join_shards(placements, segments)


def _summarize(
  checks: shard_checks.ShardChecks, episodes: episode_table.EpisodeTable
) -> dict[str, Any]:
  placement, segments = checks.placement, checks.segments
  returns = episodes.returns[episodes.suffix == checks.suffix]
  finite = len(returns) > 0 and np.isfinite(returns).all()
  return {
    'shard': checks.suffix,
    'rows': placement.rows if placement else None,
    'stale_rows': placement.capacity - placement.rows if placement else None,
    'episodes': len(segments.ends) if segments else None,
    'mean_return': float(returns.mean()) if finite else None,
  }


def _majority(values: Sequence[int]) -> int | None:
  """Returns the most frequent value; None if there is none, or a tie."""
  ranking = collections.Counter(values).most_common(2)
  if not ranking or (len(ranking) == 2 and ranking[0][1] == ranking[1][1]):
    return None
  return ranking[0][0]


class _Progress:
  """Progress bar of the bytes read, shared by several threads."""

  def __init__(self) -> None:
    self._bar: Any = None
    self._lock = threading.Lock()
    self._stopped = False

  def show(self, total: int, title: str) -> Any:
    """Creates the bar, a context manager."""
    self._bar = tqdm.tqdm(
      total=total,
      desc=title or None,
      unit='B',
      unit_scale=True,
      disable=None,  # Shown on a terminal only.
      leave=False,
    )
    return self._bar

  def stop(self) -> None:
    """Stops the reading threads at their next `advance`."""
    self._stopped = True

  def advance(self, count: int) -> None:
    """Advances the bar by a number of bytes."""
    if self._stopped:
      raise KeyboardInterrupt
    with self._lock:
      self._bar.update(count)
