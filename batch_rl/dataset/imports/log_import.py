"""Imports episodes as shards of the dataset's format, or as a store of such shards.

The import saves its position every 100,000 rows, and resumes from there.
"""

import concurrent.futures
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.imports import episode_import
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import (
  manifests,
  replay_log,
  shard_files,
  stitching,
)
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files, machine, staging_directory

# A dataset of fewer bytes may have fewer than a million steps.
_SMALL_BYTES = 500e6
_ROWS_BETWEEN_CHECKPOINTS = 100_000
_FRAMES_PER_TASK = 256


def choose_shard_rows(
  reader: episode_import.EpisodeReader, progress: episode_import.Progress
) -> int:
  """Returns the rows of a shard: a million, as in the DQN Replay Dataset, or fewer.

  A shard takes its full length on disk and in memory, however few rows it holds.
  So a small dataset gets a shard of its own length.
  """
  if reader.num_bytes > _SMALL_BYTES:
    return 1_000_000
  rows = sum(
    len(episode.action) + manifests.PADDING
    for episode in episode_import.scan(
      reader, reader.parts, 'counting', progress
    )
  )
  return min(1_000_000, max(rows + 1, 100))


def import_run(
  reader: episode_import.EpisodeReader,
  destination: str,
  shards: bool = False,
  shard_rows: int | None = None,
  game: str | None = None,
  last_step: str = 'auto',
  progress: episode_import.Progress = lambda stage, count, total: None,
) -> dict[str, Any]:
  """Imports a dataset as a store or as shards; resumes an interrupted import.

  Args:
    reader: Reader of the dataset.
    destination: Store to create, or with `shards` the run: `<root>/<Game>/<run>`.
    shards: Whether to write shards rather than a store.
    shard_rows: Rows of a shard; None for those of the exported run, or 1,000,000.
    game: Name of the game; None for the dataset's.
    last_step: Content of terminal steps, one of `LAST_STEPS`.
    progress: Callback with the name of the stage, the amount done since the last
      call and the total amount.

  Returns:
    A summary of the import, JSON-able.

  Raises:
    ValueError: If the dataset cannot be read, the game is unknown or contradicts
      the dataset, or the destination exists or cannot be written.
    OSError: If a file cannot be read or written, e.g. to a full disk.
  """
  staging_directory.check_new(destination)
  options = {
    'game': episode_import.game_of(reader, game),
    'run': reader.run,
    'shard_rows': shard_rows
    or reader.shard_rows
    or choose_shard_rows(reader, progress),
    'last_step': last_step,
  }
  try:
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
          logs,
          result,
          lambda rows: progress('packing', rows, total),
          'import',
        )
      imported = episodes.Reader(run_directories.find_runs(result)[0])
      stage.publish(os.path.relpath(result, stage.path))
  except OSError as error:
    raise episode_import.stopped(destination, error, 'episodes') from error
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
    reader: episode_import.EpisodeReader,
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
    described = episode_import.describe(reader, options['game'])
    self._log = replay_log.ReplayLog(
      os.path.join(self.run_directory, shard_files.REPLAY_LOGS),
      reader.frame_shape,
      np.uint8,
      options['shard_rows'],
      metadata={
        'run_id': self._options['fingerprint'][:16],
        **described,
        'source': {
          **described['source'],
          'fingerprint': self._options['fingerprint'],
        },
      },
    )

  def run(self, progress: episode_import.Progress) -> dict[str, Any]:
    """Logs all episodes that are not logged yet; returns the state."""
    if not self._state:
      self._state = self._initial_state(progress)
    state, log = self._state, self._log
    if state['finished']:
      return state
    log.metadata['source']['last_step'] = state['last_step']
    # The last row of a truncated episode, until it is known whether more follow.
    pending = None
    if state['log']:
      log.restore(state['log'])
    else:
      shutil.rmtree(log.directory, ignore_errors=True)
    saved_rows = log.rows
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
      for part, episode in self._remaining(progress):
        if pending is not None:
          self._add(*pending, truncated=True)
        if log.rows - saved_rows >= _ROWS_BETWEEN_CHECKPOINTS:
          self._save(log.checkpoint())
          saved_rows = log.rows
        pending = self._log_episode(part, episode, pool)
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

  def _initial_state(self, progress: episode_import.Progress) -> dict[str, Any]:
    reader = self._reader
    return {
      'options': self._options,
      'last_step': episode_import.choose_last_step(
        reader, self._options['last_step'], reader.parts[0], progress
      )[0],
      'done': {},
      'episodes': 0,
      'truncated': 0,
      'skipped': 0,
      'unclipped': reader.has_unclipped,
      'checkpoints': [],
      'log': None,
      'finished': False,
    }

  def _remaining(
    self, progress: episode_import.Progress
  ) -> Iterator[tuple[episode_import.Part, episode_import.StoredEpisode]]:
    """Yields the episodes that are not logged yet, with their parts."""
    parts = self._reader.parts
    unit, total = parts[0].unit, sum(part.size for part in parts)
    for part in parts:
      done = self._state['done'].get(part.name, {'episodes': 0, 'position': 0})
      position = done['position']
      if position:
        progress(unit, position, total)
      if position < part.size:
        for episode in self._reader.read(part, done['episodes']):
          yield part, episode
          progress(unit, episode.position - position, total)
          position = episode.position

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
    self,
    part: episode_import.Part,
    episode: episode_import.StoredEpisode,
    pool: concurrent.futures.ThreadPoolExecutor,
  ) -> tuple[episode_import.StoredEpisode, np.ndarray, int] | None:
    """Logs an episode; returns its last row instead if it is truncated."""
    state = self._state
    rows = episode.rows_kept(
      state['last_step'], self._options['last_step'] != 'auto'
    )
    done = state['done'].setdefault(part.name, {'episodes': 0})
    done |= {'episodes': done['episodes'] + 1, 'position': episode.position}
    state['episodes'] += 1
    state['unclipped'] |= bool(np.abs(episode.unclipped).max() > 1)
    if not rows:
      state['skipped'] += 1
      return None
    number, noted = episode.checkpoint, state['checkpoints']
    if number is not None and (not noted or noted[-1]['checkpoint'] != number):
      # The first row of a checkpoint's episodes.
      first = self._log.rows
      shard = (first + 1) // self._options['shard_rows']
      noted.append({'checkpoint': number, 'first_row': first, 'shard': shard})
    observation = _decode(
      cast(episode_import.Frames, episode.frames),
      rows,
      self._reader.frame_shape,
      pool,
    )
    for i in range(rows - 1):
      self._add(episode, observation, i)
    if not episode.terminal:
      state['truncated'] += 1
      return episode, observation, rows - 1
    self._add(episode, observation, rows - 1, terminal=True)
    return None

  def _add(
    self,
    episode: episode_import.StoredEpisode,
    observation: np.ndarray,
    i: int,
    terminal: bool = False,
    truncated: bool = False,
  ) -> None:
    self._log.add(
      observation[i],
      episode.action[i],
      episode.reward[i],
      terminal,
      truncated,
      padded=episode.begins_at_reset,
      unclipped_reward=float(episode.unclipped[i]),
    )


def _decode(
  frames: episode_import.Frames,
  count: int,
  frame_shape: tuple[int, ...],
  pool: concurrent.futures.ThreadPoolExecutor,
) -> np.ndarray:
  """Decodes the first frames of an episode on all cores: (count, *frame_shape)."""
  out = np.empty((count, *frame_shape), np.uint8)

  def decode(start):
    stop = min(start + _FRAMES_PER_TASK, count)
    frames.decode(start, stop, out[start:stop])

  list(pool.map(decode, range(0, count, _FRAMES_PER_TASK)))
  return out
