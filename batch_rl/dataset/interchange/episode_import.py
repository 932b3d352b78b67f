"""Import of episodes, shared by all episode formats.

A reader yields the episodes of a dataset in order. They are logged as shards, which
are then packed into a store unless shards are wanted. The import saves its position
every 100,000 rows, and resumes from there.
"""

import abc
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import (
  manifests,
  replay_log,
  shard_files,
  stitching,
)
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files, staging_directory

LAST_STEPS = ('auto', 'transition', 'observation')
Progress = Callable[[str, int, int], None]
# A dataset of fewer bytes may have fewer than a million steps.
_SMALL_BYTES = 500e6
_ROWS_BETWEEN_CHECKPOINTS = 100_000


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
    observation: Frames, uint8 (n, *frame_shape); None if they were not read.
  """

  name: str
  checkpoint: int | None
  begins_at_reset: bool
  terminal: bool
  action: np.ndarray
  reward: np.ndarray
  unclipped: np.ndarray
  episode_return: float | None
  observation: np.ndarray | None

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


class EpisodeReader(abc.ABC):
  """Reads the episodes of a dataset in another format.

  Attributes:
    directory: Directory of the dataset.
    splits: Number of episodes by split, in the order of the import.
    frame_shape: Shape of an observation, uint8.
    num_bytes: Size of the splits on disk.
    name: Full name of the dataset.
    game: Name of the game; None if unknown.
    run: Number of the run.
    manifest: Entries for the manifest of the run: `agent`, `environment`, and
      `source`, a description of the dataset with its `format` and `order`.
    shard_rows: Rows of a shard of the exported run, or None.
    last_step: Kind of terminal steps (see `infer_last_step`), or None if unknown.
    has_unclipped: Whether rewards before clipping are stored beside clipped ones.
  """

  directory: str
  splits: dict[str, int]
  frame_shape: tuple[int, ...]
  num_bytes: int
  name: str
  game: str | None
  run: str
  manifest: dict[str, Any]
  shard_rows: int | None
  last_step: str | None
  has_unclipped: bool

  @abc.abstractmethod
  def read(
    self, split: str, first: int = 0, frames: bool = True
  ) -> Iterator[StoredEpisode]:
    """Yields the episodes of a split in stored order.

    Args:
      split: Name in `splits`.
      first: Number of the first episode to read.
      frames: Whether to read observations.

    Raises:
      ValueError: If an episode cannot be read or is malformed.
    """

  @abc.abstractmethod
  def fingerprint(self) -> str:
    """Returns a hash that identifies the dataset and the chosen splits, in hex."""

  @property
  def num_episodes(self) -> int:
    """Number of episodes of all splits."""
    return sum(self.splits.values())

  def scan(self, stage: str, progress: Progress) -> Iterator[StoredEpisode]:
    """Yields all episodes without observations, reporting progress."""
    for split in self.splits:
      for episode in self.read(split, frames=False):
        progress(stage, 1, self.num_episodes)
        yield episode


def choose_shard_rows(reader: EpisodeReader, progress: Progress) -> int:
  """Returns the rows of a shard: a million, as in the DQN Replay Dataset, or fewer.

  A shard takes its full length on disk and in memory, however few rows it holds.
  So a small dataset gets a shard of its own length.
  """
  if reader.num_bytes > _SMALL_BYTES:
    return 1_000_000
  rows = sum(len(e.action) + 3 for e in reader.scan('counting', progress))
  return min(1_000_000, max(rows + 1, 100))


def infer_last_step(reader: EpisodeReader, progress: Progress) -> str:
  """Returns whether terminal steps are transitions, or observations only.

  The first terminal step with a reward decides. If none has a reward, RLDS's
  definition is used: then only a step without reward is lost, and each episode
  ends one step earlier.

  Returns:
    'transition' or 'observation'.
  """
  if reader.last_step:
    return reader.last_step
  scanned = reader.scan('inferring last steps', progress)
  kinds = (episode.infer_last_step() for episode in scanned)
  return next(filter(None, kinds), 'observation')


def import_run(
  reader: EpisodeReader,
  destination: str,
  shards: bool = False,
  shard_rows: int | None = None,
  game: str | None = None,
  last_step: str = 'auto',
  progress: Progress = lambda stage, count, total: None,
) -> dict[str, Any]:
  """Imports a dataset as a store or as shards; resumes an interrupted import.

  Args:
    reader: Reader of the dataset.
    destination: Store to create, or with `shards` the run: `<root>/<Game>/<run>`.
    shards: Whether to write shards rather than a store.
    shard_rows: Rows of a shard; None for those of the exported run, or 1,000,000.
    game: Name of the game; None for the dataset's.
    last_step: Kind of terminal steps, one of `LAST_STEPS`.
    progress: Callback with the name of the stage, the amount done since the last
      call and the total amount.

  Returns:
    A summary of the import, JSON-able.

  Raises:
    ValueError: If the dataset cannot be read, the game is unknown or contradicts
      the dataset, or the destination exists or cannot be written.
  """
  staging_directory.check_new(destination)
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
  options = {
    'game': name,
    'run': reader.run,
    'shard_rows': shard_rows
    or reader.shard_rows
    or choose_shard_rows(reader, progress),
    'last_step': last_step,
  }
  with staging_directory.StagingDirectory(destination) as stage:
    importer = _Importer(reader, stage, options)
    state = importer.run(progress)
    result = importer.run_directory
    if not shards:
      result = stage.join('store')
      logs = os.path.join(importer.run_directory, shard_files.REPLAY_LOGS)
      placements, _ = stitching.place(logs, shard_files.list_suffixes(logs))
      total = sum(placement.capacity for placement in placements)
      store_lib.convert(
        logs, result, lambda rows: progress('packing', rows, total)
      )
    imported = episodes.Reader(run_directories.find_runs(result)[0])
    stage.publish(os.path.relpath(result, stage.path))
  return {
    'destination': destination,
    'format': reader.manifest['source']['format'],
    'source': reader.name,
    'game': options['game'],
    'episodes': state['episodes'],
    'steps': imported.rows,
    'truncated': state['truncated'],
    'skipped': state['skipped'],
    'last_step': state['last_step'],
    'order': reader.manifest['source']['order'],
    'hash': imported.hash,
  }


class _Importer:
  """Logs the episodes of a reader, with a resumable state in `state.json`.

  Args:
    reader: Reader of the dataset.
    stage: Directory of the unfinished import.
    options: Options of the import; a resumed one must have the same.

  Attributes:
    run_directory: Directory of the imported run.

  Raises:
    ValueError: If `stage` holds an import of another dataset or with other options.
  """

  def __init__(
    self,
    reader: EpisodeReader,
    stage: staging_directory.StagingDirectory,
    options: Mapping[str, Any],
  ):
    self._reader = reader
    self._state_path = stage.join('state.json')
    self._options = {'fingerprint': reader.fingerprint(), **options}
    self._state: dict[str, Any] = {}
    if (state := files.read_json(self._state_path)) is not None:
      self._state = files.check_hash(self._state_path, state)
    if self._state and self._state['options'] != self._options:
      raise ValueError(
        f'{stage.path} holds an import of another dataset or with other options; '
        'delete it to start again.'
      )
    run = os.path.join(options['game'], options['run'])
    self.run_directory = stage.join('runs', run)
    self._log = replay_log.ReplayLog(
      os.path.join(self.run_directory, shard_files.REPLAY_LOGS),
      reader.frame_shape,
      np.uint8,
      options['shard_rows'],
      metadata=self._metadata(),
    )

  def _metadata(self) -> dict[str, Any]:
    from batch_rl import __version__

    manifest, fingerprint = self._reader.manifest, self._options['fingerprint']
    return {
      'run_id': fingerprint[:16],
      'agent': manifest['agent'],
      'environment': {
        **manifest['environment'],
        'game': self._options['game'],
      },
      'versions': {'batch_rl': __version__},
      'source': {**manifest['source'], 'fingerprint': fingerprint},
    }

  def run(self, progress: Progress) -> dict[str, Any]:
    """Logs all episodes that are not logged yet; returns the state."""
    if not self._state:
      self._state = self._initial_state(progress)
    state, log = self._state, self._log
    if state['finished']:
      return state
    log.metadata['source']['last_step'] = state['last_step']
    total = self._reader.num_episodes
    if state['log']:
      log.restore(state['log'])
      progress('episodes', state['episodes'], total)
    saved_rows = log.rows
    # The last row of a truncated episode, until it is known whether more follow.
    pending = None
    for split, episode in self._remaining():
      if pending is not None:
        self._add(*pending, truncated=True)
      if log.rows - saved_rows >= _ROWS_BETWEEN_CHECKPOINTS:
        self._save(log.checkpoint())
        saved_rows = log.rows
      pending = self._log_episode(split, episode)
      progress('episodes', 1, total)
    if pending is not None:
      # The run ends within an episode, like one that is still being logged.
      self._add(*pending)
    if not log.rows:
      raise ValueError(f'{self._reader.directory} has no transitions.')
    log.metadata['checkpoints'] = state['checkpoints']
    log.metadata['source']['episodes'] = state['episodes']
    log.metadata['source']['skipped'] = state['skipped']
    log.close()
    if not state['unclipped']:
      self._remove_unclipped_returns()
    state['finished'] = True
    self._save(None)
    return state

  def _initial_state(self, progress: Progress) -> dict[str, Any]:
    last_step = self._options['last_step']
    if last_step == 'auto':
      last_step = infer_last_step(self._reader, progress)
    return {
      'options': self._options,
      'last_step': last_step,
      'done': {},
      'episodes': 0,
      'truncated': 0,
      'skipped': 0,
      'unclipped': self._reader.has_unclipped,
      'checkpoints': [],
      'log': None,
      'finished': False,
    }

  def _remaining(self) -> Iterator[tuple[str, StoredEpisode]]:
    """Yields the episodes that are not logged yet, with their splits."""
    for split, count in self._reader.splits.items():
      done = self._state['done'].get(split, 0)
      if done < count:
        for episode in self._reader.read(split, done):
          yield split, episode

  def _remove_unclipped_returns(self) -> None:
    """Removes unclipped returns from the manifest: the dataset lacks them."""
    manifest = manifests.read(self._log.directory)
    for entry in (manifest, *manifest['shards']):
      for name in ('unclipped_return', 'unclipped_returns'):
        entry['episodes'].pop(name, None)
    manifests.write(self._log.directory, manifest)

  def _save(self, log: dict | None) -> None:
    self._state['log'] = log
    files.write_json(self._state_path, files.with_hash(self._state))

  def _log_episode(
    self, split: str, episode: StoredEpisode
  ) -> tuple[StoredEpisode, int] | None:
    """Logs an episode; returns its last row instead if it is truncated."""
    state = self._state
    expected, inferred = state['last_step'], episode.infer_last_step()
    chosen = self._options['last_step'] != 'auto'
    if inferred and inferred != expected and not chosen:
      raise ValueError(
        f'The last step of {episode.name} is a{"n" * (inferred[0] == "o")} '
        f'{inferred} by its return, unlike those before; choose with --last_step.'
      )
    state['done'][split] = state['done'].get(split, 0) + 1
    state['episodes'] += 1
    state['unclipped'] |= bool(np.abs(episode.unclipped).max() > 1)
    n = len(episode.action)
    if episode.terminal and expected == 'observation':
      n -= 1
    if n < 1 + (not episode.terminal):
      state['skipped'] += 1
      return None
    self._note_checkpoint(episode.checkpoint)
    for i in range(n - 1):
      self._add(episode, i)
    if not episode.terminal:
      state['truncated'] += 1
      return episode, n - 1
    self._add(episode, n - 1, terminal=True)
    return None

  def _note_checkpoint(self, number: int | None) -> None:
    """Records the first row of a checkpoint's episodes."""
    noted = self._state['checkpoints']
    if number is not None and (not noted or noted[-1]['checkpoint'] != number):
      row = self._log.rows
      noted.append(
        {
          'checkpoint': number,
          'first_row': row,
          'shard': (row + 1) // self._options['shard_rows'],
        }
      )

  def _add(
    self,
    episode: StoredEpisode,
    i: int,
    terminal: bool = False,
    truncated: bool = False,
  ) -> None:
    self._log.add(
      cast(np.ndarray, episode.observation)[i],
      episode.action[i],
      episode.reward[i],
      terminal,
      truncated,
      padded=episode.begins_at_reset,
      unclipped_reward=float(episode.unclipped[i]),
    )
