"""Plan of a fetch of shards in the dataset's layout, `<Game>/<run>/replay_logs`."""

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from absl import logging

from batch_rl.atari import roms
from batch_rl.dataset.fetch import plan, remotes
from batch_rl.dataset.shards import incoming_shards, manifests, shard_files
from batch_rl.dataset.store import store_directory
from batch_rl.dataset.unplugged import file_names
from batch_rl.utils import files, number_ranges, threads

# Number of shards to probe for without a listing; no run of the dataset has more.
_MAX_SHARDS = 51

_ALTERNATIVES = (
  "The dataset's public bucket, gs://atari-replay-datasets/dqn, has refused many "
  'users since 2025. Alternatives: RL Unplugged, the same runs of 46 games (`fetch '
  'gs://rl_unplugged --layout=unplugged`), local copies, in any layout (`python -m '
  'batch_rl.dataset import`), the RLDS copy, rlu_atari_checkpoints_ordered '
  '(`import --format rlds`), and your own data (`python -um '
  'batch_rl.baselines.train`)'
)


def make_plan(
  remote: remotes.Remote,
  games: Sequence[str],
  numbers: Sequence[int],
  suffixes: Sequence[int] | None,
  destination: str,
  jobs: int,
) -> list[plan.RunPlan]:
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
  return plan.plan_runs(
    remote,
    games,
    numbers,
    destination,
    lambda game, number, directory: _RunLookUp(
      remote, game, number, suffixes, directory, jobs
    ).make(),
    lambda game, number: _check_names(remote, game, number),
    lambda refused: _advise(remote, games, numbers[0], refused),
  )


def _check_names(remote: remotes.Remote, game: str, number: int) -> None:
  """Raises a ValueError if the remote has another layout, or other games or runs."""
  parts = remote.name.rstrip('/').split('/')[-3:]
  if parts[-1] in (file_names.FOLDER, file_names.NAME):
    raise _other_layout(remote)
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
    if file_names.FOLDER in (names or ()):
      raise _other_layout(remote)
    if names and name not in names:
      listed = sorted(names, key=number_ranges.natural_key)[:20]
      raise ValueError(
        f'{remote.name} has no {kind}; it has {", ".join(listed)}.'
      )


def _advise(
  remote: remotes.Remote, games: Sequence[str], number: int, refused: bool
) -> str:
  """Returns alternatives to a remote that has none of the runs.

  Raises:
    ValueError: If the remote has the files of RL Unplugged.
  """
  game = games[0]
  name = file_names.format(number, 0, file_names.count_of(game))
  if not refused:
    with contextlib.suppress(remotes.RemoteError):
      remote.stat(f'{file_names.FOLDER}/{game}/{name}')
      raise _other_layout(remote)
  return f'{plan.near_names(games, roms.games())}. {_ALTERNATIVES}.'


def _other_layout(remote: remotes.Remote) -> ValueError:
  return ValueError(
    f'{remote.name} has the layout of RL Unplugged; add --layout=unplugged.'
  )


