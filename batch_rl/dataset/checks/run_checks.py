"""Checks of all files of a run.

Each file is read and hashed once, as a stream, and shards are read in parallel. A
damaged file does not stop the checks of the others.
"""

import os
import statistics
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_statistics, shard_checks
from batch_rl.dataset.checks.shard_checks import Finding
from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import packed_shard, store_directory
from batch_rl.utils import files, machine, progress_bars, threads

# Defaults without a manifest: those of the DQN Replay Dataset.
_MAX_EPISODE_STEPS = 27_000  # 108,000 frames
_ALE_ACTIONS = 18


class Report(NamedTuple):
  """Result of the verification of a run.

  Attributes:
    data_dir: Directory of the shards.
    shards: JSON-serialisable summary of each shard: shard, rows, episodes; None for
      values that cannot be read.
    findings: Errors, then suspicious data, then notes.
    bytes: Total size of the files.
  """

  data_dir: str
  shards: list[dict[str, Any]]
  findings: list[Finding]
  bytes: int

  def with_findings(self, added: Iterable[Finding]) -> 'Report':
    """Returns a copy with more findings."""
    findings = [*self.findings, *added]
    findings.sort(key=lambda found: shard_checks.LEVELS.index(found.level))
    return self._replace(findings=findings)

  @property
  def problems(self) -> list[Finding]:
    """All findings except notes."""
    return [f for f in self.findings if f.level != 'note']

  def to_json(self) -> dict[str, Any]:
    """Returns the report, JSON-serialisable."""
    return {
      'replay_logs': self.data_dir,
      'ok': not self.problems,
      'shards': self.shards,
      'findings': [f._asdict() for f in self.findings],
      'bytes': self.bytes,
    }


def verify_store(run: run_directories.RunDirectory) -> Report:
  """Checks a store against its own hashes, without the shards it was made from.

  Args:
    run: Store to check.

  Raises:
    ValueError: If the store is incomplete, or a file common to its shards is damaged.
  """
  suffixes = store_directory.list_shards(run.data_dir)
  keys = 'shard', 'rows', 'episodes'
  paths = [p for s in suffixes for p in packed_shard.paths(run.data_dir, s)]
  size = sum(map(os.path.getsize, filter(os.path.exists, paths)))
  shards = [dict.fromkeys(keys) | {'shard': suffix} for suffix in suffixes]
  report = Report(run.data_dir, shards, [], size)
  for suffix in progress_bars.bar(suffixes, unit='shard'):
    if problem := packed_shard.verify_packed(run.data_dir, suffix):
      path = packed_shard.paths(run.data_dir, suffix)[0]
      report.findings.append(Finding('error', path, problem))
  if report.findings:
    return report
  try:
    computed = run_statistics.RunStatistics(run)
  except ValueError as error:
    return report.with_findings([Finding('error', run.data_dir, str(error))])
  data = computed.data
  # Shards of whole episodes may be chosen freely.
  errors = () if data.has_whole_episodes else data.problems
  found = [
    Finding('error' if problem in errors else 'note', run.data_dir, problem)
    for problem in computed.problems
  ]
  columns = {'action': data.action, 'reward': data.reward}
  expected = _expected([], computed.manifest)
  for level, _, problem in shard_checks.find_wrong_values(columns, expected):
    found.append(Finding(level, run.data_dir, f'{run.data_dir} {problem}.'))
  shards = [{key: entry[key] for key in keys} for entry in computed.shards()]
  report = report._replace(shards=shards, bytes=computed.totals()['bytes'])
  return report.with_findings(found)


def verify(data_dir: str, title: str = '') -> Report:
  """Reads every file of a run and checks it against the format and the manifest.

  Args:
    data_dir: Directory of the shards.
    title: Title of the progress bar.

  Raises:
    ValueError: If there are no shards.
  """
  names = set(files.list_directory(data_dir))
  suffixes = list(shard_files.missing_files(data_dir))
  stopped = threading.Event()

  def advance(count: int) -> None:
    if stopped.is_set():
      raise KeyboardInterrupt
    bar.update(count)

  shards = [
    shard_checks.ShardChecks(data_dir, suffix, names, advance)
    for suffix in suffixes or shard_files.list_suffixes(data_dir)
  ]
  paths = [path for checks in shards for path in checks.paths.values()]
  size = sum(map(os.path.getsize, filter(os.path.exists, paths)))
  others = names - {*map(os.path.basename, paths)}
  findings = [
    Finding('note', data_dir, f'{data_dir} {remark}.')
    for remark in _unusual_content(others, shards[0].suffix)
  ]
  manifest: dict[str, Any] = {}
  manifest_path = os.path.join(data_dir, manifests.FILE_NAME)
  try:
    manifest = manifests.read(data_dir)
    if not manifest:
      text = f'{manifest_path} does not exist; only the format was verified.'
      findings.append(Finding('note', manifest_path, text))
  except ValueError as error:
    findings.append(Finding('error', manifest_path, str(error)))
  with progress_bars.meter(size, 'B', title) as bar:
    stop = machine.num_cpus(), stopped.set
    threads.parallel_map(lambda c: c.read_counters(), shards, *stop)
    for problem in _place(shards):
      findings.append(Finding('error', data_dir, f'{data_dir}: {problem}.'))
    expected = _expected(shards, manifest)
    threads.parallel_map(lambda c: c.check_columns(expected), shards, *stop)
  findings += _compare(shards, manifest, manifest_path)
  findings += _repeated_frames(shards, expected.is_atari)
  summaries = [
    {
      'shard': checks.suffix,
      'rows': checks.placement.rows if checks.placement else None,
      'episodes': checks.episodes,
    }
    for checks in shards
  ]
  of_shards = [found for checks in shards for found in checks.findings]
  return Report(data_dir, summaries, of_shards, size).with_findings(findings)


