"""Checks of all files of a run.

Each file is read and hashed once, as a stream, and shards are read in parallel. A
damaged file does not stop the checks of the others.
"""

import collections
import dataclasses
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_statistics, shard_checks
from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_shard, store_directory
from batch_rl.utils import files, machine, threads

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
    data_dir: Directory of the shards.
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
  findings = []
  suffixes = store_directory.StoreDirectory(run.data_dir).shards()
  for suffix in tqdm.tqdm(suffixes, unit='shard', disable=None, leave=False):
    if problem := packed_shard.verify_packed(run.data_dir, suffix):
      path = packed_shard.paths(run.data_dir, suffix)[0]
      findings.append(shard_checks.Finding('error', path, problem))
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
    suffixes = list(shard_files.missing_files(data_dir))
    self._bar: Any = None
    self._stopped = threading.Event()
    self._shards = [
      shard_checks.ShardChecks(data_dir, suffix, self._names, self._advance)
      for suffix in suffixes or shard_files.list_suffixes(data_dir)
    ]
    self._findings: list[shard_checks.Finding] = []
    self._manifest: dict[str, Any] = {}
    self._manifest_path = os.path.join(data_dir, manifests.FILE_NAME)

  def _advance(self, count: int) -> None:
    if self._stopped.is_set():
      raise KeyboardInterrupt
    self._bar.update(count)

  def run(self, title: str) -> Report:
    size = sum(
      files.stat(path)['bytes']
      for checks in self._shards
      for path in checks.paths.values()
    )
    stop = machine.num_cpus(), self._stopped.set
    with tqdm.tqdm(
      total=size,
      desc=title or None,
      unit='B',
      unit_scale=True,
      disable=None,  # Shown on a terminal only.
      leave=False,
    ) as self._bar:
      self._read_manifest()
      self._note_unusual_content()
      threads.parallel_map(lambda c: c.read_counters(), self._shards, *stop)
      self._place()
      expected = self._expected()
      threads.parallel_map(
        lambda checks: checks.check_columns(expected), self._shards, *stop
      )
    self._note_stale_rows()
    self._check_manifest()
    self._find_repeated_frames()
    findings = [f for checks in self._shards for f in checks.findings]
    findings += self._findings
    return Report(
      self._data_dir,
      self._summarize_shards(),
      sorted(findings, key=lambda f: shard_checks.LEVELS.index(f.level)),
      size,
    )

  def _add(self, level: str, file: str, message: str) -> None:
    self._findings.append(shard_checks.Finding(level, file, message))

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
      [header.rows for header in checks.headers.values()]
      for checks in self._shards
    ]
    every = sum(lengths, [])
    placed: list[shard_checks.ShardChecks] = []
    counts: list[int] = []
    capacities: list[int] = []
    for checks, own in zip(self._shards, lengths, strict=True):
      # Columns of the shard decide; if they disagree, those of the run.
      votes = collections.Counter(own * len(every) + every)
      capacity = max(votes, key=lambda length: votes[length], default=0)
      if not capacity:
        continue
      count = checks.add_count
      if count is None:
        # Every shard but the last was dumped with a full ring.
        count = (checks.suffix + 1) * capacity - 1
        if placed:
          shards_since = checks.suffix - placed[-1].suffix
          count = counts[-1] + shards_since * capacity
        if checks is self._shards[-1]:
          count = 0
      placed.append(checks)
      counts.append(count)
      capacities.append(capacity)
    suffixes = [checks.suffix for checks in placed]
    problems = stitching.find_missing([c.suffix for c in self._shards])
    try:
      placements, found = stitching.stitch(suffixes, counts, capacities)
      problems += found
    except ValueError as error:
      problems.append(str(error))
      placements = [
        stitching.stitch([suffix], [count], [capacity])[0][0]
        for suffix, count, capacity in zip(
          suffixes, counts, capacities, strict=True
        )
      ]
    for checks, placement in zip(placed, placements, strict=True):
      checks.placement = placement
    for problem in problems:
      self._add('error', self._data_dir, f'{self._data_dir}: {problem}.')

  def _expected(self) -> shard_checks.Expected:
    padding = manifests.padding(self._manifest)
    is_atari = manifests.is_atari(self._manifest)
    environment = self._manifest.get('environment', {})
    frames = environment.get('max_num_frames_per_episode')
    skip = environment.get('frame_skip')
    max_steps = _MAX_EPISODE_STEPS if is_atari else None
    if frames and skip:
      max_steps = frames // skip
    types = collections.Counter(
      (header.dtype.str, header.shape[1:])
      for checks in self._shards
      if (header := checks.headers.get('observation'))
    )
    observation: tuple = max(types, key=lambda t: types[t], default=('', ()))
    described = manifests.look_up(
      self._manifest, 'format', 'columns', 'observation', kind=list
    )
    if described and len(described) == 2 and isinstance(described[1], list):
      observation = described[0], tuple(described[1])
    return shard_checks.Expected(
      num_actions=environment.get('num_actions'),
      padding=manifests.PADDING if padding is None else padding,
      max_episode_steps=max_steps,
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
    entries = self._manifest.get('shards')
    if entries is None:
      if self._manifest:
        self._add('note', path, f'{path} does not describe the shards.')
      return
    described: dict[int, Any] = {}
    for entry in entries:
      if {'suffix', 'files'} <= entry.keys():
        described[entry['suffix']] = entry['files']
      else:
        self._add(
          'error',
          path,
          f'{path} has a shard with no suffix or files: {repr(entry)[:60]}.',
        )
    shards = {checks.suffix: checks for checks in self._shards}
    places = self._data_dir, 'the manifest'
    for suffix in sorted(described.keys() ^ shards.keys()):
      missing, there = places if suffix in described else places[::-1]
      self._add(
        'error', path, f'Shard {suffix} is in {there}, but not in {missing}.'
      )
    for suffix in described.keys() & shards.keys():
      self._compare(shards[suffix], described[suffix])

  def _compare(
    self, checks: shard_checks.ShardChecks, described: Mapping[str, Any]
  ) -> None:
    """Compares the files of a shard with their manifest entries."""
    for name, path in checks.paths.items():
      entry = described.get(os.path.basename(path), {})
      expected = entry.get('sha256')
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
    of_format = {
      shard_files.file_name(name, checks.suffix) for name in shard_files.FILES
    }
    for name in sorted(described.keys() - of_format):
      path = os.path.join(self._data_dir, name)
      if not os.path.exists(path):
        self._add('error', path, f'{path} is in the manifest, but missing.')

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

  def _summarize_shards(self) -> list[dict[str, Any]]:
    summaries = []
    # Return of the unfinished episode so far; None if its first rows are missing.
    begun: float | None = None
    for checks in self._shards:
      placement, segments = checks.placement, checks.segment_returns
      if placement is None or not placement.follows:
        begun = 0.0 if checks.begins_log else None
      returns = np.empty(0)
      if segments is None:
        begun = None
      elif begun is not None:
        segments[0] += begun
        returns, begun = segments[:-1], segments[-1]
      elif len(segments) > 1:
        returns, begun = segments[1:-1], segments[-1]
      is_known = len(returns) > 0 and np.isfinite(returns).all()
      summaries.append(
        {
          'shard': checks.suffix,
          'rows': placement.rows if placement else None,
          'stale_rows': placement.capacity - placement.rows
          if placement
          else None,
          'episodes': None if segments is None else len(segments) - 1,
          'mean_return': float(returns.mean()) if is_known else None,
        }
      )
    return summaries
