"""Plan of a fetch: remote files, their sizes, and the files already in place."""

import contextlib
import dataclasses
import difflib
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import psutil
from absl import logging

from batch_rl.atari import roms
from batch_rl.dataset.fetch import incoming_shards, remotes
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.utils import files, number_ranges, threads

# Number of shards to probe for without a listing; no run of the dataset has more.
_MAX_SHARDS = 51
_RETRIES = 3

_ALTERNATIVES = (
  "The dataset's public bucket, gs://atari-replay-datasets/dqn, has refused many "
  'users since 2025. Alternatives: local copies, in any layout (`python -m '
  'batch_rl.dataset import`), the RLDS copy, rlu_atari_checkpoints_ordered '
  '(`import --format rlds`), and your own data (`python -um '
  'batch_rl.baselines.train`)'
)


@dataclasses.dataclass(frozen=True)
class FilePlan:
  """A file to fetch; `--json` prints its fields.

  Attributes:
    name: Name in the dataset's format.
    path: Path at the remote.
    size: Size in bytes; None if the remote does not give it.
    there: Whether the file is already in place.
    begun: Bytes fetched earlier.
  """

  name: str
  path: str
  size: int | None
  there: bool
  begun: int

  @property
  def suffix(self) -> int:
    """Shard number."""
    return _suffix(self.name)


@dataclasses.dataclass(frozen=True)
class RunPlan:
  """Files to fetch of a run.

  Attributes:
    game: Name of the game's folder.
    number: Run number.
    data_dir: Local directory of the shards.
    files: Files of the requested shards, shard by shard.
    missing: Requested shards that the remote lacks or refuses, one line each.
    manifest: The remote's manifest, or empty.
  """

  game: str
  number: int
  data_dir: str
  files: list[FilePlan]
  missing: list[str]
  manifest: dict[str, Any]

  @property
  def title(self) -> str:
    """Game and run number, e.g. `Pong/1`."""
    return f'{self.game}/{self.number}'

  @property
  def suffixes(self) -> list[int]:
    """Shard numbers, ascending."""
    return sorted({file.suffix for file in self.files})


def make_plan(
  remote: remotes.Remote,
  games: Sequence[str],
  numbers: Sequence[int],
  suffixes: Sequence[int] | None,
  destination: str,
  jobs: int,
) -> list[RunPlan]:
  """Compares the remote's files with the local ones.

  Args:
    remote: Remote root of a dataset, the folder above the games.
    games: Names of the games' folders.
    numbers: Run numbers.
    suffixes: Shard numbers; None for all shards.
    destination: Local root of the dataset.
    jobs: Number of parallel requests.

  Raises:
    PermanentError: If the remote lacks or refuses all runs.
    TransientError: If the remote cannot be reached.
    ValueError: If a game, run or shard does not exist, or a local file differs from
      the remote one.
  """
  plans, reasons = [], set()
  for game, number in itertools.product(games, numbers):
    run = _RunLookUp(remote, game, number, suffixes, destination, jobs)
    try:
      plans.append(run.plan())
    except remotes.PermanentError as error:
      _check_names(remote, game, number)
      reasons.add(str(error))
      missing = f'{run.title} is not available: {error}'
      plans.append(RunPlan(game, number, run.data_dir, [], [missing], {}))
  if any(plan.files for plan in plans):
    return plans
  if reasons:
    titles = ', '.join(plan.title for plan in plans)
    raise remotes.PermanentError(
      f'{remote.name} has no {titles}, or refuses access: '
      f'{", ".join(sorted(reasons))}{_hint(games)}. {_ALTERNATIVES}.'
    )
  lines = [line for plan in plans for line in plan.missing]
  raise ValueError(f'{remote.name}: {"; ".join(lines)}.')


def _check_names(remote: remotes.Remote, game: str, number: int) -> None:
  """Raises a ValueError if the remote lists other games or runs."""
  parts = remote.name.rstrip('/').split('/')[-3:]
  if shard_files.REPLAY_LOGS in parts or game in parts:
    raise ValueError(
      f'{remote.name} has no {game}/{number}/{shard_files.REPLAY_LOGS}: give the '
      "dataset's root, the folder above the games."
    )
  for folder, name, kind in (
    (game, str(number), f'run {number} of {game}'),
    ('', game, f'game {game}'),
  ):
    names: Iterable[str] | None = None
    with contextlib.suppress(remotes.RemoteError):
      names = remote.list(folder)
    if names and name not in names:
      listed = sorted(names, key=number_ranges.natural_key)[:20]
      raise ValueError(
        f'{remote.name} has no {kind}; it has {", ".join(listed)}.'
      )