def _unusual_content(others: set[str], first: int) -> Iterator[str]:
  """Yields remarks about the content of a directory.

  Args:
    others: Names in the directory, without the shards' files.
    first: Number of the first shard.
  """
  if unread := sorted(name for name in others if '_ckpt.' in name):
    yield f'has files that are never read: {files.format_names(unread)}'
  if shard_files.PARTIAL in others:
    yield shard_files.UNFINISHED
  if first:
    yield f'begins with shard {first}'


def _place(shards: Sequence[shard_checks.ShardChecks]) -> list[str]:
  """Determines which rows each shard adds to the run.

  Args:
    shards: Checks that have read the counters. They get `capacity` and `placement`.

  Returns:
    One line for each gap or repetition of rows.
  """
  lengths = [[h.rows for h in c.headers.values()] for c in shards]
  every = sum(lengths, [])
  for checks, own in zip(shards, lengths, strict=True):
    # Columns of the shard decide; if they disagree, those of the run.
    checks.capacity = statistics.mode([*own * len(every), *every, 0])
  placed = [c for c in shards if c.capacity and c.add_count is not None]
  problems = stitching.find_missing([checks.suffix for checks in shards])
  try:
    placements, found = stitching.stitch(
      [checks.suffix for checks in placed],
      [checks.add_count or 0 for checks in placed],
      [checks.capacity for checks in placed],
    )
  except ValueError as error:
    return [*problems, str(error)]
  for checks, placement in zip(placed, placements, strict=True):
    checks.placement = placement
  return problems + found


def _expected(
  shards: Sequence[shard_checks.ShardChecks], manifest: dict[str, Any]
) -> shard_checks.Expected:
  # Without a manifest, the run is taken for a part of the DQN Replay Dataset.
  is_atari = manifests.atari_if_known(manifest) is not False
  padding = manifests.padding(manifest)
  environment = manifest.get('environment') or {}
  frames = environment.get('max_num_frames_per_episode')
  skip = environment.get('frame_skip')
  max_steps = frames // skip if frames and skip else None
  headers = [
    header for checks in shards if (header := checks.headers.get('observation'))
  ]
  most = _ALE_ACTIONS if is_atari else run_statistics.MAX_ACTIONS
  kinds: list[tuple] = [(h.dtype, h.shape[1:]) for h in headers]
  observation = statistics.mode(kinds) if kinds else None
  columns = 'format', 'columns', 'observation'
  described = manifests.look_up(manifest, *columns, kind=list)
  if described and len(described) == 2 and isinstance(described[1], list):
    observation = described[0], tuple(described[1])
  return shard_checks.Expected(
    num_actions=environment.get('num_actions') or most,
    padding=manifests.PADDING if padding is None else padding,
    max_episode_steps=max_steps or (_MAX_EPISODE_STEPS if is_atari else None),
    observation=observation,
    is_atari=is_atari,
  )


def _compare(
  shards: Sequence[shard_checks.ShardChecks],
  manifest: dict[str, Any],
  manifest_path: str,
) -> Iterator[Finding]:
  """Yields the differences between the files and the manifest."""
  if manifest and manifest.get('shards') is None:
    message = f'{manifest_path} does not describe the shards.'
    yield Finding('note', manifest_path, message)
  if not manifest.get('shards'):
    return
  described = {
    entry['suffix']: entry.get('files') or {}
    for entry in manifest['shards']
    if entry.get('suffix') is not None
  }
  places = os.path.dirname(manifest_path), 'the manifest'
  for suffix in sorted(described.keys() ^ {checks.suffix for checks in shards}):
    missing, there = places if suffix in described else places[::-1]
    message = f'Shard {suffix} is in {there}, but not in {missing}.'
    yield Finding('error', manifest_path, message)
  for checks in shards:
    for name, actual in checks.hashes.items():
      path = checks.paths[name]
      entry = described.get(checks.suffix, {}).get(os.path.basename(path)) or {}
      expected = entry.get('sha256')
      problem = f'{path} is not described by the manifest.'
      if expected:
        problem = (
          f'{path} is not the file that the manifest describes (sha256 '
          f'{actual[:12]}..., not {expected[:12]}...).'
        )
      if checks.suffix in described and actual != expected:
        yield Finding('error', path, problem)


def _repeated_frames(
  shards: Sequence[shard_checks.ShardChecks], is_atari: bool
) -> Iterator[Finding]:
  """Yields shards with the same file of frames as an earlier one."""
  # In other environments, episodes may repeat themselves.
  level = 'suspicious' if is_atari else 'note'
  first: dict[str, str] = {}
  for checks in shards:
    if digest := checks.hashes.get('observation'):
      path = checks.paths['observation']
      if first.setdefault(digest, path) != path:
        message = f'{path} has the same frames as {first[digest]}.'
        yield Finding(level, path, message)
