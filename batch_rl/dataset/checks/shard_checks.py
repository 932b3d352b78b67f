"""Checks of the files of one shard; `run_checks` checks the run as a whole."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import numpy as np

from batch_rl.dataset.checks import episode_table, run_statistics
from batch_rl.dataset.shards import shard_files, shard_reader, stitching

# error: a file is damaged, missing or of another format, rows are missing or repeated,
# or a value is impossible. suspicious: possible, but unlikely in intact data.
LEVELS = ('error', 'suspicious', 'note')
_SMALL_COLUMNS = ('action', 'reward', 'terminal')
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
    segments: Episode segments of the shard; None if rewards or terminals cannot be
      read.
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
    self.segments: episode_table.Segments | None = None
    self.findings: list[Finding] = []
    self._advance = advance
    for name in shard_files.FILES:
      path = os.path.join(data_dir, shard_files.file_name(name, suffix))
      if shard_files.file_name(name, suffix) in names:
        self.paths[name] = path
      else:
        self.findings.append(Finding('error', path, f'{path} is missing.'))

  def read_counters(self) -> None:
    """Reads `add_count` and the headers of the columns."""
    count = self._read('add_count')
    if count is not None:
      path = self.paths['add_count']
      self.add_count = self._call(
        path, shard_reader.check_add_count, path, count
      )
    for name in shard_files.COLUMNS:
      if name in self.paths:
        path = self.paths[name]
        header = self._call(path, shard_reader.read_header, path)
        if header is not None:
          self.headers[name] = header

  def check_columns(self, expected: Expected) -> None:
    """Reads and checks all other files."""
    self._check_invalid_range()
    live = {}
    for name in _SMALL_COLUMNS:
      array = (
        self._read(name) if self._has_valid_header(name, expected) else None
      )
      if array is not None and self.placement is not None:
        live[name] = stitching.in_time_order(array, self.placement)
    if 'action' in live:
      self._check_actions(live['action'], expected)
    if 'reward' in live:
      self._check_rewards(live['reward'], expected.is_atari)
    if 'terminal' in live:
      self._check_terminals(live['terminal'], expected.max_episode_steps)
    if 'terminal' in live and 'reward' in live:
      self.segments = episode_table.split_shard(
        live['reward'], live['terminal']
      )
    if self._has_valid_header('observation', expected):
      self._check_frames(live, expected)

  def _add(self, level: str, name: str, problem: str) -> None:
    path = self.paths[name]
    self.findings.append(Finding(level, path, f'{path} {problem}.'))

  def _call(self, path: str, function, *args, **kwargs) -> Any:
    """Calls a function; turns its error into a finding and returns None."""
    try:
      return function(*args, **kwargs)
    except (ValueError, shard_reader.ReadError) as error:
      self.findings.append(Finding('error', path, str(error)))
      return None

  def _read(self, name: str) -> np.ndarray | None:
    """Reads a small file; returns None and adds a finding if that fails."""
    path = self.paths.get(name)
    if path is None:
      return None
    meter = _Meter(self._advance)
    array = self._call(path, shard_reader.read_array, path, digest=meter)
    if array is not None:
      self.hashes[name] = meter.hexdigest()
    return array

  def _has_valid_header(self, name: str, expected: Expected) -> bool:
    """Returns whether a column exists and has the expected dtype and shape."""
    header, placement = self.headers.get(name), self.placement
    if header is None:
      return False
    before = len(self.findings)
    path, shape = self.paths[name], header.shape if header.ndim else ()
    length = shape[0] if shape else 1
    self._call(
      path, shard_reader.check_column, path, name, shape, header.dtype, length
    )
    if len(self.findings) > before:
      return False
    capacity = placement.capacity if placement else 0
    if length != capacity:
      self._add('error', name, f'has {length} rows, the shard has {capacity}')
    elif name == 'observation':
      self._check_observation_type(header, expected)
    return len(self.findings) == before

  def _check_observation_type(
    self, header: shard_reader.Header, expected: Expected
  ) -> None:
    dtype, shape = header.dtype, header.shape[1:]
    described = f'{dtype.str} {shape}'
    if (dtype.str, shape) != expected.observation:
      of_run = ' '.join(map(str, expected.observation))
      self._add(
        'error',
        'observation',
        f'holds observations of {described}, the run has {of_run}',
      )
    elif not np.prod(shape, dtype=np.int64):
      self._add(
        'error', 'observation', f'holds empty observations, {described}'
      )
    elif expected.is_atari and len(shape) > 1 and dtype != np.uint8:
      self._add(
        'error', 'observation', f'holds frames of {dtype}, not of uint8'
      )

  def _check_invalid_range(self) -> None:
    """Checks that the range is consecutive ring positions around the cursor."""
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
      wrong = f'holds {shown}, but the ring has positions 0 to {capacity - 1}'
    elif (np.mod(np.diff(values.astype(np.int64)), capacity) != 1).any():
      wrong = f'holds {shown}, which are not consecutive'
    elif cursor is not None and cursor not in values:
      wrong = f'holds {shown}, but the cursor is at {cursor} (see add_count)'
    if wrong:
      self._add('error', 'invalid_range', wrong)

  def _check_actions(self, action: np.ndarray, expected: Expected) -> None:
    limit, owner = expected.num_actions, 'the game'
    if limit is None:
      limit, owner = (
        (_ALE_ACTIONS, 'the ALE')
        if expected.is_atari
        else (run_statistics.MAX_ACTIONS, 'no environment')
      )
    wrong = action[(action < 0) | (action >= limit)]
    if len(wrong):
      self._add(
        'error',
        'action',
        f'has action {wrong[0]}, but {owner} has {limit} (wrong in '
        f'{len(wrong):,} rows)',
      )

  def _check_rewards(self, reward: np.ndarray, is_atari: bool) -> None:
    wrong = reward[~np.isfinite(reward)]
    if len(wrong):
      self._add(
        'error',
        'reward',
        f'has reward {wrong[0]} (not finite in {len(wrong):,} rows)',
      )
    elif is_atari and len(reward) and np.abs(reward).max() > 1:
      self._add(
        'note',
        'reward',
        f'has rewards from {reward.min():g} to {reward.max():g}; those of the '
        'DQN Replay Dataset are clipped to [-1, 1]',
      )

  def _check_terminals(
    self, terminal: np.ndarray, max_steps: int | None
  ) -> None:
    wrong = terminal[terminal > 1]
    if len(wrong):
      self._add(
        'error',
        'terminal',
        f'has terminal {wrong[0]}, not 0 or 1 (wrong in {len(wrong):,} rows)',
      )
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
    path = self.paths['observation']
    placement = cast(stitching.Placement, self.placement)
    meter, scan = _Meter(self._advance), _FrameScan(placement)
    if not self._call(path, scan.read, path, meter):
      return
    self.hashes['observation'] = meter.hexdigest()
    zero = stitching.in_time_order(scan.zero, placement)
    if scan.constant and len(zero) >= _FEWEST_FRAMES:
      self._add(
        'suspicious' if expected.is_atari else 'note',
        'observation',
        f'has the same frame in all {len(zero):,} rows',
      )
    self._check_padding(zero, live, expected.padding)

  def _check_padding(
    self, zero: np.ndarray, live: Mapping[str, np.ndarray], padding: int
  ) -> None:
    """Checks that episodes that begin in the shard begin with padding rows."""
    if 'terminal' not in live or padding < 1:
      return
    empty = zero.copy()
    for values in live.values():
      empty &= values == 0
    starts = np.flatnonzero(live['terminal']) + 1
    placement = cast(stitching.Placement, self.placement)
    if self.suffix == 0 and placement.start == 0:
      starts = np.concatenate([[0], starts])
    starts = starts[starts + padding <= len(empty)]
    padded = empty[starts[:, None] + np.arange(padding)].all(axis=1)
    if not padded.all():
      self._add(
        'suspicious',
        'observation',
        f'has fewer than {padding} padding rows (all zero) at the start of '
        f'{int((~padded).sum()):,} of {len(starts):,} episodes',
      )


class _FrameScan:
  """Properties of a shard's frames, computed from a stream.

  Args:
    placement: Placement of the shard.

  Attributes:
    zero: bool (capacity,), whether a frame is all zero, by ring position.
    constant: Whether all frames are equal, apart from those of stale rows.
  """

  def __init__(self, placement: stitching.Placement):
    capacity = placement.capacity
    self.zero = np.zeros(capacity, bool)
    self.constant = True
    self._live = (
      np.arange(capacity) - placement.start
    ) % capacity < placement.rows

  def read(self, path: str, digest: Any) -> bool:
    """Reads a file in chunks; returns True.

    Raises:
      ValueError: If the file is damaged.
    """
    first: Any = None
    for start, chunk in shard_reader.iterate_rows(path, digest=digest):
      words = _as_words(chunk)
      self.zero[start : start + len(chunk)] = words.max(axis=1) == 0
      live = self._live[start : start + len(chunk)]
      if first is None and live.any():
        first = words[live.argmax()].copy()
      if self.constant and first is not None:
        equal = (words == first).all(axis=1)
        self.constant = bool((equal | ~live).all())
    return True


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
