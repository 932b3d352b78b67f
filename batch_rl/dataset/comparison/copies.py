"""Copies of a run on disk, in any format, read once and hashed row by row."""

import abc
import concurrent.futures
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.comparison import hashed_rows
from batch_rl.dataset.imports import episode_import, png_frames
from batch_rl.dataset.interchange import source_formats
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import machine, threads

Advance = Callable[[int], None]
_RowsAndFrames = tuple[np.ndarray, np.ndarray]
# Rows decoded and hashed at a time: some 0.8 MB. Arrays of 2 MB are new pages of memory
# each time, which takes longer than decoding.
_CHUNK_ROWS = 120


class Copy(abc.ABC):
  """A copy of a run.

  Attributes:
    path: Path as given.
    kind: 'shards', 'store', 'rlds' or 'rl_unplugged'.
    game: Name of the game; None if unknown.
    run: Name of the run.
    is_atari: Whether the run is of an Atari game; None if unknown, which counts as
      Atari. It may be set before `read`.
    frame_shape: Shape of an observation.
    frame_dtype: Dtype of an observation.
    total: Amount to read, in `unit`, for progress.
    unit: 'row' or 'B'.
    rows: Hashed rows, after `read`.
  """

  path: str
  kind: str
  game: str | None
  run: str
  is_atari: bool | None
  frame_shape: tuple[int, ...]
  frame_dtype: np.dtype
  total: int
  unit: str
  rows: hashed_rows.HashedRows

  @property
  def clips_rewards(self) -> bool:
    """Whether rewards are clipped to [-1, 1] before they are compared."""
    return self.is_atari is not False

  @abc.abstractmethod
  def read(self, with_frames: bool, advance: Advance) -> None:
    """Reads the copy, and sets `rows`.

    Args:
      with_frames: Whether to read and hash frames.
      advance: Callback that receives the amount read since its last call.

    Raises:
      ValueError: If the copy is damaged.
    """

  @abc.abstractmethod
  def _position(self, row: int) -> dict[str, Any]:
    """Returns the place of a row in the files."""

  def place(self, episode: int, step: int) -> dict[str, Any]:
    """Returns the place of a step: episode, step, and the position in the files."""
    position = self._position(int(self.rows.begin[episode]) + step)
    return {'episode': episode, 'step': step, **position}

  def _hash_of_zero(self) -> np.uint64:
    zero = np.zeros((1, *self.frame_shape), self.frame_dtype)
    return hashed_rows.hash_rows(zero)[0]

  def _skip_padding(
    self,
    begin: np.ndarray,
    stop: np.ndarray,
    most: int,
    frame: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
  ) -> np.ndarray:
    """Returns the first row of each episode that is not padding, int64 (n,).

    A gap may end within the padding of an episode, or padding was not logged: so
    rows of zeros are skipped, rather than a number of rows.

    Args:
      begin: First row of each episode.
      stop: Row after the last of each episode.
      most: Number of padding rows, at most.
      frame: Hashes of the frames.
      action: Actions.
      reward: Rewards.
    """
    hash_of_zero = self._hash_of_zero()
    first = begin.copy()
    for skipped in range(most):
      index = np.flatnonzero((first == begin + skipped) & (first < stop))
      row = first[index]
      is_zero = (frame[row] == hash_of_zero) & (action[row] == 0)
      first[index] += is_zero & (reward[row] == 0)
    return first


