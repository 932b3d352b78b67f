"""Plan of a fetch: files of each run, their sizes, and the files already in place.

`shard_plan` and `unplugged_plan` make the plans of the two layouts.
"""

import dataclasses
import difflib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psutil

from batch_rl.dataset.fetch import remotes
from batch_rl.utils import threads

_RETRIES = 3


@dataclasses.dataclass(frozen=True)
class FilePlan:
  """A file to fetch; `--json` prints its fields.

  Attributes:
    name: Name in the layout.
    suffix: Number of its shard or checkpoint.
    path: Path at the remote.
    size: Size in bytes; None if the remote does not give it.
    there: Whether the file is already in place, though perhaps not verified yet.
    begun: Bytes fetched earlier.
  """

  name: str
  suffix: int
  path: str
  size: int | None
  there: bool
  begun: int


@dataclasses.dataclass(frozen=True)
class RunPlan:
  """Files to fetch of a run.

  Attributes:
    game: Name of the game.
    number: Run number.
    directory: Local directory of the run, `<root>/<Game>/<run>`.
    files: Requested files, shard by shard.
    missing: Requested shards that the remote lacks or refuses, one line each.
    manifest: The remote's manifest, or empty.
  """

  game: str
  number: int
  directory: str
  files: list[FilePlan]
  missing: list[str]
  manifest: dict[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def title(self) -> str:
    """Game and run number, e.g. `Pong/1`."""
    return f'{self.game}/{self.number}'

  @property
  def suffixes(self) -> list[int]:
    """Numbers of the shards or checkpoints, ascending."""
    return sorted({file.suffix for file in self.files})


class RemoteFolder:
  """A remote folder, read with retries; refusals are kept for the report.

  Args:
    remote: Remote root.
    path: Path of the folder.

  Attributes:
    path: Path of the folder.
    errors: Errors of missing and refused files, by name.
  """

  def __init__(self, remote: remotes.Remote, path: str):
    self._remote = remote
    self.path = path
    self.errors: dict[str, remotes.PermanentError] = {}

  def list(self) -> dict[str, int | None]:
    """Returns sizes by name; empty if the remote has no listings.

    Raises:
      NotFound: If the folder does not exist.
      TransientError: If the remote cannot be reached.
    """
    return self._request(lambda: self._remote.list(self.path)) or {}

  def read(self, name: str) -> bytes:
    """Returns the content of a small file.

    Raises:
      PermanentError: If the file is missing, refused or too large.
      TransientError: If the remote cannot be reached.
    """

    def read():
      _, _, chunks = self._remote.open(f'{self.path}/{name}')
      return remotes.join(chunks)

    return self._request(read)

  def stat(self, name: str) -> remotes.RemoteStat | None:
    """Returns the description of a file; None if missing or refused.

    Raises:
      TransientError: If the remote cannot be reached.
    """
    try:
      return self._request(lambda: self._remote.stat(f'{self.path}/{name}'))
    except remotes.PermanentError as error:
      self.errors[name] = error
      return None

  def probe(
    self, find: Callable[[int], bool], numbers: Sequence[int], jobs: int
  ) -> None:
    """Looks for the files of shards, unless the remote seems to refuse everything.

    Args:
      find: Function that requests the files of a shard with `stat`, and returns
        whether there are any.
      numbers: Numbers of the shards.
      jobs: Number of parallel requests.
    """
    if any([find(number) for number in numbers[:2]]) or not self.refused():
      threads.parallel_map(find, numbers[2:], jobs)

  def refused(self) -> dict[str, remotes.PermanentError]:
    """Returns the errors of the files that exist, or may exist, by name."""
    return {
      name: error
      for name, error in self.errors.items()
      if not isinstance(error, remotes.NotFound)
    }

  def last_error(self) -> remotes.PermanentError:
    """Returns the error to report if no file was found."""
    errors = list(self.errors.values())
    return errors[-1] if errors else remotes.NotFound('not found')

  def _request(self, function: Callable[[], Any]) -> Any:
    return remotes.with_retries(function, _RETRIES, time.sleep)


def plan_runs(
  remote: remotes.Remote,
  games: Sequence[str],
  numbers: Sequence[int],
  destination: str,
  plan_run: Callable[[str, int, str], RunPlan],
  explain: Callable[[str, int], None],
  advise: Callable[[bool], str],
) -> list[RunPlan]:
  """Plans the fetch of each run of each game.

  Args:
    remote: Remote of the dataset.
    games: Names of the games.
    numbers: Run numbers.
    destination: Local root of the dataset.
    plan_run: Function of a game, a run number and the run's local directory.
    explain: Function of a game and a run that the remote lacks or refuses; it may
      raise a ValueError that tells why.
    advise: Function that returns the end of the message if the remote has none of
      the runs, or raises a ValueError that tells why. Its argument is whether the
      remote refused all requests.

  Raises:
    PermanentError: If the remote lacks or refuses all runs.
    TransientError: If the remote cannot be reached.
    ValueError: If a game, run or shard does not exist, or a local file differs from
      the remote one.
  """
  plans, reasons, refused = [], set(), True
  for game, number in itertools.product(games, numbers):
    directory = os.path.join(destination, game, str(number))
    try:
      plans.append(plan_run(game, number, directory))
    except remotes.PermanentError as error:
      explain(game, number)
      reasons.add(str(error))
      refused &= not isinstance(error, remotes.NotFound)
      missing = f'{game}/{number} is not available: {error}'
      plans.append(RunPlan(game, number, directory, [], [missing]))
  if any(plan.files for plan in plans):
    return plans
  if reasons:
    titles = ', '.join(plan.title for plan in plans)
    raise remotes.PermanentError(
      f'{remote.name} has no {titles}, or refuses access: '
      f'{", ".join(sorted(reasons))}{advise(refused)}'
    )
  lines = [line for plan in plans for line in plan.missing]
  raise ValueError(f'{remote.name}: {"; ".join(lines)}.')


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


def bytes_begun(path: str) -> int:
  """Returns the size of a file that an earlier fetch began; 0 without one."""
  return os.path.getsize(path) if os.path.exists(path) else 0


def bytes_to_fetch(plans: Iterable[RunPlan]) -> int:
  """Returns the bytes still to fetch of all files whose size is known."""
  return sum(
    max((file.size or 0) - file.begun, 0)
    for plan in plans
    for file in plan.files
    if not file.there
  )


def check_disk_space(
  needed: int, purpose: str, destination: str, option: str = '--shards'
) -> None:
  """Raises a ValueError if bytes would not fit on the disk.

  Args:
    needed: Number of bytes.
    purpose: Purpose of the bytes, for the message, e.g. 'to fetch'.
    destination: Local root of the dataset, which may not exist yet.
    option: Option of the command that chooses the shards.
  """
  folder = os.path.abspath(destination)
  while not os.path.exists(folder):
    folder = os.path.dirname(folder)
  free = psutil.disk_usage(folder).free
  if needed > free:
    raise ValueError(
      f'{needed / 1e9:.3g} GB {purpose}, but only {free / 1e9:.3g} GB are free '
      f'in {folder}: choose fewer {option}, or another --data_dir.'
    )