def _hint(games: Sequence[str]) -> str:
  """Suggests the dataset's names for misspelt games."""
  known = {name.lower(): name for name in roms.games()}
  hints = []
  for game in games:
    near = difflib.get_close_matches(game.lower().replace('_', ''), known, 1)
    if near and known[near[0]] != game:
      hints.append(known[near[0]])
  return f' (did you mean {" or ".join(hints)}?)' if hints else ''


class _RunLookUp:
  """Finds the files of one run at the remote.

  Args:
    remote: Remote root of the dataset.
    game: Name of the game's folder.
    number: Run number.
    suffixes: Shard numbers; None for all shards.
    destination: Local root of the dataset.
    jobs: Number of parallel requests.

  Attributes:
    title: Game and run number.
    data_dir: Local directory of the shards.
  """

  def __init__(self, remote, game, number, suffixes, destination, jobs):
    self._remote = remote
    self._game, self._number = game, number
    self._suffixes = suffixes
    self._jobs = jobs
    self._folder = f'{game}/{number}/{shard_files.REPLAY_LOGS}'
    self._errors: dict[str, remotes.PermanentError] = {}  # by name
    self.title = f'{game}/{number}'
    self.data_dir = os.path.join(
      destination, game, str(number), shard_files.REPLAY_LOGS
    )

  def plan(self) -> RunPlan:
    """Returns the plan.

    Raises:
      PermanentError: If no file was found.
      TransientError: If the remote cannot be reached.
      ValueError: If a local file differs from the remote one.
    """
    listing = self._request(lambda: self._remote.list(self._folder)) or {}
    sizes = {name: listing[name] for name in listing if _suffix(name) >= 0}
    manifest: dict[str, Any] = {}
    if not sizes or manifests.FILE_NAME in listing:
      manifest = self._read_manifest()
    remote_records = incoming_shards.manifest_files(manifest)
    sizes = sizes or dict.fromkeys(remote_records) or self._probe()
    if not sizes:
      errors = list(self._errors.values())
      raise errors[-1] if errors else remotes.NotFound('not found')
    names, missing = self._choose(sizes)
    missing += self._refusals()

    def find_size(name: str) -> int | None:
      size = sizes[name]
      if size is None:
        size = manifests.look_up(remote_records, name, 'bytes', kind=int)
      if size is None and (stat := self._stat(name)):
        size = stat.size
      return size

    recorded = {}
    if os.path.isdir(self.data_dir):
      recorded = incoming_shards.recorded_files(self.data_dir)
    file_sizes = threads.parallel_map(find_size, names, self._jobs)
    file_plans = [
      self._file_plan(name, size, recorded.get(name), remote_records)
      for name, size in zip(names, file_sizes, strict=True)
    ]
    return RunPlan(
      self._game, self._number, self.data_dir, file_plans, missing, manifest
    )

  def _request(self, function: Callable[[], Any]) -> Any:
    return remotes.with_retries(function, _RETRIES, time.sleep)

  def _read_manifest(self) -> dict[str, Any]:
    """Returns the remote's manifest; empty if there is no valid one."""

    def read():
      _, _, chunks = self._remote.open(f'{self._folder}/{manifests.FILE_NAME}')
      return remotes.join(chunks)

    try:
      content = self._request(read)
      manifest = files.parse_json(
        manifests.FILE_NAME, content, manifests.FILE_SCHEMA
      )
      return manifests.check_hash(manifests.FILE_NAME, manifest)
    except remotes.PermanentError:
      return {}
    except ValueError as error:
      logging.warning(
        '%s: files are not compared with the manifest: %s', self.title, error
      )
      return {}

  def _stat(self, name: str) -> remotes.RemoteStat | None:
    """Returns the description of a file; None if missing or refused."""
    try:
      return self._request(lambda: self._remote.stat(f'{self._folder}/{name}'))
    except remotes.PermanentError as error:
      self._errors[name] = error
      return None

  def _refused(self) -> dict[str, remotes.PermanentError]:
    return {
      name: error
      for name, error in self._errors.items()
      if not isinstance(error, remotes.NotFound)
    }

  def _refusals(self) -> list[str]:
    """Returns a line about requested shards that were refused, if any."""
    refused = {
      _suffix(name): error
      for name, error in self._refused().items()
      if shard_files.column_of(name) == 'observation'
      and (self._suffixes is None or _suffix(name) in self._suffixes)
    }
    if not refused:
      return []
    shards = number_ranges.brief(sorted(refused))
    reason = next(iter(refused.values()))
    return [f'{self.title}: the source refuses shards {shards} ({reason})']

  def _probe(self) -> dict[str, int | None]:
    """Returns sizes by name, from requests for the format's file names."""
    suffixes = self._suffixes or range(_MAX_SHARDS)
    sizes: dict[str, int | None] = {}

    def probe(suffix: int) -> bool:
      first, *others = [
        shard_files.file_name(n, suffix)
        for n in (*shard_files.FILES, shard_files.OPTIONAL)
      ]
      stats = {first: self._stat(first)}
      exists = stats[first] is not None
      if exists:
        stats |= {name: self._stat(name) for name in others}
      sizes.update({name: stat.size for name, stat in stats.items() if stat})
      return exists

    # Probes two shards first: the remote may refuse everything.
    if not any([probe(suffix) for suffix in suffixes[:2]]) and self._refused():
      return {}
    threads.parallel_map(probe, suffixes[2:], self._jobs)
    if self._suffixes is None and sizes:
      for suffix in range(_MAX_SHARDS, 10 * _MAX_SHARDS):
        before = shard_files.file_name('observation', suffix - 1)
        if before not in sizes or not probe(suffix):
          break
    return sizes

  def _choose(
    self, existing_names: Collection[str]
  ) -> tuple[list[str], list[str]]:
    """Selects the files of requested, complete shards.

    Returns:
      Names of the files; missing and incomplete shards, one line each.
    """
    existing = sorted({_suffix(name) for name in existing_names})
    missing: list[str] = []
    chosen: list[str] = []
    for suffix in existing if self._suffixes is None else self._suffixes:
      if suffix not in existing:
        missing.append(
          f'{self.title}: the source has no shard {suffix} (it has '
          f'{number_ranges.brief(existing)})'
        )
        continue
      names = [shard_files.file_name(n, suffix) for n in shard_files.FILES]
      if lacking := [name for name in names if name not in existing_names]:
        missing.append(
          f'{self.title}: shard {suffix} is incomplete at the source: it lacks '
          f'{", ".join(lacking)}'
        )
        continue
      chosen += names
      optional = shard_files.file_name(shard_files.OPTIONAL, suffix)
      if optional in existing_names:
        chosen.append(optional)
    return chosen, missing

  def _file_plan(self, name, size, record, remote_records) -> FilePlan:
    """Compares a file with the local one."""
    final = os.path.join(self.data_dir, name)
    expected = manifests.look_up(remote_records, name, 'sha256', kind=str)
    in_place = False
    if os.path.exists(final):
      local_size = os.path.getsize(final)
      # A file without a record is verified as if it had just arrived.
      in_place = record is not None and record.get('bytes') == local_size
      differs = record is not None and expected not in (
        None,
        record.get('sha256'),
      )
      if differs or size not in (None, local_size):
        raise ValueError(
          f'{final} ({local_size:,} B) is not the file that {self._remote.name} has '
          f'({"?" if size is None else f"{size:,}"} B): does it belong to another run? '
          'Move it away, or choose another --data_dir.'
        )
    partial = os.path.join(self.data_dir, shard_files.PARTIAL, name)
    begun = os.path.getsize(partial) if os.path.exists(partial) else 0
    return FilePlan(name, f'{self._folder}/{name}', size, in_place, begun)


def _suffix(name: str) -> int:
  """Returns the shard number of a file; -1 if it belongs to no shard."""
  suffix = shard_files.suffix_of(name)
  return -1 if suffix is None else suffix


def bytes_to_fetch(plans: Sequence[RunPlan]) -> int:
  """Returns the bytes still to fetch of all files whose size is known."""
  return sum(
    max((file.size or 0) - file.begun, 0)
    for plan in plans
    for file in plan.files
    if not file.there
  )


def check_disk_space(plans: Sequence[RunPlan], destination: str) -> None:
  """Raises a ValueError if the files would not fit on the disk."""
  folder = os.path.abspath(destination)
  while not os.path.exists(folder):
    folder = os.path.dirname(folder)
  free, needed = psutil.disk_usage(folder).free, bytes_to_fetch(plans)
  if needed > free:
    raise ValueError(
      f'{needed / 1e9:.3g} GB to fetch, but only {free / 1e9:.3g} GB are free '
      f'in {folder}: choose fewer --shards, or another --data_dir.'
    )
