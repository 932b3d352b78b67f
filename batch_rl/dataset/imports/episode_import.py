"""Episodes of a dataset in another format: the interface of its reader.

A reader yields the episodes of a dataset in order, and `store_import` packs them into
a store. `StoredEpisode.rows_kept` says which steps of an episode become rows.
"""

import abc
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset import game_names
from batch_rl.dataset.imports import examples, png_frames, tfrecords
from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files, progress_bars

LAST_STEPS = ('auto', 'transition', 'observation')
_WITH_ARTICLE = {'transition': 'a transition', 'observation': 'an observation'}
# RLDS's definition, assumed if no episode tells. Then only steps without reward are
# lost, and each episode ends one step earlier.
_ASSUMED_LAST_STEP = 'observation'
_NUM_ACTIONS = 18


class LastStepError(ValueError):
  """An episode that contradicts the content of terminal steps known so far."""


class Part(NamedTuple):
  """A file of a dataset, which becomes a shard of the store.

  Attributes:
    number: Number of the shard.
    name: Name of the file.
    size: Size in bytes.
  """

  number: int
  name: str
  size: int


@dataclasses.dataclass(frozen=True)
class StoredEpisode:
  """An episode of a dataset of Atari, with n steps.

  Attributes:
    name: Description for messages.
    begins_at_reset: Whether its first step is the first one after a reset.
    terminal: Whether its last step is terminal.
    action: Actions, int32 (n,).
    reward: Rewards to learn from, float32 (n,): clipped to [-1, 1], or as logged.
    unclipped: Rewards before clipping, float32 (n,).
    episode_return: Return according to the dataset, or None.
    frames: The n observations; None if they were not read.
    position: Bytes of the file read up to the end of this episode.
    index: Number of its checkpoint and, in this, of the episode; None if unknown.
    doubts: Oddities that the import counts and reports, each a noun in the plural.
    num_actions: Number of actions, if above that of Atari.

  Raises:
    ValueError: If an action is out of range, or a reward or the return is not finite.
  """

  name: str
  begins_at_reset: bool
  terminal: bool
  action: np.ndarray
  reward: np.ndarray
  unclipped: np.ndarray
  episode_return: float | None
  frames: png_frames.PngFrames | None
  position: int
  index: tuple[int, int] | None = None
  doubts: Sequence[str] = ()
  num_actions: int = 0

  def __post_init__(self):
    low, high = self.action.min(), self.action.max()
    most = max(self.num_actions, _NUM_ACTIONS) - 1
    if low < 0 or high > most:
      raise ValueError(
        f'Invalid dataset: {self.name} has actions from {low} to {high}, expected 0 '
        f'to {most}.'
      )
    object.__setattr__(self, 'action', self.action.astype(np.int32))
    same = self.action.shape == self.reward.shape == self.unclipped.shape
    total = self.episode_return
    numbers = np.hstack([self.reward, self.unclipped, total or 0])
    if not same or not np.isfinite(numbers).all():
      raise ValueError(
        f'Invalid dataset: {self.name} lacks a finite reward for each step, or a finite '
        'return.'
      )
    # The rewards of a part of an episode may not sum up to its return.
    is_whole = self.begins_at_reset and self.terminal
    if is_whole and total is not None and not any(self._explanations(total)):
      doubts = (*self.doubts, 'episodes whose return is not the sum of rewards')
      object.__setattr__(self, 'doubts', doubts)

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
    found = [*self._explanations(self.episode_return)]
    nearest = {kind for error, kind in found if error == min(found)[0]}
    return nearest.pop() if len(nearest) == 1 else None

  def _explanations(self, episode_return: float) -> Iterator[tuple[float, str]]:
    """Yields each content of the last step with which rewards sum up to a return.

    Yields:
      Difference of the sum from the return, and the content.
    """
    for reward in (self.unclipped, self.reward):
      total = float(reward.sum(dtype=np.float64))
      sums = {'transition': total, 'observation': total - float(reward[-1])}
      for kind, expected in sums.items():
        error = abs(episode_return - expected)
        if error < 1e-3 * max(1, abs(expected)):
          yield error, kind

  def rows_kept(
    self, last_step: str, is_chosen: bool = False, is_assumed: bool = False
  ) -> int:
    """Returns how many steps, from the first on, become rows of the log.

    A truncated episode keeps its last step, for the next observation of the step
    before.

    Args:
      last_step: Content of terminal steps: 'transition' or 'observation'.
      is_chosen: Whether the user chose `last_step`, against the data if need be.
      is_assumed: Whether no episode before told `last_step`; for the message.

    Returns:
      Number of rows; 0 for an episode without a transition.

    Raises:
      LastStepError: If the episode's return contradicts `last_step`.
    """
    inferred = self.infer_last_step()
    if inferred is not None and inferred != last_step and not is_chosen:
      reason = ' (assumed: no terminal step had a reward so far)'
      raise LastStepError(
        f'By its rewards, the last step of {self.name} is {_WITH_ARTICLE[inferred]}, but '
        f'the episodes before end with {_WITH_ARTICLE[last_step]}{reason * is_assumed}; '
        f'add --last_step={last_step} to go on as before, or start again in another '
        f'directory with --last_step={inferred}.'
      )
    rows = len(self.action)
    if self.terminal:
      return rows - (last_step == 'observation')
    return rows if rows > 1 else 0


