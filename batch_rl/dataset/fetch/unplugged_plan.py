"""Plan of a fetch of RL Unplugged's files, one for each checkpoint of a run.

Their folder is `atari_episodes_ordered/<Game>`; see `unplugged.file_names`. The run's
directory, `<Game>/<run>`, becomes a store, and shard k holds checkpoint k.
"""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

from batch_rl.atari import roms
from batch_rl.dataset.fetch import plan, remotes
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.unplugged import file_names
from batch_rl.utils import number_ranges, threads

# Folder of the fetched files in a run's directory.
RAW = 'raw'
# Assumed bytes of a store for each byte of raw files. Files written from the sample,
# with PNGs by OpenCV, give 0.35; files of the bucket itself were not seen.
STORE_RATIO = 0.4
_ADVICE = (
  '. Files that you have already become a store with `python -m batch_rl.dataset '
  'import`, and so does the RLDS copy of the same runs, rlu_atari_checkpoints_ordered'
)


@dataclasses.dataclass(frozen=True)
class DiskNeed:
  """Disk space that a fetch will take; `--json` prints its fields.

  Attributes:
    raw_files: Most raw files on the disk at a time.
    raw_bytes: Bytes of these files, without those fetched earlier.
    store_bytes: Estimated growth of the stores.
  """

  raw_files: int
  raw_bytes: int
  store_bytes: int


def disk_need(plans: Sequence[plan.RunPlan], most_files: int) -> DiskNeed:
  """Returns the disk space that a fetch will take.

  Args:
    plans: Plans of the runs.
    most_files: Number of raw files on the disk at a time, at most.
  """
  waiting = [file for run in plans for file in run.files if not file.there]
  sizes = sorted((file.size or 0 for file in waiting), reverse=True)
  held = sizes[:most_files]
  begun = sum(file.begun for file in waiting)
  return DiskNeed(
    len(held), max(sum(held) - begun, 0), round(STORE_RATIO * sum(sizes))
  )


def open_store(
  remote: remotes.Remote,
  game: str,
  number: int,
  directory: str,
  last_step: str | None = None,
) -> store_import.StoreImport:
  """Returns the store of a run, which may not exist yet.

  Raises:
    ValueError: If the directory has other content.
  """
  return store_import.StoreImport(
    directory,
    store_import.Identity(game, str(number), file_names.NAME, remote.name),
    'fetch',
    last_step or 'auto',
    own_names=(RAW,),
  )


def check_request(games: Sequence[str], numbers: Sequence[int]) -> None:
  """Raises a ValueError if RL Unplugged lacks a game or a run."""
  for game in games:
    if game in file_names.GAMES:
      continue
    if game in roms.games():
      raise ValueError(
        f'RL Unplugged has {len(file_names.GAMES)} of the 60 games, and {game} is '
        'not among them.'
      )
    raise ValueError(
      f'RL Unplugged has no game {game}'
      f'{plan.near_names([game], file_names.GAMES)}.'
    )
  if others := sorted(set(numbers) - set(file_names.RUNS)):
    raise ValueError(
      f'RL Unplugged has no run {number_ranges.brief(others)}; it has runs '
      f'{number_ranges.brief(file_names.RUNS)}.'
    )


def make_plan(
  remote: remotes.Remote,
  games: Sequence[str],
  numbers: Sequence[int],
  checkpoints: Sequence[int] | None,
  destination: str,
  jobs: int,
) -> list[plan.RunPlan]:
  """Compares the remote's files with the local stores.

  Args:
    remote: Remote root of RL Unplugged, or its folder `atari_episodes_ordered`.
    games: Names of games.
    numbers: Run numbers.
    checkpoints: Checkpoint numbers; None for all checkpoints.
    destination: Local root of the dataset.
    jobs: Number of parallel requests.

  Raises:
    PermanentError: If the remote lacks or refuses all runs.
    TransientError: If the remote cannot be reached.
    ValueError: If a game, run or checkpoint does not exist, or a local directory
      cannot become the store of the run.
  """
  last = remote.name.rstrip('/').rpartition('/')[2]
  root = '' if last == file_names.FOLDER else file_names.FOLDER
  return plan.plan_runs(
    remote,
    games,
    numbers,
    destination,
    lambda game, number, directory: _RunLookUp(
      remote, root, game, number, checkpoints, directory, jobs
    ).make(),
    lambda game, number: _explain(remote, root, game, number),
    lambda refused: f'{_ADVICE}.',
  )


