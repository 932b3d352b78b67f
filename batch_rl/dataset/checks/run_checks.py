"""Finds what is wrong with the files of a run.

Every file is read once, as a stream, and hashed on the way; shards are read side by
side. Damage to one file does not keep the others from being checked.
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
from batch_rl.dataset.checks import inspection, shard_checks
from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_shard, store_directory
from batch_rl.utils import files, machine

_PADDING = 3  # in the DQN Replay Dataset
_MAX_EPISODE_STEPS = 27_000  # 108,000 frames
# A shard's mean return is out of line if it is outside the range of its two
# neighbours on each side by more than three times that range plus the standard
# deviation of their episodes (at least 1). A shard at either end is not judged:
# agents learn, and leave the first returns behind for good. On the DQN curves of
# 60 games in shards of a million steps it fires nowhere, if that deviation is at
# least a tenth of the return.
_RETURN_TOLERANCE = 3.0
_FEWEST_EPISODES = 3
# A shard is of another game if its picture differs from both neighbours' by more
# than 10 gray levels (the mean over pixels) and by more than four times what they
# differ. Random play in 20 games: 0.2 to 9 between the halves of 3,000 steps, but
# 37 in Enduro, where night falls; 15 to 150 between games. At either end of a run
# there is one side only, and what the agent learns shows: 40 levels.
_PICTURE_TOLERANCE = 4.0
_PICTURE_LEVELS = 10.0
_PICTURE_LEVELS_AT_ENDS = 40.0


@dataclasses.dataclass(frozen=True)
class Report:
  """What `verify` found in a run.

  Attributes:
    logs: the folder of the shards.
    shards: for each a JSON-able summary: shard, rows, stale_rows, episodes,
      mean_return; None for what cannot be read.
    findings: errors first, then what is suspicious, then notes.
    bytes: size of the files.
  """

  logs: str
  shards: list[dict[str, Any]]
  findings: list[shard_checks.Finding]
  bytes: int

  @property
  def wrong(self) -> list[shard_checks.Finding]:
    """All findings but notes."""
    return [found for found in self.findings if found.level != 'note']

  def to_json(self) -> dict[str, Any]:
    """All of it, JSON-able."""
    return {
      'replay_logs': self.logs,
      'ok': not self.wrong,
      'shards': self.shards,
      'findings': [dataclasses.asdict(found) for found in self.findings],
      'bytes': self.bytes,
    }


def verify(logs: str, title: str = '') -> Report:
  """Reads every file of a run and compares it with format and manifest.

  Args:
    logs: the folder of the shards; local or remote.
    title: what the progress bar is called.

  Raises:
    ValueError: if there are no shards at all.
  """
  return _Verification(logs).run(title)


def verify_store(run: run_directories.RunDirectory) -> Report:
  """Compares a store with its hashes; what it was made from may be gone.

  Args:
    run: a store.

  Raises:
    ValueError: if it is incomplete, or what its shards share is damaged.
  """
  suffixes = store_directory.StoreDirectory(run.logs).shards()
  findings = [
    shard_checks.Finding(
      'error', packed_shard.paths(run.logs, suffix)[0], wrong
    )
    for suffix in tqdm.tqdm(suffixes, unit='shard', disable=None, leave=False)
    if (wrong := packed_shard.verify_packed(run.logs, suffix))
  ]
  if findings:
    return Report(run.logs, [], findings, 0)
  found = inspection.inspect(run)
  notes = [
    shard_checks.Finding('note', run.logs, note) for note in found.problems
  ]
  shards = [
    {
      'shard': entry['shard'],
      'rows': entry['rows'],
      'stale_rows': None,
      'episodes': entry['episodes'],
      'mean_return': entry['return'] and entry['return']['mean'],
    }
    for entry in found.shards()
  ]
  return Report(run.logs, shards, notes, found.totals()['bytes'])


class _Verification:
  """One pass over a run."""

  def __init__(self, logs: str):
    self._logs = logs
    self._names = set(files.list_directory(logs))
    self._progress = _Progress()
    suffixes = shard_files.list_suffixes(logs, complete=False)
    self._shards = [
      shard_checks.ShardChecks(
        logs, suffix, self._names, self._progress.advance
      )
      for suffix in suffixes or shard_files.list_suffixes(logs)
    ]
    self._findings: list[shard_checks.Finding] = []
    self._manifest: dict[str, Any] = {}
    self._manifest_path = os.path.join(logs, manifests.FILE_NAME)

  def run(self, title: str) -> Report:
    size = sum(
      files.stat(path)['bytes']
      for checks in self._shards
      for path in checks.paths.values()
    )
    with self._progress.show(size, title):
      self._read_manifest()
      self._note_oddities()
      self._for_each_shard(lambda checks: checks.read_counters())
      self._place()
      expected = self._expected()
      self._for_each_shard(lambda checks: checks.check_columns(expected))
    self._note_stale_rows()
    self._check_manifest()
    self._check_duplicates()
    self._check_pictures()
    episodes = self._join_episodes()
    self._check_returns(episodes)
    findings = [f for checks in self._shards for f in checks.findings]
    findings += self._findings
    return Report(
      self._logs,
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
      self._manifest = manifests.read(self._logs)
    except ValueError as error:
      self._add('error', path, str(error))
      return
    if not self._manifest:
      self._add(
        'note', path, f'{path} is not there; only the format was verified.'
      )

  def _note_oddities(self) -> None:
    expected = {
      shard_files.file_name(name, checks.suffix)
      for checks in self._shards
      for name in shard_files.FILES
    }
    others = sorted(n for n in self._names - expected if '_ckpt.' in n)
    oddities = []
    if others:
      listing = ', '.join(others[:4]) + (', ...' if len(others) > 4 else '')
      oddities.append(f'has files that no reader opens: {listing}')
    if shard_files.PARTIAL in self._names:
      oddities.append(
        f'has a folder `{shard_files.PARTIAL}`: the run is under way or was stopped, and its '
        'last rows are in no shard yet'
      )
    if first := self._shards[0].suffix:
      oddities.append(f'begins with shard {first}')
    for what in oddities:
      self._add('note', self._logs, f'{self._logs} {what}.')

  def _place(self) -> None:
    """Finds out which rows of each shard are its own, and what is missing."""
    lengths = [
      [h.shape[0] for h in checks.headers.values() if h.ndim]
      for checks in self._shards
    ]
    # Shards whose counters are known, in groups that nothing unknown parts.
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
      self._add('error', self._logs, f'{self._logs}: {missing}.')
    for group in filter(None, groups):
      self._stitch(group)

  def _guess_placement(
    self, checks: shard_checks.ShardChecks, capacity: int
  ) -> stitching.Placement:
    """Where a shard is if its neighbours tell nothing."""
    count = checks.add_count
    if count is None:
      # Every shard but the last was dumped when it was full.
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
      self._add('error', self._logs, f'{self._logs}: {error}')
      return
    for (checks, _), placement in zip(group, placements, strict=True):
      checks.placement = placement
    for problem in problems:
      self._add('error', self._logs, f'{self._logs}: {problem}.')

  def _expected(self) -> shard_checks.Expected:
    stack_size = self._look_up('format', 'stack_size', kind=int)
    frames, skip = (
      self._look_up('environment', key, kind=int)
      for key in ('max_num_frames_per_episode', 'frame_skip')
    )
    kinds = [
      (header.dtype.str, header.shape[1:])
      for checks in self._shards
      if (header := checks.headers.get('observation'))
    ]
    kind: tuple = ('', ())
    if kinds:
      kind = collections.Counter(kinds).most_common(1)[0][0]
    described = self._look_up('format', 'columns', 'observation', kind=list)
    if described and len(described) == 2 and isinstance(described[1], list):
      kind = (described[0], tuple(described[1]))
    return shard_checks.Expected(
      num_actions=self._look_up('environment', 'num_actions', kind=int),
      padding=_PADDING if stack_size is None else stack_size - 1,
      max_episode_steps=(
        frames // skip if frames and skip else _MAX_EPISODE_STEPS
      ),
      observation=kind,
    )

  def _note_stale_rows(self) -> None:
    for checks in self._shards:
      placement, count = checks.placement, checks.add_count
      if placement is None or count is None:
        continue
      # A ring that was dumped at its first lap's end lacks its last row only.
      if count < placement.capacity - 1:
        stale = placement.capacity - placement.rows
        self._add(
          'note',
          self._logs,
          f'Shard {checks.suffix} has {stale:,} stale rows at or past its '
          f'cursor, {count:,}; no reader uses them.',
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
    there = {checks.suffix for checks in self._shards}
    for suffix in sorted(described.keys() - there):
      self._add(
        'error',
        path,
        f'Shard {suffix} is in the manifest, but not in {self._logs}.',
      )
    for checks in self._shards:
      if checks.suffix in described:
        self._compare(checks, described[checks.suffix])
      else:
        self._add(
          'error',
          path,
          f'Shard {checks.suffix} is in {self._logs}, but not in the manifest.',
        )

  def _compare(
    self, checks: shard_checks.ShardChecks, described: Mapping[str, Any]
  ) -> None:
    """Compares the files of a shard with what the manifest says of them."""
    own = {
      shard_files.file_name(name, checks.suffix) for name in shard_files.FILES
    }
    for file in sorted(described.keys() - self._names - own):
      path = os.path.join(self._logs, file)
      self._add('error', path, f'{path} is in the manifest, but missing.')
    for name, path in checks.paths.items():
      file = shard_files.file_name(name, checks.suffix)
      expected = manifests.look_up(described, file, 'sha256', kind=str)
      found = checks.hashes.get(name, expected)
      if expected is None:
        self._add('error', path, f'The manifest has no sha256 of {path}.')
      elif found != expected:
        self._add(
          'error',
          path,
          f'{path} is not the file that the manifest describes (sha256 '
          f'{found[:12]}..., not {expected[:12]}...).',
        )

  def _check_duplicates(self) -> None:
    first: dict[str, str] = {}
    for checks in self._shards:
      if digest := checks.hashes.get('observation'):
        path = checks.paths['observation']
        other = first.setdefault(digest, path)
        if other != path:
          self._add(
            'suspicious', path, f'{path} has the same frames as {other}.'
          )

  def _join_episodes(self) -> inspection.Episodes:
    placements, parts = [], []
    for checks in self._shards:
      if checks.placement is not None:
        placements.append(checks.placement)
        parts.append(checks.rows)
    return inspection.join(placements, parts)

  def _check_returns(self, episodes: inspection.Episodes) -> None:
    found = []
    for checks in self._shards:
      returns = episodes.returns[episodes.suffix == checks.suffix]
      if len(returns) >= _FEWEST_EPISODES and np.isfinite(returns).all():
        found.append((checks.paths['reward'], returns.mean(), returns.std()))
    for i, (path, mean, _) in list(enumerate(found))[1:-1]:
      beside = found[max(i - 2, 0) : i] + found[i + 1 : i + 3]
      low, high = min(b[1] for b in beside), max(b[1] for b in beside)
      deviation = max(float(np.mean([b[2] for b in beside])), 1.0)
      margin = _RETURN_TOLERANCE * (high - low + deviation)
      if not low - margin <= mean <= high + margin:
        self._add(
          'suspicious',
          path,
          f'{path}: the mean return is {mean:.1f}, in the shards beside it '
          f'{low:.1f} to {high:.1f}: is it of another run or game?',
        )

  def _check_pictures(self) -> None:
    found = [
      (checks.paths['observation'], checks.picture)
      for checks in self._shards
      if checks.picture is not None
    ]
    if len(found) < 3:
      return

    def differ(i, j):
      return float(np.abs(found[i][1] - found[j][1]).mean())

    last = len(found) - 1
    for i, (path, _) in enumerate(found):
      inside = 0 < i < last
      a, b = (i - 1, i + 1) if inside else (1, 2) if i == 0 else (i - 1, i - 2)
      least = min(differ(i, a), differ(i, b))
      levels = _PICTURE_LEVELS if inside else _PICTURE_LEVELS_AT_ENDS
      if least > max(levels, _PICTURE_TOLERANCE * differ(a, b)):
        self._add(
          'suspicious',
          path,
          f'{path} looks unlike the shards beside it (its mean frame is '
          f'{least:.0f} gray levels away): is it of another game?',
        )


def _summarize(
  checks: shard_checks.ShardChecks, episodes: inspection.Episodes
) -> dict[str, Any]:
  placement, rows = checks.placement, checks.rows
  returns = episodes.returns[episodes.suffix == checks.suffix]
  finite = len(returns) > 0 and np.isfinite(returns).all()
  return {
    'shard': checks.suffix,
    'rows': placement.rows if placement else None,
    'stale_rows': placement.capacity - placement.rows if placement else None,
    'episodes': len(rows.ends) if rows else None,
    'mean_return': float(returns.mean()) if finite else None,
  }


def _majority(values: Sequence[int]) -> int | None:
  """The value that most have, or None if two are as frequent."""
  ranking = collections.Counter(values).most_common(2)
  if not ranking or (len(ranking) == 2 and ranking[0][1] == ranking[1][1]):
    return None
  return ranking[0][0]


class _Progress:
  """A progress bar in bytes read, moved by several threads."""

  def __init__(self) -> None:
    self._bar: Any = None
    self._lock = threading.Lock()
    self._stopped = False

  def show(self, total: int, title: str) -> Any:
    """Makes the bar, to be closed by `with`."""
    self._bar = tqdm.tqdm(
      total=total,
      desc=title or None,
      unit='B',
      unit_scale=True,
      disable=None,  # unless on a terminal
      leave=False,
    )
    return self._bar

  def stop(self) -> None:
    """Ends the threads that are reading."""
    self._stopped = True

  def advance(self, count: int) -> None:
    """Counts bytes that were read."""
    if self._stopped:
      raise KeyboardInterrupt
    with self._lock:
      self._bar.update(count)
