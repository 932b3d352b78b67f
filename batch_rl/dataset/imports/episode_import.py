"""Episodes of a dataset in another format: the interface of its reader.

A reader yields the episodes of a dataset in order. `log_import` logs them as shards,
and `store_import` packs them into a store, one shard for each part of the dataset.
Both keep the same rows of an episode: see `rows_kept`.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files

LAST_STEPS = ('auto', 'transition', 'observation')
# RLDS's definition, assumed if no episode tells. Then only steps without reward are
# lost, and each episode ends one step earlier.
ASSUMED_LAST_STEP = 'observation'
# Receives the name of a stage, the amount done since the last call, and the total.
Progress = Callable[[str, int, int], None]


class LastStepError(ValueError):
  """An episode that contradicts the content of terminal steps known so far."""


def stopped(destination: str, error: OSError, what: str) -> OSError:
  """Returns the error of an import that the system has stopped.

  Args:
    destination: Directory of the import's result.
    error: The system's error, in reading or writing.
    what: Things that the import keeps, e.g. 'shards'.
  """
  where = f'{error.filename}: ' if error.filename else ''
  return OSError(
    f'The import of {destination} has stopped: {where}{files.reason(error)}; imported '
    f'{what} are kept, and the same command resumes.'
  )


@dataclasses.dataclass(frozen=True)
class Part:
  """A part of a dataset that is read in one go: a file, or a split.

  Attributes:
    number: Number of the part; of its shard, if the store has one for each part.
    name: Name of the file or split.
    size: Size in `unit`.
    unit: 'B' or 'episodes'.
  """

  number: int
  name: str
  size: int
  unit: str


class Frames(Protocol):
  """Frames of an episode, decoded on demand."""

  def __len__(self) -> int:
    """Returns the number of frames."""

  def decode(self, start: int, stop: int, out: np.ndarray) -> None:
    """Decodes the frames from `start` to `stop`; called by several threads at once.

    Args:
      start: First frame.
      stop: Frame after the last.
      out: Array to write to, uint8 (stop - start, *frame_shape), contiguous.

    Raises:
      ValueError: If a frame is damaged.
    """


class DecodedFrames:
  """Frames that are decoded already.

  Args:
    array: Frames, uint8 (n, *frame_shape).
  """

  def __init__(self, array: np.ndarray):
    self._array = array

  def __len__(self) -> int:
    return len(self._array)

  def decode(self, start: int, stop: int, out: np.ndarray) -> None:
    """Copies frames; see `Frames`."""
    out[:] = self._array[start:stop]


@dataclasses.dataclass(frozen=True)
class StoredEpisode:
  """An episode of a dataset, with n steps.

  Attributes:
    name: Description for messages.
    checkpoint: Number of the checkpoint that it belongs to, or None.
    begins_at_reset: Whether its first step is the first one after a reset.
    terminal: Whether its last step is terminal.
    action: Actions, int32 (n,).
    reward: Rewards clipped to [-1, 1], float32 (n,).
    unclipped: Rewards before clipping, float32 (n,).
    episode_return: Return according to the dataset, or None.
    frames: The n observations; None if they were not read.
    position: Amount of the part read up to the end of this episode, in its unit.
  """

  name: str
  checkpoint: int | None
  begins_at_reset: bool
  terminal: bool
  action: np.ndarray
  reward: np.ndarray
  unclipped: np.ndarray
  episode_return: float | None
  frames: Frames | None
  position: int

  def infer_last_step(self) -> str | None:
    """Returns whether its terminal step is a transition, judged by its reward.

    The step is a transition if its reward is part of `episode_return`, or if it has
    a reward and there is no return to compare.

    Returns:
      'transition' or 'observation'; None if the reward is consistent with both.
    """
    if not self.terminal or not self.reward[-1]:
      return None
    if self.episode_return is None:
      return 'transition'
    for reward in (self.unclipped, self.reward):
      total = float(reward.sum(dtype=np.float64))
      for kind, expected in (
        ('transition', total),
        ('observation', total - float(reward[-1])),
      ):
        if abs(self.episode_return - expected) < 1e-3 * max(1, abs(expected)):
          return kind
    return None

  def rows_kept(self, last_step: str, is_chosen: bool = False) -> int:
    """Returns how many steps, from the first on, become rows of the log.

    A truncated episode keeps its last step: readers use its observation only, as
    the next observation of the step before.

    Args:
      last_step: Content of terminal steps: 'transition' or 'observation'.
      is_chosen: Whether the user chose `last_step`, against the data if need be.

    Returns:
      Number of rows; 0 for an episode without a transition.

    Raises:
      LastStepError: If the episode's return contradicts `last_step`.
    """
    inferred = self.infer_last_step()
    if inferred is not None and inferred != last_step and not is_chosen:
      raise LastStepError(
        f'By its return, the last step of {self.name} is of kind {inferred}, unlike '
        f'those before; add --last_step={last_step} to go on as before, or start again '
        f'in another directory with --last_step={inferred}.'
      )
    rows = len(self.action)
    if self.terminal:
      return rows - (last_step == 'observation')
    return rows if rows > 1 else 0


class EpisodeReader(abc.ABC):
  """Reads the episodes of a dataset in another format.

  Attributes:
    directory: Directory of the dataset.
    parts: Parts of the dataset, in the order of the import.
    frame_shape: Shape of an observation, uint8.
    name: Full name of the dataset.
    game: Name of the game; None if unknown.
    run: Number of the run.
    manifest: Entries for the manifest of the run: `agent`, `environment`, and
      `source`, a description of the dataset with its `format` and `order`.
    num_bytes: Size of the parts on disk.
    shard_rows: Rows of a shard of the exported run, or None.
    last_step: Content of terminal steps (see `StoredEpisode.infer_last_step`), or
      None if unknown.
    has_unclipped: Whether rewards before clipping are stored beside clipped ones.
  """

  directory: str
  parts: list[Part]
  frame_shape: tuple[int, ...]
  name: str
  game: str | None
  run: str
  manifest: dict[str, Any]
  num_bytes: int
  shard_rows: int | None
  last_step: str | None
  has_unclipped: bool

  @abc.abstractmethod
  def read(
    self, part: Part, first: int = 0, frames: bool = True
  ) -> Iterator[StoredEpisode]:
    """Yields the episodes of a part in stored order.

    Args:
      part: Element of `parts`.
      first: Number of the first episode to read.
      frames: Whether to read observations.

    Raises:
      ValueError: If an episode cannot be read or is malformed.
    """

  @abc.abstractmethod
  def fingerprint(self) -> str:
    """Returns a hash that identifies the dataset and the chosen parts, in hex."""

  def files_of(self, part: Part) -> dict[str, dict[str, Any]]:
    """Returns the files of a part that was read to its end.

    Returns:
      `{name: {'bytes', 'mtime_ns', 'sha256'}}`; empty if they are not known.
    """
    del part
    return {}


def scan(
  reader: EpisodeReader,
  parts: Sequence[Part],
  stage: str,
  progress: Progress,
) -> Iterator[StoredEpisode]:
  """Yields the episodes of some parts without frames, reporting progress."""
  total = sum(part.size for part in parts)
  for part in parts:
    position = 0
    for episode in reader.read(part, frames=False):
      progress(stage, episode.position - position, total)
      position = episode.position
      yield episode


def infer_last_step(
  reader: EpisodeReader, first: Part, progress: Progress
) -> str | None:
  """Returns whether terminal steps are transitions, or observations only.

  The first terminal step with a reward decides.

  Args:
    reader: Reader of the dataset.
    first: Part to begin with. Damage to others is ignored.
    progress: Callback.

  Returns:
    'transition' or 'observation'; None if no terminal step has a reward.

  Raises:
    ValueError: If the first part is damaged.
  """
  for part in sorted(reader.parts, key=lambda part: part != first):
    try:
      for episode in scan(reader, [part], 'inferring last steps', progress):
        if kind := episode.infer_last_step():
          return kind
    except ValueError:  # The import reports it.
      if part == first:
        raise
  return None


def choose_last_step(
  reader: EpisodeReader, wanted: str, first: Part, progress: Progress
) -> tuple[str, bool]:
  """Returns the content of terminal steps, and whether it is assumed.

  Args:
    reader: Reader of the dataset.
    wanted: One of `LAST_STEPS`.
    first: Part to begin with, if episodes must tell.
    progress: Callback.
  """
  if wanted != 'auto':
    return wanted, False
  known = reader.last_step or infer_last_step(reader, first, progress)
  return known or ASSUMED_LAST_STEP, known is None


def game_of(reader: EpisodeReader, game: str | None) -> str:
  """Returns the name of a dataset's game.

  Args:
    reader: Reader of the dataset.
    game: Name given by the user; None for the dataset's.

  Raises:
    ValueError: If the game is unknown, contradicts the dataset, or cannot be the
      name of a folder.
  """
  if game and reader.game and game.lower() != reader.game.lower():
    raise ValueError(
      f'{reader.directory} is a dataset of {reader.game}, not {game}.'
    )
  name = reader.game or game
  if not name:
    raise ValueError(f'{reader.directory} does not name its game; add --game.')
  try:
    shard_files.check_game(name)
  except ValueError as error:
    raise ValueError(f'{reader.directory}: {error}.') from None
  return name


def describe(reader: EpisodeReader, game: str) -> dict[str, Any]:
  """Returns the entries of a run's manifest that describe an imported dataset."""
  from batch_rl import __version__

  return {
    'agent': reader.manifest['agent'],
    'environment': {**reader.manifest['environment'], 'game': game},
    'versions': {'batch_rl': __version__},
    'source': dict(reader.manifest['source']),
  }
