"""Checks of the files of one shard; `run_checks` checks the run as a whole."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.checks import run_statistics
from batch_rl.dataset.shards import shard_files, shard_reader, stitching

# error: a file is damaged, missing or of another format, rows are missing or repeated,
# or a value is impossible. suspicious: possible, but unlikely in intact data.
LEVELS = ('error', 'suspicious', 'note')
_ALE_ACTIONS = 18
# Allowed excess of rows without a terminal over the longest episode, e.g. padding.
_EPISODE_MARGIN = 50
# Fewer equal frames are not suspicious: games begin with a still image.
_FEWEST_FRAMES = 100


@dataclasses.dataclass(frozen=True)
class Finding:
  """A problem or remark about a run.

  Attributes:
    level: One of `LEVELS`.
    file: Path of the file or directory concerned.
    message: One line that names the file.
  """

  level: str
  file: str
  message: str


@dataclasses.dataclass(frozen=True)
class Expected:
  """Properties that all shards of a run should have.

  Attributes:
    num_actions: Number of actions of the game; None if the manifest lacks it.
    padding: Number of all-zero rows at the start of an episode.
    max_episode_steps: Longest possible episode, in agent steps; None if unknown.
    observation: Dtype (as `numpy.dtype.str`) and shape of an observation.
    is_atari: Whether the run is of an Atari game. Other environments may have more
      actions, still observations, larger rewards and frames of any dtype.
  """

  num_actions: int | None
  padding: int
  max_episode_steps: int | None
  observation: tuple[Any, tuple]
  is_atari: bool


class ShardChecks:
  """Checks of one shard that read each of its files once.

  Call `read_counters`, then set `placement`, then call `check_columns`.

  Args:
    data_dir: Directory of the shards.
    suffix: Number of the shard.
    names: Names of the files in the directory.
    advance: Callback that receives the number of bytes read since its last call.

  Attributes:
    suffix: Number of the shard.
    paths: Paths of the existing files, by column or counter.
    headers: Headers of the readable columns, by column.
    hashes: SHA-256 of the files that were read completely, by column or counter.
    add_count: Value of the counter; None if it cannot be read.
    placement: Rows that the shard adds to the run; None if no column has rows.
    segment_returns: Sum of the rewards up to each terminal and, last, after the last
      one: float64 (terminals + 1,). None if rewards or terminals cannot be read.
    findings: Findings so far.
  """

  def __init__(
    self,
    data_dir: str,
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
    self.segment_returns: np.ndarray | None = None
    self.findings: list[Finding] = []
    self._advance = advance
    for name in shard_files.FILES:
      path = os.path.join(data_dir, shard_files.file_name(name, suffix))
      if shard_files.file_name(name, suffix) in names:
        self.paths[name] = path
      else:
        self.findings.append(Finding('error', path, f'{path} is missing.'))

  @property
  def begins_log(self) -> bool:
    """Whether the first row of the shard is the first one of the log."""
    placement = self.placement
    return self.suffix == 0 and placement is not None and placement.start == 0

  def read_counters(self) -> None:
    """Reads `add_count` and the headers of the columns."""
    count = self._read('add_count')
    if count is not None:
      self.add_count = int(count)
    for name in shard_files.COLUMNS:
      if name in self.paths:
        with self._reporting(name) as path:
          self.headers[name] = shard_reader.read_header(path)

  def check_columns(self, expected: Expected) -> None:
    """Reads and checks all other files."""
    positions = self._read('invalid_range')
    if positions is not None:
      self._check_invalid_range(positions)
    live = {}
    for name in ('action', 'reward', 'terminal'):
      if self._has_valid_header(name, expected):
        array = self._read(name)
        if array is not None and self.placement is not None:
          live[name] = stitching.in_time_order(array, self.placement)
    if 'action' in live:
      self._check_actions(live['action'], expected)
    if 'reward' in live:
      self._check_rewards(live['reward'], expected.is_atari)
    if 'terminal' in live:
      self._check_terminals(live['terminal'], expected.max_episode_steps)
    if 'terminal' in live and 'reward' in live:
      ends = live['terminal'] != 0
      self.segment_returns = np.bincount(
        np.cumsum(ends) - ends, live['reward'], int(ends.sum()) + 1
      )
    if self._has_valid_header('observation', expected):
      self._check_frames(live, expected)

  def _add(self, level: str, name: str, problem: str) -> None:
    path = self.paths[name]
    self.findings.append(Finding(level, path, f'{path} {problem}.'))

  @contextlib.contextmanager
  def _reporting(self, name: str) -> Iterator[str]:
    """Yields the path of a file, and turns its error into a finding."""
    path = self.paths[name]
    try:
      yield path
    except (ValueError, shard_reader.ReadError) as error:
      self.findings.append(Finding('error', path, str(error)))

  def _read(self, name: str) -> np.ndarray | None:
    """Reads a small file; returns None and adds a finding if that fails."""
    if name not in self.paths:
      return None
    with self._reporting(name) as path:
      meter = _Meter(self._advance)
      array = shard_reader.read_array(path, digest=meter)
      self.hashes[name] = meter.hexdigest()
      return array
    return None

  def _has_valid_header(self, name: str, expected: Expected) -> bool:
    """Returns whether a column exists and has the expected dtype and shape."""
    header = self.headers.get(name)
    if header is None:
      return False
    capacity = self.placement.capacity if self.placement else 0
    with self._reporting(name) as path:
      if header.rows != capacity:
        raise ValueError(
          f'{path} has {header.rows} rows, the shard has {capacity}.'
        )
      if name == 'observation':
        _check_observations(path, header.dtype, header.shape[1:], expected)
      return True
    return False

  def _check_invalid_range(self, positions: np.ndarray) -> None:
    """Checks that the range is consecutive ring positions around the cursor."""
    if self.placement is None:
      return
    capacity, count = self.placement.capacity, self.add_count
    is_range = (
      positions.ndim == 1
      and positions.dtype.kind in 'iu'
      and positions.size > 0
      and ((positions >= 0) & (positions < capacity)).all()
      and (np.mod(np.diff(positions.astype(np.int64)), capacity) == 1).all()
      and (count is None or count % capacity in positions)
    )
    if not is_range:
      shown = positions.ravel()[:8].tolist()
      cursor = (
        '' if count is None else f' around the cursor, {count % capacity}'
      )
      self._add(
        'error',
        'invalid_range',
        f'holds {positions.dtype} {positions.shape} {shown}, not consecutive '
        f'positions of a ring of {capacity} rows{cursor}',
      )

  def _check_values(
    self, name: str, values: np.ndarray, is_wrong: np.ndarray, reason: str
  ) -> None:
    wrong = values[is_wrong]
    if len(wrong):
      self._add(
        'error',
        name,
        f'has {name} {wrong[0]}, {reason} (wrong in {len(wrong):,} rows)',
      )

  def _check_actions(self, action: np.ndarray, expected: Expected) -> None:
    limit, owner = run_statistics.MAX_ACTIONS, 'no environment'
    if expected.num_actions is not None:
      limit, owner = expected.num_actions, 'the game'
    elif expected.is_atari:
      limit, owner = _ALE_ACTIONS, 'the ALE'
    is_wrong = (action < 0) | (action >= limit)
    self._check_values('action', action, is_wrong, f'but {owner} has {limit}')

  def _check_rewards(self, reward: np.ndarray, is_atari: bool) -> None:
    finite = np.isfinite(reward)
    self._check_values('reward', reward, ~finite, 'which is not finite')
    if is_atari and finite.all() and np.abs(reward).max(initial=0) > 1:
      self._add(
        'note',
        'reward',
        f'has rewards from {reward.min():g} to {reward.max():g}; those of the '
        'DQN Replay Dataset are clipped to [-1, 1]',
      )

  def _check_terminals(
    self, terminal: np.ndarray, max_steps: int | None
  ) -> None:
    self._check_values('terminal', terminal, terminal > 1, 'not 0 or 1')
    ends = np.flatnonzero(terminal)
    gaps = np.diff(np.concatenate([[-1], ends, [len(terminal)]])) - 1
    if max_steps is not None and gaps.max() >= max_steps + _EPISODE_MARGIN:
      self._add(
        'suspicious',
        'terminal',
        f'has {gaps.max():,} consecutive rows without a terminal '
        f'({len(ends):,} terminals in all), but an episode has at most '
        f'{max_steps:,} steps',
      )

  def _check_frames(
    self, live: Mapping[str, np.ndarray], expected: Expected
  ) -> None:
    """Reads the frames, and finds equal ones and missing padding."""
    placement = self.placement
    if placement is None:
      return
    ring = np.arange(placement.capacity)
    is_live = (ring - placement.start) % placement.capacity < placement.rows
    zero = np.zeros(placement.capacity, bool)
    first, constant = None, True
    meter = _Meter(self._advance)
    with self._reporting('observation') as path:
      for start, chunk in shard_reader.iterate_rows(path, digest=meter):
        rows = slice(start, start + len(chunk))
        values = _as_words(chunk)
        zero[rows] = values.max(axis=1) == 0
        if first is None and is_live[rows].any():
          first = values[is_live[rows].argmax()].copy()
        if constant and first is not None:
          equal = (values == first).all(axis=1)
          constant = bool((equal | ~is_live[rows]).all())
      self.hashes['observation'] = meter.hexdigest()
      if constant and placement.rows >= _FEWEST_FRAMES:
        self._add(
          'suspicious' if expected.is_atari else 'note',
          'observation',
          f'has the same frame in all {placement.rows:,} rows',
        )
      zero = stitching.in_time_order(zero, placement)
      self._check_padding(zero, live, expected.padding)

  def _check_padding(
    self, zero: np.ndarray, live: Mapping[str, np.ndarray], padding: int
  ) -> None:
    """Checks that episodes that begin in the shard begin with padding rows."""
    if 'terminal' not in live or padding < 1:
      return
    for values in live.values():
      zero = zero & (values == 0)
    starts = np.flatnonzero(live['terminal']) + 1
    if self.begins_log:
      starts = np.concatenate([[0], starts])
    starts = starts[starts + padding <= len(zero)]
    padded = zero[starts[:, None] + np.arange(padding)].all(axis=1)
    if not padded.all():
      self._add(
        'suspicious',
        'observation',
        f'has fewer than {padding} padding rows (all zero) at the start of '
        f'{int((~padded).sum()):,} of {len(starts):,} episodes',
      )


def _check_observations(
  path: str, dtype: np.dtype, shape: tuple[int, ...], expected: Expected
) -> None:
  """Raises a ValueError if a shard's observations are not those of the run."""
  if (dtype.str, shape) != expected.observation:
    of_run = ' '.join(map(str, expected.observation))
    raise ValueError(
      f'{path} holds observations of {dtype.str} {shape}, the run has {of_run}.'
    )
  if 0 in shape:
    raise ValueError(f'{path} holds empty observations, {dtype.str} {shape}.')
  if expected.is_atari and len(shape) > 1 and dtype != np.uint8:
    raise ValueError(f'{path} holds frames of {dtype}, not of uint8.')


def _as_words(chunk: np.ndarray) -> np.ndarray:
  """Returns rows as 64-bit words if their size allows, or as bytes: (n, words)."""
  as_bytes = chunk.reshape(len(chunk), -1).view(np.uint8)
  return as_bytes.view(np.uint64) if as_bytes.shape[1] % 8 == 0 else as_bytes


class _Meter:
  """SHA-256 digest that reports the number of bytes it receives."""

  def __init__(self, advance: Callable[[int], None]):
    self._advance = advance
    self._digest = hashlib.sha256()

  def update(self, data: bytes) -> None:
    self._digest.update(data)
    self._advance(len(data))

  def hexdigest(self) -> str:
    return self._digest.hexdigest()