class EpisodeReader(abc.ABC):
  """Reads the episodes of a dataset in another format.

  Args:
    paths: Path of the file of each shard, by the shard's number.

  Attributes:
    directory: Directory of the dataset.
    parts: Files of the dataset, in the order of the import.
    name: Full name of the dataset.
    game: Name of the game; None if unknown.
    run: Number of the run.
    format: Format of the dataset.
    order: Order of its episodes: 'time' or 'as stored'.
    agent: Agent that made the data; None if unknown.
    environment: Entry `environment` of the manifest of the run.
    last_step: Content of terminal steps (see `StoredEpisode.infer_last_step`), or
      None if unknown.
    missing: Numbers of files that the directory lacks, as far as known.

  Raises:
    ValueError: If a file is remote or missing.
  """

  directory: str
  name: str
  game: str | None
  run: str
  format: str
  order: str
  agent: str | None
  environment: dict[str, Any]
  last_step: str | None = None
  missing: Sequence[int] = ()

  def __init__(self, paths: Mapping[int, str]):
    self._paths = paths
    self._files: dict[int, dict[str, dict[str, Any]]] = {}
    self.parts = [
      Part(number, os.path.basename(path), files.stat(path)['bytes'])
      for number, path in paths.items()
    ]

  @abc.abstractmethod
  def read(self, part: Part, frames: bool = True) -> Iterator[StoredEpisode]:
    """Yields the episodes of a part in stored order.

    Args:
      part: Element of `parts`.
      frames: Whether to read observations.

    Raises:
      ValueError: If an episode cannot be read or is malformed.
    """

  def _examples(
    self,
    part: Part,
    columns: Mapping[str, str],
    scalars: Mapping[str, str] | None = None,
  ) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yields the episodes of a TFRecord file with an Example for each.

    Args:
      part: Part to read.
      columns: Types of the features with a value for each step.
      scalars: Types of other features that each Example must have.

    Yields:
      Name of the episode for messages, its features, and the bytes read so far.

    Raises:
      ValueError: If the file is damaged, or an Example has other features.
    """
    path, digest = self._paths[part.number], hashlib.sha256()
    stat = files.stat(path)
    records = tfrecords.read(path, digest)
    for number, (record, position) in enumerate(records):
      name = f'episode {number} of {path}'
      try:
        found = examples.parse(record)
        examples.check(found, columns, scalars or {})
      except ValueError as error:
        raise ValueError(f'Invalid dataset: {name}: {error}.') from error
      yield name, found, position
    self._files[part.number] = {
      part.name: {**stat, 'sha256': digest.hexdigest()}
    }

  def files_of(self, part: Part) -> dict[str, dict[str, Any]]:
    """Returns the file of a part that was read to its end.

    Returns:
      `{name: {'bytes', 'mtime_ns', 'sha256'}}`; empty for another part.
    """
    return self._files.get(part.number, {})


def choose_last_step(
  reader: EpisodeReader, wanted: str, first: Part
) -> tuple[str, bool]:
  """Returns the content of terminal steps, and whether it is assumed.

  Without a choice of the user and a note in the dataset, the first terminal step with
  a reward decides.

  Args:
    reader: Reader of the dataset.
    wanted: One of `LAST_STEPS`.
    first: Part to begin with. Damage to others is ignored.

  Raises:
    ValueError: If the first part is damaged.
  """
  known = reader.last_step if wanted == 'auto' else wanted
  if known in LAST_STEPS[1:]:
    return known, False
  total = sum(part.size for part in reader.parts)
  with progress_bars.meter(total, 'B', 'inferring last steps') as bar:
    for part in sorted(reader.parts, key=lambda part: part != first):
      position = 0
      try:
        for episode in reader.read(part, frames=False):
          bar.update(episode.position - position)
          position = episode.position
          if kind := episode.infer_last_step():
            return kind, False
      except ValueError:  # The import reports it.
        if part == first:
          raise
  return _ASSUMED_LAST_STEP, True


def game_of(reader: EpisodeReader, game: str | None) -> str:
  """Returns the name of a dataset's game, `Pong` for `pong`.

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
  return game_names.canonical(name)
