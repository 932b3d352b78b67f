"""A layout: the names of a run's files at a remote, and their place on the disk."""

import abc
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from batch_rl.dataset.fetch import partial_file


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


class Destination(abc.ABC):
  """Local directory of a run. It may be read at once, and written after `open`.

  Attributes:
    directory: Directory of the run.
    manifest: The remote's manifest, set before `open`; empty without one.
  """

  def __init__(self, directory: str):
    self.directory = directory
    self.manifest: Mapping[str, Any] = {}

  @abc.abstractmethod
  def has(self, name: str, size: int | None) -> bool:
    """Returns whether a file is in place, though perhaps not verified yet.

    Raises:
      ValueError: If another file of that name is in place.
    """

  @abc.abstractmethod
  def partial(self, name: str) -> str:
    """Returns the path at which a file is fetched."""

  @abc.abstractmethod
  def open(self, numbers: Collection[int]) -> None:
    """Prepares the directory and locks it.

    Args:
      numbers: Numbers of the shards to come.

    Raises:
      ValueError: If the directory cannot be used.
    """

  @abc.abstractmethod
  def close(self) -> None:
    """Releases the lock."""

  @abc.abstractmethod
  def is_done(self, name: str) -> bool:
    """Returns whether a file is in place and verified."""

  @abc.abstractmethod
  def take(
    self,
    file: FilePlan,
    partial: partial_file.PartialFile,
    advance: Callable[[int], None],
  ) -> bool:
    """Accepts a complete file that another program has put on the disk.

    Returns:
      Whether there was one.

    Raises:
      ValueError: If the file is damaged.
    """

  @abc.abstractmethod
  def accept(
    self,
    file: FilePlan,
    partial: partial_file.PartialFile,
    hashes: Mapping[str, str],
    advance: Callable[[int], None],
  ) -> None:
    """Verifies a fetched file and puts it in place.

    Args:
      file: Plan of the file.
      partial: The fetched file.
      hashes: Hashes by kind that the remote gave.
      advance: Callback during long work; it raises KeyboardInterrupt to end it.

    Raises:
      ValueError: If the file is damaged.
      OSError: If the destination cannot be written.
    """

  @abc.abstractmethod
  def finish(
    self, title: str, files: Sequence[FilePlan]
  ) -> tuple[list[str], list[str], dict[str, Any] | None]:
    """Completes the run; returns errors, notes, and the summary of a store."""


@dataclasses.dataclass(frozen=True)
class RunPlan:
  """Files to fetch of a run.

  Attributes:
    game: Name of the game.
    number: Run number.
    directory: Local directory of the run, `<root>/<Game>/<run>`.
    files: Requested files, shard by shard.
    missing: Requested shards that the remote lacks or refuses, one line each.
    destination: The local directory; None without files.
  """

  game: str
  number: int
  directory: str
  files: list[FilePlan]
  missing: list[str]
  destination: Destination | None = None

  @property
  def title(self) -> str:
    """Game and run number, e.g. `Pong/1`."""
    return f'{self.game}/{self.number}'

  @property
  def suffixes(self) -> list[int]:
    """Numbers of the shards or checkpoints, ascending."""
    return sorted({file.suffix for file in self.files})


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


class Layout(abc.ABC):
  """Names of the files at a remote, and the kind of local directory.

  Attributes:
    unit: Word for a numbered part of a run: 'shard' or 'checkpoint'.
    max_waiting: Number of fetched files that may wait for `Destination.accept`
      beside those that are being fetched.
    advice: Sentence about other sources, for errors.
  """

  unit: str
  max_waiting = 0
  advice: str

  def check(
    self, games: Sequence[str], runs: Sequence[int], numbers: Sequence[int]
  ) -> None:
    """Raises a ValueError if the layout cannot have a game, run or number."""
    return

  @abc.abstractmethod
  def folder(self, root: str, game: str, run: int) -> str:
    """Returns the path of a run's files at a remote with the URL `root`."""

  @abc.abstractmethod
  def names(
    self, game: str, run: int, number: int
  ) -> tuple[list[str], list[str]]:
    """Returns the names of the required and of the optional files of a number."""

  @abc.abstractmethod
  def number_of(self, name: str, run: int) -> int | None:
    """Returns the number of a file of a run; None for another file."""

  @abc.abstractmethod
  def all_numbers(self, game: str, found: Collection[int]) -> Sequence[int]:
    """Returns all numbers of a run.

    Args:
      game: Name of the game.
      found: Numbers that the remote has; empty to get those to ask it for.
    """

  @abc.abstractmethod
  def destination(
    self, source: str, game: str, run: int, directory: str
  ) -> Destination:
    """Returns the local directory of a run.

    Raises:
      ValueError: If it has other content.
    """

  def disk_need(self, plans: Sequence[RunPlan], jobs: int) -> DiskNeed | None:
    """Returns the space that a fetch takes; None for the size of the files."""
    return None


def waiting(plans: Sequence[RunPlan]) -> list[FilePlan]:
  """Returns the files that are not in place."""
  return [file for plan in plans for file in plan.files if not file.there]


def bytes_to_fetch(plans: Sequence[RunPlan]) -> int:
  """Returns the bytes still to fetch of all files whose size is known."""
  return sum(max((file.size or 0) - file.begun, 0) for file in waiting(plans))


def bytes_begun(path: str) -> int:
  """Returns the size of a file that an earlier fetch began; 0 without one."""
  return os.path.getsize(path) if os.path.exists(path) else 0
