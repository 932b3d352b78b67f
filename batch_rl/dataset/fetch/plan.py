"""Plan of a fetch: the remote's files of each run are compared with the local ones."""

import contextlib
import difflib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psutil
from absl import logging

from batch_rl.atari import roms
from batch_rl.dataset.fetch import fetched_run, remotes
from batch_rl.dataset.shards import incoming_shards, manifests
from batch_rl.utils import files, number_ranges, threads

_RETRIES = 3


def make_plan(
  remote: remotes.Remote,
  make_run: Callable[[str, str, int, str], fetched_run.FetchedRun],
  games: Sequence[str],
  numbers: Sequence[int],
  shards: Sequence[int] | None,
  destination: str,
  jobs: int,
) -> list[fetched_run.FetchedRun]:
  """Plans the fetch of each run of each game.

  Args:
    remote: Remote root of a dataset, the folder above the games.
    make_run: Constructor of a run in the layout of the remote.
    games: Names of the games.
    numbers: Run numbers.
    shards: Numbers of shards or checkpoints; None for all.
    destination: Local root of the dataset.
    jobs: Number of parallel requests.

  Raises:
    PermanentError: If the remote lacks or refuses all runs.
    TransientError: If the remote cannot be reached.
    ValueError: If a game, run or shard does not exist, or a local file differs from
      the remote one.
  """
  runs, reasons = [], set()
  for game, number in itertools.product(games, numbers):
    directory = os.path.join(destination, game, str(number))
    run = make_run(remote.name, game, number, directory)
    runs.append(run)
    try:
      _RunLookUp(remote, run, shards, jobs).plan()
    except remotes.PermanentError as error:
      if isinstance(error, remotes.NotFound):
        _check_folders(remote, run.folder)
      reasons.add(str(error))
      run.missing = [f'{run.title} is not available: {error}']
  if any(run.files for run in runs):
    return runs
  if reasons:
    titles = ', '.join(run.title for run in runs)
    raise remotes.PermanentError(
      f'{remote.name} has no {titles}, or refuses access: '
      f'{", ".join(sorted(reasons))}{near_names(games, roms.games())}. The source '
      'must be the folder above the games, in the layout that --layout names. '
      f'{runs[0].advice}'
    )
  lines = [line for run in runs for line in run.missing]
  raise ValueError(f'{remote.name}: {"; ".join(lines)}.')


def _check_folders(remote: remotes.Remote, folder: str) -> None:
  """Raises a ValueError that names the first folder of a path that does not exist."""
  parent = ''
  for name in folder.split('/'):
    listed: Iterable[str] | None = None
    with contextlib.suppress(remotes.RemoteError):
      listed = remote.list(parent)
    if listed and name not in listed:
      names = sorted(listed, key=number_ranges.natural_key)[:20]
      raise ValueError(
        f'{remote.name} has no {f"{parent}/{name}".lstrip("/")}; it has '
        f'{", ".join(names)}. Give the folder above the games, and its --layout.'
      )
    parent = f'{parent}/{name}'.lstrip('/')


