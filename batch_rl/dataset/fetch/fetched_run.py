"""A run to fetch: its files at a remote, and their place on the disk."""

import abc
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from batch_rl.dataset.fetch import partial_file


class FilePlan(NamedTuple):
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


class FetchedRun(abc.ABC):
  """A run at a remote, in one layout. Planning needs no lock; writing needs `open`.

  Args:
    source: URL of the remote.
    game: Name of the game.
    number: Run number.
    directory: Local directory of the run, `<root>/<Game>/<run>`.

  Attributes:
    unit: Word for a numbered part of a run: 'shard' or 'checkpoint'.
    max_waiting: Number of fetched files that may wait for `accept` in addition to those
      that are being fetched.
    advice: Sentence about other sources, for errors.
    folder: Path of the run's files at the remote.
    title: Game and run number, e.g. `Pong/1`.
    manifest: The remote's manifest, set before `open`; empty without one.
    files: Files to fetch, shard by shard.
    missing: Requested shards that the remote lacks or refuses, one line each.
  """

  unit: str
  max_waiting = 0
  advice: str
  folder: str

  def __init__(self, source: str, game: str, number: int, directory: str):
    self.source, self.game, self.number = source, game, number
    self.directory, self.title = directory, f'{game}/{number}'
    self.manifest: Mapping[str, Any] = {}
    self.files: list[FilePlan] = []
    self.missing: list[str] = []

  @property
  def suffixes(self) -> list[int]:
    """Numbers of the shards or checkpoints, ascending."""
    return sorted({file.suffix for file in self.files})

  # --- names at the remote ---

  @abc.abstractmethod
  def names(self, number: int) -> list[str]:
    """Returns the names of the files of a shard or checkpoint."""

  @abc.abstractmethod
  def all_numbers(self, found: Collection[int]) -> Sequence[int]:
    """Returns all numbers of the run.

    Args:
      found: Numbers that the remote is known to have; empty to get those to ask for.
    """

  # --- files on the disk ---

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
  def open(self, stack: contextlib.ExitStack) -> None:
    """Prepares the directory, and locks it until `stack` is closed.

    Raises:
      ValueError: If the directory cannot be used.
    """

  @abc.abstractmethod
  def accept(self, file: FilePlan, partial: partial_file.PartialFile) -> None:
    """Verifies a fetched file, and puts it in place.

    A file that is there is verified if it has not been yet.

    Args:
      file: Plan of the file.
      partial: The fetched file, with the hashes that the remote gave.

    Raises:
      ValueError: If the file is damaged.
      OSError: If the directory cannot be written.
      KeyboardInterrupt: If the work was stopped.
    """

  @abc.abstractmethod
  def finish(self) -> tuple[list[str], list[str], dict[str, Any] | None]:
    """Completes the run; returns errors, notes, and the summary of a store."""


def waiting(runs: Sequence[FetchedRun]) -> list[FilePlan]:
  """Returns the files that are not in place."""
  return [file for run in runs for file in run.files if not file.there]


def bytes_to_fetch(runs: Sequence[FetchedRun]) -> int:
  """Returns the bytes still to fetch of the files whose size is known."""
  return sum(max((f.size or 0) - f.begun, 0) for f in waiting(runs))