class _RunLookUp:
  """Finds the files of one run at the remote.

  Args:
    remote: Remote root of the dataset.
    game: Name of the game's folder.
    number: Run number.
    suffixes: Shard numbers; None for all shards.
    directory: Local directory of the run.
    jobs: Number of parallel requests.
  """

  def __init__(self, remote, game, number, suffixes, directory, jobs):
    self._remote_name = remote.name
    self._game, self._number = game, number
    self._suffixes = suffixes
    self._directory, self._jobs = directory, jobs
    self._folder = plan.RemoteFolder(
      remote, f'{game}/{number}/{shard_files.REPLAY_LOGS}'
    )
    self._title = f'{game}/{number}'
    self._data_dir = os.path.join(directory, shard_files.REPLAY_LOGS)

  def make(self) -> plan.RunPlan:
    """Returns the plan.

    Raises:
      PermanentError: If no file was found.
      TransientError: If the remote cannot be reached.
      ValueError: If a local file differs from the remote one.
    """
    if store_directory.is_store(self._directory):
      raise ValueError(
        f'{self._directory} is a store, not a directory of shards; choose another '
        '--data_dir.'
      )
    listing = self._folder.list()
    sizes = {name: listing[name] for name in listing if _suffix(name) >= 0}
    manifest: dict[str, Any] = {}
    if not sizes or manifests.FILE_NAME in listing:
      manifest = self._read_manifest()
    remote_records = incoming_shards.manifest_files(manifest)
    sizes = sizes or dict.fromkeys(remote_records) or self._probe()
    if not sizes:
      raise self._folder.last_error()
    names, missing = self._choose(sizes)
    missing += self._refusals()

    def find_size(name: str) -> int | None:
      size = sizes[name]
      if size is None:
        size = manifests.look_up(remote_records, name, 'bytes', kind=int)
      if size is None and (stat := self._folder.stat(name)):
        size = stat.size
      return size

    recorded = {}
    if os.path.isdir(self._data_dir):
      recorded = incoming_shards.recorded_files(self._data_dir)
    file_sizes = threads.parallel_map(find_size, names, self._jobs)
    file_plans = [
      self._file_plan(name, size, recorded.get(name), remote_records)
      for name, size in zip(names, file_sizes, strict=True)
    ]
    return plan.RunPlan(
      self._game, self._number, self._directory, file_plans, missing, manifest
    )

  def _read_manifest(self) -> dict[str, Any]:
    """Returns the remote's manifest; empty if there is no valid one."""
    try:
      content = self._folder.read(manifests.FILE_NAME)
      manifest = files.parse_json(
        manifests.FILE_NAME, content, manifests.FILE_SCHEMA
      )
      return manifests.check_hash(manifests.FILE_NAME, manifest)
    except remotes.PermanentError:
      return {}
    except ValueError as error:
      logging.warning(
        '%s: files are not compared with the manifest: %s', self._title, error
      )
      return {}

  def _refusals(self) -> list[str]:
    """Returns a line about requested shards that were refused, if any."""
    refused = {
      _suffix(name): error
      for name, error in self._folder.refused().items()
      if shard_files.column_of(name) == 'observation'
      and (self._suffixes is None or _suffix(name) in self._suffixes)
    }
    if not refused:
      return []
    shards = number_ranges.brief(sorted(refused))
    reason = next(iter(refused.values()))
    return [f'{self._title}: the source refuses shards {shards} ({reason})']

  def _probe(self) -> dict[str, int | None]:
    """Returns sizes by name, from requests for the format's file names."""
    suffixes = self._suffixes or range(_MAX_SHARDS)
    sizes: dict[str, int | None] = {}

    def probe(suffix: int) -> bool:
      first, *others = [
        shard_files.file_name(n, suffix)
        for n in (*shard_files.FILES, shard_files.OPTIONAL)
      ]
      stats = {first: self._folder.stat(first)}
      exists = stats[first] is not None
      if exists:
        stats |= {name: self._folder.stat(name) for name in others}
      sizes.update({name: stat.size for name, stat in stats.items() if stat})
      return exists

    self._folder.probe(probe, suffixes, self._jobs)
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
          f'{self._title}: the source has no shard {suffix} (it has '
          f'{number_ranges.brief(existing)})'
        )
        continue
      names = [shard_files.file_name(n, suffix) for n in shard_files.FILES]
      if lacking := [name for name in names if name not in existing_names]:
        missing.append(
          f'{self._title}: shard {suffix} is incomplete at the source: it lacks '
          f'{", ".join(lacking)}'
        )
        continue
      chosen += names
      optional = shard_files.file_name(shard_files.OPTIONAL, suffix)
      if optional in existing_names:
        chosen.append(optional)
    return chosen, missing

  def _file_plan(self, name, size, record, remote_records) -> plan.FilePlan:
    """Compares a file with the local one."""
    final = os.path.join(self._data_dir, name)
    expected = manifests.look_up(remote_records, name, 'sha256', kind=str)
    in_place = os.path.exists(final)
    if in_place:
      local_size = os.path.getsize(final)
      differs = record is not None and expected not in (
        None,
        record.get('sha256'),
      )
      if differs or size not in (None, local_size):
        raise ValueError(
          f'{final} ({local_size:,} B) is not the file that {self._remote_name} has '
          f'({"?" if size is None else f"{size:,}"} B): does it belong to another run? '
          'Move it away, or choose another --data_dir.'
        )
    begun = plan.bytes_begun(
      os.path.join(self._data_dir, shard_files.PARTIAL, name)
    )
    path = f'{self._folder.path}/{name}'
    return plan.FilePlan(name, _suffix(name), path, size, in_place, begun)


def _suffix(name: str) -> int:
  """Returns the shard number of a file; -1 if it belongs to no shard."""
  suffix = shard_files.suffix_of(name)
  return -1 if suffix is None else suffix