def _explain(remote: remotes.Remote, root: str, game: str, number: int) -> None:
  """Raises a ValueError if the remote has another layout, or other games."""

  def listed(folder: str) -> list[str]:
    with contextlib.suppress(remotes.RemoteError):
      return sorted(remote.list(folder) or (), key=number_ranges.natural_key)
    return []

  last = remote.name.rstrip('/').rpartition('/')[2]
  if last in (*file_names.GAMES, file_names.SHUFFLED_FOLDER):
    raise ValueError(
      f'{remote.name} does not hold {file_names.FOLDER}; give the folder that does.'
    )
  if shard_files.REPLAY_LOGS in listed(f'{game}/{number}'):
    raise ValueError(
      f'{remote.name} has the layout of the DQN Replay Dataset; remove '
      '--layout=unplugged.'
    )
  for folder, name in (('', root), (root, game)):
    names = listed(folder)
    if name and names and name not in names:
      raise ValueError(
        f'{remote.name} has no {name}; it has {", ".join(names[:20])}.'
      )


class _RemoteFile(NamedTuple):
  """A file, the number of files of its run, and its size if it was listed."""

  name: str
  run_files: int
  size: int | None


class _RunLookUp:
  """Finds the files of one run at the remote.

  Args:
    remote: Remote root.
    root: Remote folder of the games.
    game: Name of the game.
    number: Run number.
    checkpoints: Checkpoint numbers; None for all checkpoints.
    directory: Local directory of the run.
    jobs: Number of parallel requests.
  """

  def __init__(self, remote, root, game, number, checkpoints, directory, jobs):
    self._remote = remote
    self._game, self._number = game, number
    self._checkpoints = checkpoints
    self._directory, self._jobs = directory, jobs
    self._folder = plan.RemoteFolder(remote, f'{root}/{game}'.lstrip('/'))
    self._title = f'{game}/{number}'

  def make(self) -> plan.RunPlan:
    """Returns the plan.

    Raises:
      PermanentError: If no file was found.
      TransientError: If the remote cannot be reached.
      ValueError: If the local directory cannot become the store of the run.
    """
    if os.path.isdir(os.path.join(self._directory, shard_files.REPLAY_LOGS)):
      raise ValueError(
        f'{self._directory} holds shards, and RL Unplugged is fetched as a store; '
        'choose another --data_dir.'
      )
    store = open_store(self._remote, self._game, self._number, self._directory)
    found = {
      parts.number: _RemoteFile(name, parts.count, size)
      for name, size in self._folder.list().items()
      if (parts := file_names.parse(name)) and parts.run == self._number
    } or self._probe()
    if not found:
      raise self._folder.last_error()
    count = max(file.run_files for file in found.values())
    wanted = self._checkpoints or range(count)
    missing = self._missing(wanted, sorted(found))

    def plan_file(k: int) -> plan.FilePlan:
      name, _, size = found[k]
      if size is None and (stat := self._folder.stat(name)):
        size = stat.size
      return plan.FilePlan(
        name,
        k,
        f'{self._folder.path}/{name}',
        size,
        store.has(name, size),
        plan.bytes_begun(os.path.join(self._directory, RAW, name)),
      )

    chosen = [k for k in wanted if k in found]
    files = threads.parallel_map(plan_file, chosen, self._jobs)
    return plan.RunPlan(
      self._game, self._number, self._directory, files, missing
    )

  def _probe(self) -> dict[int, _RemoteFile]:
    """Returns files by number, from requests for the usual names."""
    count = file_names.count_of(self._game)
    found: dict[int, _RemoteFile] = {}

    def find(k: int) -> bool:
      name = file_names.format(self._number, k, count)
      stat = self._folder.stat(name)
      if stat is not None:
        found[k] = _RemoteFile(name, count, stat.size)
      return stat is not None

    wanted = [k for k in self._checkpoints or range(count) if k < count]
    if not wanted:
      raise ValueError(
        f'RL Unplugged has checkpoints 0-{count - 1} of {self._game}, not '
        f'{number_ranges.brief(sorted(self._checkpoints))}.'
      )
    self._folder.probe(find, wanted, self._jobs)
    return found

  def _missing(self, wanted: Sequence[int], found: Sequence[int]) -> list[str]:
    """Returns a line each for checkpoints that the remote refuses, and lacks."""
    lines = []
    refused = {
      parts.number: error
      for name, error in self._folder.refused().items()
      if (parts := file_names.parse(name)) and parts.number in wanted
    }
    if refused:
      numbers = number_ranges.brief(sorted(refused))
      reason = next(iter(refused.values()))
      lines.append(
        f'{self._title}: the source refuses checkpoints {numbers} ({reason})'
      )
    if lacking := sorted({*wanted} - {*found} - {*refused}):
      lines.append(
        f'{self._title}: the source has no checkpoints '
        f'{number_ranges.brief(lacking)} (found: {number_ranges.brief(found)})'
      )
    return lines