class _RunLookUp:
  """Finds the files of a run at the remote.

  Args:
    remote: Remote root of the dataset.
    run: Run to find.
    numbers: Numbers of shards or checkpoints; None for all.
    jobs: Number of parallel requests.
  """

  def __init__(
    self,
    remote: remotes.Remote,
    run: fetched_run.FetchedRun,
    numbers: Sequence[int] | None,
    jobs: int,
  ):
    self._remote, self._run = remote, run
    self._numbers, self._jobs = numbers, jobs
    self._errors: dict[str, remotes.PermanentError] = {}

  def plan(self) -> None:
    """Sets the run's files, compared with those in its directory.

    Raises:
      PermanentError: If no file was found.
      TransientError: If the remote cannot be reached.
      ValueError: If a local file differs from the remote one.
    """
    run = self._run
    listing = self._request(lambda: self._remote.list(run.folder)) or {}
    sizes = {name: listing[name] for name in listing if self._number(name) >= 0}
    if not sizes or manifests.FILE_NAME in listing:
      run.manifest = self._read_manifest()
    recorded = incoming_shards.manifest_files(run.manifest)
    sizes = sizes or dict.fromkeys(recorded) or self._probe()
    if not sizes:
      raise list(self._errors.values() or [remotes.NotFound('not found')])[-1]

    def plan_file(name: str) -> fetched_run.FilePlan:
      size = sizes[name]
      if size is None:
        size = manifests.look_up(recorded, name, 'bytes', kind=int)
      if size is None and (stat := self._stat(name)):
        size = stat.size
      partial = run.partial(name)
      return fetched_run.FilePlan(
        name,
        self._number(name),
        f'{run.folder}/{name}',
        size,
        run.has(name, size),
        os.path.getsize(partial) if os.path.exists(partial) else 0,
      )

    names, run.missing = self._choose(sizes)
    run.files = threads.parallel_map(plan_file, names, self._jobs)

  def _number(self, name: str) -> int:
    number = self._run.number_of(name)
    return -1 if number is None else number

  def _request(self, function: Callable[[], Any]) -> Any:
    return remotes.with_retries(function, _RETRIES, time.sleep)

  def _stat(self, name: str) -> remotes.RemoteStat | None:
    """Returns the description of a file; None if missing or refused."""
    try:
      return self._request(
        lambda: self._remote.stat(f'{self._run.folder}/{name}')
      )
    except remotes.PermanentError as error:
      self._errors[name] = error
      return None

  def _read_manifest(self) -> dict[str, Any]:
    """Returns the remote's manifest; empty if there is no valid one."""

    def read() -> bytes:
      path = f'{self._run.folder}/{manifests.FILE_NAME}'
      return remotes.join(self._remote.open(path)[2])

    try:
      manifest = files.parse_json(
        manifests.FILE_NAME, self._request(read), manifests.FILE_SCHEMA
      )
      return manifests.check_hash(manifests.FILE_NAME, manifest)
    except remotes.PermanentError:
      return {}
    except ValueError as error:
      logging.warning(
        '%s: files are not compared with the manifest: %s',
        self._run.title,
        error,
      )
      return {}

  def _probe(self) -> dict[str, int | None]:
    """Returns sizes by name, from requests for the layout's file names."""
    sizes: dict[str, int | None] = {}

    def probe(number: int) -> bool:
      required, optional = self._run.names(number)
      for name in required + optional:
        stat = self._stat(name)
        if stat is not None:
          sizes[name] = stat.size
        elif name == required[0]:
          return False
      return True

    numbers = self._numbers or self._run.all_numbers(())
    # Some remotes refuse everything: two numbers are enough to tell.
    if any([probe(number) for number in numbers[:2]]) or not self._refused():
      threads.parallel_map(probe, numbers[2:], self._jobs)
    return sizes

  def _refused(self) -> dict[int, remotes.PermanentError]:
    """Returns an error by number for files that exist, or may exist."""
    return {
      self._number(name): error
      for name, error in self._errors.items()
      if not isinstance(error, remotes.NotFound)
    }

  def _choose(
    self, sizes: dict[str, int | None]
  ) -> tuple[list[str], list[str]]:
    """Returns the files of complete shards, and a line for each problem."""
    found = sorted({self._number(name) for name in sizes})
    wanted = self._numbers or self._run.all_numbers(found)
    unit, refused = self._run.unit, self._refused()
    absent, chosen, missing = [], [], []
    for number in wanted:
      required, optional = self._run.names(number)
      lacking = [name for name in required if name not in sizes]
      if not lacking:
        chosen += [name for name in required + optional if name in sizes]
      elif number in found:
        missing.append(
          f'{self._run.title}: {unit} {number} is incomplete at the source: it lacks '
          f'{", ".join(lacking)}'
        )
      elif number not in refused:
        absent.append(number)
    if absent:
      missing.append(
        f'{self._run.title}: the source has no {unit}s {number_ranges.brief(absent)} '
        f'(found: {number_ranges.brief(found)})'
      )
    if self._numbers:
      refused = {k: refused[k] for k in refused if k in self._numbers}
    if refused:
      missing.append(
        f'{self._run.title}: the source refuses {unit}s '
        f'{number_ranges.brief(sorted(refused))} ({next(iter(refused.values()))})'
      )
    return chosen, missing


def near_names(games: Iterable[str], known: Iterable[str]) -> str:
  """Returns a suggestion for misspelt games, e.g. ' (did you mean Pong?)', or ''."""
  by_key = {name.lower(): name for name in known}
  hints = []
  for game in games:
    key = game.lower().replace('_', '')
    near = difflib.get_close_matches(key, by_key, 1)
    if near and by_key[near[0]] != game:
      hints.append(by_key[near[0]])
  return f' (did you mean {" or ".join(hints)}?)' if hints else ''


def check_disk_space(needed: int, purpose: str, destination: str) -> None:
  """Raises a ValueError if bytes would not fit on the disk.

  Args:
    needed: Number of bytes.
    purpose: Purpose of the bytes, for the message.
    destination: Local root of the dataset, which may not exist yet.
  """
  folder = os.path.abspath(destination)
  while not os.path.exists(folder):
    folder = os.path.dirname(folder)
  free = psutil.disk_usage(folder).free
  if needed > free:
    raise ValueError(
      f'{needed / 1e9:.3g} GB are needed ({purpose}), but only {free / 1e9:.3g} GB '
      f'are free in {folder}: choose less, or another --data_dir.'
    )