class LoggedCopy(Copy):
  """A run of shards, or a store.

  Args:
    run: Directory of the run.

  Raises:
    ValueError: If the run cannot be read.
  """

  unit = 'row'

  def __init__(self, run: run_directories.RunDirectory):
    self.path, self.kind = run.directory, 'store' if run.is_store else 'shards'
    self._data_dir = run.data_dir
    manifest = manifests.read(run.data_dir)
    # Only the manifest has the game: a folder may have any name.
    self.game = manifests.look_up(manifest, 'environment', 'game', kind=str)
    self.run = run.name
    self.is_atari = manifests.atari_if_known(manifest)
    self._store = store_lib.Store(run.data_dir, pack=False)
    self.frame_shape = self._store.frame_shape
    self.frame_dtype = self._store.frame_dtype
    self.total = self._store.rows

  @property
  def uncertain(self) -> list[int]:
    """Numbers of the shards that may lack their first row: a last one after a gap."""
    store = self._store
    return [
      placement.suffix
      for placement in store.placements
      if placement.suffix > 0
      and placement.start == 0
      and store.add_count(placement.suffix) < placement.capacity
    ]

  def read(self, with_frames: bool, advance: Advance) -> None:
    """See the base class."""
    store = self._store
    frame = np.zeros(store.rows, np.uint64)
    if with_frames:
      self._hash_frames(frame, advance)
    else:
      advance(store.rows)
    reward = store.reward
    terminal = np.zeros(store.rows, bool)
    terminal[np.setdiff1d(store.ends, store.truncations)] = True
    trajectories = subsets.trajectories(store)
    begin = np.minimum(trajectories.steps_begin, trajectories.stop)
    if with_frames:
      hash_of_zero = self._hash_of_zero()
      for i in np.flatnonzero(trajectories.at_reset):
        if (frame[trajectories.begin[i] : begin[i]] != hash_of_zero).any():
          begin[i] = trajectories.begin[i]  # Padding was not logged.
      late = np.flatnonzero(~trajectories.at_reset)
      begin[late] = self._skip_padding(
        trajectories.begin[late],
        trajectories.stop[late],
        store.first_padding(),
        frame,
        store.action,
        reward,
      )
    self.rows = hashed_rows.HashedRows(
      frame,
      store.action,
      np.clip(reward, -1, 1) if self.clips_rewards else reward,
      terminal,
      begin,
      trajectories.stop,
      [
        hashed_rows.PartRows(suffix, f'shard {suffix}', int(start), int(stop))
        for suffix, start, stop in zip(
          store.suffixes, store.starts, store.starts[1:], strict=False
        )
      ],
    )

  def _hash_frames(self, out: np.ndarray, advance: Advance) -> None:
    """Hashes the frames of all rows, in threads."""
    stopped = threading.Event()

    def hash_piece(piece: Any) -> None:
      for rows, frames in read(piece):
        if stopped.is_set():
          return
        out[rows] = hashed_rows.hash_rows(frames)
        advance(len(rows))

    pieces: Sequence[Any] = self._store.suffixes
    read: Callable[[Any], Iterator[_RowsAndFrames]] = self._read_shard
    if self.kind == 'store':
      step = 16 * _CHUNK_ROWS
      # A window of frames must not cross a gap between two shards.
      pieces = [
        range(first, min(first + step, int(stop)))
        for start, stop in itertools.pairwise(self._store.starts)
        for first in range(int(start), int(stop), step)
      ]
      read = self._read_packed
    threads.parallel_map(hash_piece, pieces, machine.num_cpus(), stopped.set)

  def _read_packed(self, piece: range) -> Iterator[_RowsAndFrames]:
    """Yields rows of a store and their frames."""
    for first in piece[::_CHUNK_ROWS]:
      rows = np.arange(first, min(first + _CHUNK_ROWS, piece.stop))
      yield rows, self._store.windows(rows[:1], len(rows))[0]

  def _read_shard(self, suffix: int) -> Iterator[_RowsAndFrames]:
    """Yields rows of a shard and their frames."""
    name = shard_files.file_name('observation', suffix)
    path = os.path.join(self._data_dir, name)
    for start, frames in shard_reader.iterate_rows(path):
      ring = np.arange(start, start + len(frames))
      rows = self._store.rows_of(np.full(len(ring), suffix), ring)
      kept = rows >= 0  # Not the stale ones.
      yield rows[kept], frames if kept.all() else frames[kept]

  def _position(self, row: int) -> dict[str, Any]:
    shard, ring = self._store.ring_of(np.array([row]))
    suffix = self._store.suffixes[int(shard[0])]
    return {'shard': suffix, 'ring_position': int(ring[0])}


