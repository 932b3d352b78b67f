"""Finds what is wrong with the files of one shard (see `verification.py`)."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.checks import inspection
from batch_rl.dataset.shards import shard_files, shard_reader, stitching

# Errors: a file is damaged, missing or not of the format, rows are missing or
# there twice, a value cannot be right. Suspicious: it can be right, but hardly is.
LEVELS = ('error', 'suspicious', 'note')
_SMALL_COLUMNS = ('action', 'reward', 'terminal')
_ALE_ACTIONS = 18
# Rows without a terminal beyond the longest episode: its padding, and some more.
_EPISODE_MARGIN = 50
# Frames stand still if more than half of them equal the one before. In fewer
# pairs than this they may: games begin with a pause.
_FEWEST_FRAMES = 100
# The picture of a shard is the mean of every 64th frame, if that many were seen.
_PICTURE_STEP = 64
_PICTURE_FRAMES = 100


@dataclasses.dataclass(frozen=True)
class Finding:
  """Something that `verify` found.

  Attributes:
    level: one of `LEVELS`.
    file: the path it is about, a file or a directory.
    message: one line, which names the file.
  """

  level: str
  file: str
  message: str


@dataclasses.dataclass(frozen=True)
class Expected:
  """What the rows of a run should be like.

  Attributes:
    num_actions: of the game; None if there is no manifest to tell.
    padding: all-zero rows at the start of an episode.
    max_episode_steps: the longest an episode can be, in agent steps.
    observation: dtype (as `numpy.dtype.str`) and shape of one.
  """

  num_actions: int | None
  padding: int
  max_episode_steps: int
  observation: tuple[Any, tuple]


class ShardChecks:
  """The checks of one shard, each of its files read once.

  Call `read_counters`, then set `placement`, then call `check_columns`.

  Args:
    logs: the folder of the shards.
    suffix: the number of the shard.
    names: the names of the files that are in the folder.
    advance: called with numbers of bytes that were read.

  Attributes:
    suffix: the number of the shard.
    paths: by column or counter, of the files that are there.
    headers: by column, of those that can be read.
    hashes: sha256 of the files that were read to their end, by column or counter.
    add_count: the counter; None if it cannot be read.
    placement: which rows are the shard's own (`shard.Placement`); None if no
      column has rows.
    rows: its episodes; None if rewards or terminals cannot be read.
    picture: the mean frame, float64; None if there are too few.
    findings: so far.
  """

  def __init__(
    self,
    logs: str,
    suffix: int,
    names: Collection[str],
    advance: Callable[[int], None],
  ):
    self.suffix = suffix
    self.paths: dict[str, str] = {}
    self.headers: dict[str, shard_reader.Header] = {}
    self.hashes: dict[str, str] = {}
    self.add_count: int | None = None
    self.placement: stitching.Placement | None = None
    self.rows: inspection.Rows | None = None
    self.picture: np.ndarray | None = None
    self.findings: list[Finding] = []
    self._advance = advance
    for name in shard_files.FILES:
      path = os.path.join(logs, shard_files.file_name(name, suffix))
      if shard_files.file_name(name, suffix) in names:
        self.paths[name] = path
      else:
        self.findings.append(Finding('error', path, f'{path} is missing.'))

  def read_counters(self) -> None:
    """Reads `add_count` and the headers of the columns."""
    count = self._read('add_count')
    if count is not None:
      path = self.paths['add_count']
      self.add_count = self._refused(
        path, shard_reader.check_add_count, path, count
      )
    for name in shard_files.COLUMNS:
      if name in self.paths:
        path = self.paths[name]
        header = self._refused(path, shard_reader.read_header, path)
        if header is not None:
          self.headers[name] = header

  def check_columns(self, expected: Expected) -> None:
    """Reads all other files."""
    self._check_invalid_range()
    live = {}
    for name in _SMALL_COLUMNS:
      array = self._read(name) if self._is_of_format(name, expected) else None
      if array is not None and self.placement is not None:
        live[name] = inspection.in_time_order(array, self.placement)
    if 'action' in live:
      self._check_actions(live['action'], expected.num_actions)
    if 'reward' in live:
      self._check_rewards(live['reward'])
    if 'terminal' in live:
      self._check_terminals(live['terminal'], expected.max_episode_steps)
    if 'terminal' in live and 'reward' in live:
      self.rows = inspection.split(live['reward'], live['terminal'])
    if self._is_of_format('observation', expected):
      self._check_frames(live, expected.padding)

  def _add(self, level: str, name: str, what: str) -> None:
    path = self.paths[name]
    self.findings.append(Finding(level, path, f'{path} {what}.'))

  def _refused(self, path: str, function, *args, **kwargs) -> Any:
    """What a function returns; if it raises ValueError, None and a finding."""
    try:
      return function(*args, **kwargs)
    except ValueError as error:
      self.findings.append(Finding('error', path, str(error)))
      return None

  def _read(self, name: str) -> np.ndarray | None:
    """Reads a small file; None, and a finding, if it cannot."""
    path = self.paths.get(name)
    if path is None:
      return None
    meter = _Meter(self._advance)
    array = self._refused(path, shard_reader.read_array, path, digest=meter)
    if array is not None:
      self.hashes[name] = meter.hexdigest()
    return array

  def _is_of_format(self, name: str, expected: Expected) -> bool:
    """Whether a column is there and its header is as it should be."""
    header, placement = self.headers.get(name), self.placement
    if header is None:
      return False
    before = len(self.findings)
    path, shape = self.paths[name], header.shape if header.ndim else ()
    length = shape[0] if shape else 1
    self._refused(
      path, shard_reader.check_column, path, name, shape, header.dtype, length
    )
    if len(self.findings) > before:
      return False
    capacity = placement.capacity if placement else 0
    if length != capacity:
      self._add('error', name, f'has {length} rows, the shard has {capacity}')
    elif name == 'observation':
      self._check_kind(header, expected.observation)
    return len(self.findings) == before

  def _check_kind(
    self, header: shard_reader.Header, expected: tuple[Any, tuple]
  ) -> None:
    dtype, shape = header.dtype, header.shape[1:]
    kind = f'{dtype.str} {shape}'
    if (dtype.str, shape) != expected:
      self._add(
        'error',
        'observation',
        f'holds observations of {kind}, the run has {expected[0]} {expected[1]}',
      )
    elif not np.prod(shape, dtype=np.int64):
      self._add('error', 'observation', f'holds empty observations, {kind}')
    elif len(shape) > 1 and dtype != np.uint8:
      self._add(
        'error', 'observation', f'holds frames of {dtype}, not of uint8'
      )

  def _check_invalid_range(self) -> None:
    """It has the ring positions around the cursor, one after the other."""
    values = self._read('invalid_range')
    if values is None or self.placement is None:
      return
    capacity = self.placement.capacity
    cursor = None if self.add_count is None else self.add_count % capacity
    shown = values.ravel()[:8].tolist()
    wrong = None
    if values.ndim != 1 or values.dtype.kind not in 'iu' or not values.size:
      wrong = f'holds {values.dtype} {values.shape}, not ring positions'
    elif ((values < 0) | (values >= capacity)).any():
      wrong = f'holds {shown}, which are not all in the ring'
    elif (np.mod(np.diff(values.astype(np.int64)), capacity) != 1).any():
      wrong = f'holds {shown}, which do not follow one another'
    elif cursor is not None and cursor not in values:
      wrong = f'holds {shown}, but the cursor is at {cursor} (see add_count)'
    if wrong:
      self._add('error', 'invalid_range', wrong)

  def _check_actions(self, action: np.ndarray, known: int | None) -> None:
    limit = _ALE_ACTIONS if known is None else known
    wrong = action[(action < 0) | (action >= limit)]
    if len(wrong):
      who = 'the ALE' if known is None else 'the game'
      self._add(
        'error',
        'action',
        f'has action {wrong[0]}, but {who} has {limit} (wrong in '
        f'{len(wrong):,} rows)',
      )

  def _check_rewards(self, reward: np.ndarray) -> None:
    wrong = reward[~np.isfinite(reward)]
    if len(wrong):
      self._add(
        'error',
        'reward',
        f'has reward {wrong[0]} (not finite in {len(wrong):,} rows)',
      )
    elif len(reward) and np.abs(reward).max() > 1:
      self._add(
        'note',
        'reward',
        f'has rewards from {reward.min():g} to {reward.max():g}; those of the '
        'DQN Replay Dataset are clipped to [-1, 1]',
      )

  def _check_terminals(self, terminal: np.ndarray, max_steps: int) -> None:
    wrong = terminal[terminal > 1]
    if len(wrong):
      self._add(
        'error',
        'terminal',
        f'has terminal {wrong[0]}, not 0 or 1 (wrong in {len(wrong):,} rows)',
      )
    ends = np.flatnonzero(terminal)
    gaps = np.diff(np.concatenate([[-1], ends, [len(terminal)]])) - 1
    if gaps.max() >= max_steps + _EPISODE_MARGIN:
      self._add(
        'suspicious',
        'terminal',
        f'has {gaps.max():,} rows on end without a terminal ({len(ends):,} in '
        f'all), but an episode has at most {max_steps:,} steps',
      )

  def _check_frames(self, live: Mapping[str, np.ndarray], padding: int) -> None:
    path, placement = self.paths['observation'], self.placement
    assert placement is not None
    meter, scan = _Meter(self._advance), _FrameScan(placement)
    if not self._refused(path, scan.read, path, meter):
      return
    self.hashes['observation'] = meter.hexdigest()
    self.picture = scan.picture()
    zero = inspection.in_time_order(scan.zero, placement)
    same = inspection.in_time_order(scan.same, placement)
    self._check_movement(zero, same)
    self._check_padding(zero, live, padding)

  def _check_movement(self, zero: np.ndarray, same: np.ndarray) -> None:
    """Whether frames change; padding rows, all zero, do not count."""
    if len(same) < _FEWEST_FRAMES:
      return
    pairs = ~zero[1:] & ~zero[:-1]
    still, count = int((same[1:] & pairs).sum()), int(pairs.sum())
    if same[1:].all():
      self._add(
        'suspicious', 'observation', f'has {len(same):,} times the same frame'
      )
    elif count >= _FEWEST_FRAMES and still > count / 2:
      self._add(
        'suspicious',
        'observation',
        f'hardly moves: {still:,} of {count:,} frames equal the one before',
      )

  def _check_padding(
    self, zero: np.ndarray, live: Mapping[str, np.ndarray], padding: int
  ) -> None:
    """Whether each episode that begins here begins with padding rows."""
    if 'terminal' not in live or padding < 1:
      return
    empty = zero.copy()
    for values in live.values():
      empty &= values == 0
    starts = np.flatnonzero(live['terminal']) + 1
    assert self.placement is not None
    if self.suffix == 0 and self.placement.start == 0:
      starts = np.concatenate([[0], starts])
    starts = starts[starts + padding <= len(empty)]
    padded = empty[starts[:, None] + np.arange(padding)].all(axis=1)
    if not padded.all():
      self._add(
        'suspicious',
        'observation',
        f'has {int((~padded).sum()):,} of {len(starts):,} episodes begin with '
        f'fewer than {padding} padding rows (all zero)',
      )


class _FrameScan:
  """What a stream of frames shows.

  Args:
    placement: of the shard.

  Attributes:
    zero: bool (capacity,), whether all of a frame is zero.
    same: bool (capacity,), whether it equals the one before it in the ring.
  """

  def __init__(self, placement: stitching.Placement):
    capacity = placement.capacity
    self.zero = np.zeros(capacity, bool)
    self.same = np.zeros(capacity, bool)
    self._live = (
      np.arange(capacity) - placement.start
    ) % capacity < placement.rows
    self._sum: Any = 0
    self._frames = 0

  def read(self, path: str, digest: Any) -> bool:
    """Reads a file, a chunk at a time; returns True.

    Raises:
      ValueError: if it is damaged.
    """
    first: Any = None
    before: Any = None
    for start, chunk in shard_reader.iterate_rows(path, digest=digest):
      words = _as_words(chunk)
      stop = start + len(chunk)
      self.zero[start:stop] = words.max(axis=1) == 0
      self.same[start] = before is not None and (words[0] == before).all()
      self.same[start + 1 : stop] = (words[1:] == words[:-1]).all(axis=1)
      first = words[0].copy() if first is None else first
      before = words[-1].copy()
      if chunk.dtype == np.uint8 and chunk.ndim > 2:
        self._add_to_picture(start, chunk)
    # In time, the last row of the ring comes before the first.
    self.same[0] = first is not None and np.array_equal(first, before)
    return True

  def _add_to_picture(self, start: int, chunk: np.ndarray) -> None:
    step = slice(-start % _PICTURE_STEP, None, _PICTURE_STEP)
    chosen = chunk[step][self._live[start : start + len(chunk)][step]]
    self._sum = self._sum + chosen.sum(axis=0, dtype=np.float64)
    self._frames += len(chosen)

  def picture(self) -> np.ndarray | None:
    """The mean frame, float64; None if there are too few."""
    return self._sum / self._frames if self._frames >= _PICTURE_FRAMES else None


def _as_words(chunk: np.ndarray) -> np.ndarray:
  """Rows as wide unsigned words, where they divide evenly: (n, words)."""
  as_bytes = chunk.reshape(len(chunk), -1).view(np.uint8)
  return as_bytes.view(np.uint64) if as_bytes.shape[1] % 8 == 0 else as_bytes


class _Meter:
  """A digest of a file that also counts its bytes."""

  def __init__(self, advance: Callable[[int], None]):
    self._advance = advance
    self._digest = hashlib.sha256()

  def update(self, data: bytes) -> None:
    self._digest.update(data)
    self._advance(len(data))

  def hexdigest(self) -> str:
    return self._digest.hexdigest()