class EpisodesCopy(Copy):
  """A dataset of episodes.

  Args:
    path: Path as given.
    reader: Reader of the dataset.
    last_step: Content of terminal steps, one of `episode_import.LAST_STEPS`.
  """

  unit = 'B'

  def __init__(
    self,
    path: str,
    reader: episode_import.EpisodeReader,
    last_step: str = 'auto',
  ):
    self.path, self.kind = path, reader.manifest['source']['format']
    self.game, self.run, self.is_atari = reader.game, reader.run, True
    self.frame_shape, self.frame_dtype = reader.frame_shape, np.dtype(np.uint8)
    self.total = sum(part.size for part in reader.parts)
    self._reader, self._last_step = reader, last_step
    self._records: list[tuple[int, int, int]] = []

  def read(self, with_frames: bool, advance: Advance) -> None:
    """See the base class."""
    reader, last_step = self._reader, self._last_step
    chosen = last_step != 'auto'
    last_step, _ = episode_import.choose_last_step(
      reader, last_step, reader.parts[0]
    )
    columns: list[tuple[np.ndarray, ...]] = []
    late, parts, self._records, rows = [], [], [], 0
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
      for number, part in enumerate(reader.parts):
        first_row, position = rows, 0
        episodes = reader.read(part, frames=with_frames)
        for record, episode in enumerate(episodes):
          advance(episode.position - position)
          position = episode.position
          n = episode.rows_kept(last_step, chosen)
          if not n:
            continue
          frame = np.zeros(n, np.uint64)
          if episode.frames is not None:
            self._hash_frames(episode.frames, frame, pool)
          terminal = np.zeros(n, bool)
          terminal[-1] = episode.terminal
          columns.append(
            (frame, episode.action[:n], episode.reward[:n], terminal)
          )
          late.append(not episode.begins_at_reset)
          self._records.append((rows, number, record))
          rows += n
        parts.append(
          hashed_rows.PartRows(part.number, part.name, first_row, rows)
        )
    if not rows:
      raise ValueError(f'{self.path} has no transitions.')
    frame, action, reward, terminal = map(
      np.concatenate, zip(*columns, strict=True)
    )
    begin = np.array([first for first, _, _ in self._records])
    stop = np.append(begin[1:], rows)
    if with_frames:
      begin[late] = self._skip_padding(
        begin[late], stop[late], manifests.PADDING, frame, action, reward
      )
    self.rows = hashed_rows.HashedRows(
      frame, action, reward, terminal, begin, stop, parts
    )

  def _hash_frames(
    self,
    frames: png_frames.PngFrames,
    out: np.ndarray,
    pool: concurrent.futures.ThreadPoolExecutor,
  ) -> None:
    """Decodes and hashes the first frames of an episode, `len(out)`."""

    def hash_chunk(start: int) -> None:
      stop = min(start + _CHUNK_ROWS, len(out))
      decoded = np.empty((stop - start, *self.frame_shape), np.uint8)
      frames.decode(start, stop, decoded)
      out[start:stop] = hashed_rows.hash_rows(decoded)

    list(pool.map(hash_chunk, range(0, len(out), _CHUNK_ROWS)))

  def _position(self, row: int) -> dict[str, Any]:
    starts = [start for start, _, _ in self._records]
    i = int(np.searchsorted(starts, row, side='right')) - 1
    _, number, record = self._records[i]
    part = self._reader.parts[number]
    return {'file': part.name, 'record': record}


def open_copy(
  path: str, last_step: str = 'auto', run_number: int | None = None
) -> Copy:
  """Opens a copy of a run.

  Args:
    path: Directory of a run or a store, or of a TFDS dataset; a folder of files of
      RL Unplugged, or one such file.
    last_step: Content of terminal steps of a dataset of episodes, one of
      `episode_import.LAST_STEPS`.
    run_number: Run to read, if a folder has files of RL Unplugged of several runs.

  Raises:
    ValueError: If the path holds no run, or several.
  """
  kind = source_formats.recognise(path)
  if kind == source_formats.RLDS:
    from batch_rl.dataset.interchange import rlds_import

    return EpisodesCopy(path, rlds_import.RldsReader(path), last_step)
  if kind == source_formats.UNPLUGGED:
    from batch_rl.dataset.unplugged import reader

    unplugged = reader.UnpluggedReader(path, run=run_number)
    return EpisodesCopy(path, unplugged, last_step)
  run = run_directories.as_run(path)
  if run is None:
    runs = run_directories.find_runs(path)
    raise ValueError(
      f'{path} is not a run; choose one in it, e.g. {runs[0].directory}.'
    )
  return LoggedCopy(run)
