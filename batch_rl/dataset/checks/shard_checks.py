"""Checks of the files of one shard; `run_checks` checks the run as a whole."""

import contextlib
import hashlib
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.utils import row_hashes

# error: a file is damaged, missing or of another format, rows are missing or repeated,
# or a value is impossible. suspicious: possible, but unlikely in intact data.
LEVELS = ('error', 'suspicious', 'note')
# Allowed excess of rows without a terminal over the longest episode, e.g. padding.
_EPISODE_MARGIN = 50
# Fewer equal frames are not suspicious: games begin with a still image.
_FEWEST_FRAMES = 100


class Finding(NamedTuple):
  """A problem or remark about a run.

  Attributes:
    level: One of `LEVELS`.
    file: Path of the file or directory concerned.
    message: One line that names the file.
  """

  level: str
  file: str
  message: str


class Expected(NamedTuple):
  """Properties that all shards of a run should have.

  Attributes:
    num_actions: Number of actions.
    padding: Number of all-zero rows at the start of an episode.
    max_episode_steps: Longest possible episode, in agent steps; None if unknown.
    observation: Dtype and shape of an observation; None if no header is readable.
    is_atari: Whether the run is of an Atari game. Other environments may have still
      observations, larger rewards and frames of any dtype.
  """

  num_actions: int
  padding: int
  max_episode_steps: int | None
  observation: tuple[np.dtype, tuple[int, ...]] | None
  is_atari: bool


class ShardChecks:
  """Checks of one shard that read each of its files once.

  Call `read_counters`, then set `capacity` and `placement`, then call
  `check_columns`.

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
    capacity: Number of rows that each column should have.
    placement: Rows that the shard adds to the run; None if they are not known. Their
      values are not checked then.
    episodes: Number of terminals; None if they cannot be read.
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
    self.capacity = 0
    self.placement: stitching.Placement | None = None
    self.episodes: int | None = None
    self.findings: list[Finding] = []
    self._advance = advance
    for name in shard_files.FILES:
      path = shard_files.path(data_dir, name, suffix)
      if shard_files.file_name(name, suffix) in names:
        self.paths[name] = path
      else:
        self.findings.append(Finding('error', path, f'{path} is missing.'))

  def read_counters(self) -> None:
    """Reads `add_count` and the headers of the columns."""
    for name, path in self.paths.items():
      with self._reporting(path):
        if name == 'add_count':
          self.add_count = int(self._read(name))
        elif name in shard_files.COLUMNS:
          self.headers[name] = shard_reader.read_header(path)

  def check_columns(self, expected: Expected) -> None:
    """Reads and checks all other files."""
    rows: dict[str, np.ndarray] = {}
    for name, path in self.paths.items():
      if name != 'invalid_range' and name not in self.headers:
        continue  # `read_counters` has read it, or found its damage.
      with self._reporting(path):
        if name in self.headers:
          self._check_header(name, expected)
        values = self._read(name)
        if self.placement and name == 'invalid_range':
          self._check_invalid_range(values)
        if self.placement and name in self.headers:
          rows[name] = stitching.in_time_order(values, self.placement)
    for wrong in find_wrong_values(rows, expected):
      self._add(*wrong)
    if 'terminal' in rows:
      self.episodes = int(np.count_nonzero(rows['terminal']))
      self._check_lengths(rows['terminal'], expected.max_episode_steps)
    if 'observation' in rows:
      self._check_frames(rows, expected)

  def _add(self, level: str, name: str, problem: str) -> None:
    path = self.paths[name]
    self.findings.append(Finding(level, path, f'{path} {problem}.'))

  @contextlib.contextmanager
  def _reporting(self, path: str) -> Iterator[None]:
    """Turns an error of a file into a finding."""
    try:
      yield
    except (ValueError, shard_reader.ReadError) as error:
      self.findings.append(Finding('error', path, str(error)))

  def _read(self, name: str) -> np.ndarray:
    """Returns the rows of a file; of observations, the hash of each row."""
    path, content = self.paths[name], hashlib.sha256()

    def update(data: bytes) -> None:
      content.update(data)
      self._advance(len(data))

    digest = types.SimpleNamespace(update=update)
    if name == 'observation':
      chunks = shard_reader.iterate_rows(path, digest=digest)
      hashes = [row_hashes.hash_rows(frames) for _, frames in chunks]
      values = np.concatenate(hashes)
    else:
      values = shard_reader.read_array(path, digest=digest)
    self.hashes[name] = content.hexdigest()
    return values

  def _check_invalid_range(self, positions: np.ndarray) -> None:
    """Checks that positions are consecutive, and around the cursor."""
    capacity, count = self.capacity, self.add_count or 0
    is_range = (
      positions.ndim == 1
      and positions.dtype.kind in 'iu'
      and ((positions >= 0) & (positions < capacity)).all()
      and (np.mod(np.diff(positions.astype(np.int64)), capacity) == 1).all()
      and count % capacity in positions
    )
    if not is_range:
      self._add(
        'error',
        'invalid_range',
        f'holds {positions.dtype} {positions.ravel()[:8].tolist()}, not consecutive '
        f'positions of a ring of {capacity} rows around the cursor, {count % capacity}',
      )

  def _check_header(self, name: str, expected: Expected) -> None:
    """Raises a ValueError if a column does not have the expected dtype and shape."""
    header, path = self.headers[name], self.paths[name]
    shape, dtype = header.shape, header.dtype
    if header.rows != self.capacity:
      raise ValueError(
        f'{path} has {header.rows} rows, the shard has {self.capacity}.'
      )
    if name != 'observation':
      return
    held = f'{path} holds observations of {dtype} {shape[1:]}'
    if expected.observation and expected.observation != (dtype, shape[1:]):
      raise ValueError(
        f'{held}, the run has {" ".join(map(str, expected.observation))}.'
      )
    if 0 in shape:
      raise ValueError(f'{held}, which are empty.')
    if expected.is_atari and len(shape) > 2 and dtype != np.uint8:
      raise ValueError(f'{held}, but frames of Atari are uint8.')

  def _check_lengths(self, terminal: np.ndarray, max_steps: int | None) -> None:
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
    self, rows: Mapping[str, np.ndarray], expected: Expected
  ) -> None:
    """Finds equal frames, and episodes without padding."""
    hashes, padding = rows['observation'], expected.padding
    if len(hashes) >= _FEWEST_FRAMES and (hashes == hashes[0]).all():
      self._add(
        'suspicious' if expected.is_atari else 'note',
        'observation',
        f'has the same frame in all {len(hashes):,} rows',
      )
    if 'terminal' not in rows or padding < 1:
      return
    zero = np.zeros((1, self.headers['observation'].row_bytes), np.uint8)
    is_padding = hashes == row_hashes.hash_rows(zero)
    for name in rows.keys() - {'observation'}:
      is_padding &= rows[name] == 0
    starts = np.flatnonzero(rows['terminal']) + 1
    if self.suffix == 0 and self.placement and self.placement.start == 0:
      starts = np.concatenate([[0], starts])
    starts = starts[starts + padding <= len(hashes)]
    padded = is_padding[starts[:, None] + np.arange(padding)].all(axis=1)
    if not padded.all():
      self._add(
        'suspicious',
        'observation',
        f'has fewer than {padding} padding rows (all zero) at the start of '
        f'{int((~padded).sum()):,} of {len(starts):,} episodes',
      )


def find_wrong_values(
  rows: Mapping[str, np.ndarray], expected: Expected
) -> Iterator[tuple[str, str, str]]:
  """Yields the level, column and description of impossible or unusual values.

  Args:
    rows: Columns of a run by name, without those that could not be read.
    expected: Properties of the run.
  """
  limit = expected.num_actions
  for name, find_wrong, rule in (
    ('action', lambda a: (a < 0) | (a >= limit), f'are 0 to {limit - 1}'),
    ('reward', lambda r: ~np.isfinite(r), 'are finite'),
    ('terminal', lambda t: t > 1, 'are 0 or 1'),
  ):
    values = rows.get(name, np.array([]))
    wrong = values[find_wrong(values)]
    if len(wrong):
      problem = f'has {name} {wrong[0]}, but {name}s {rule} (wrong in {len(wrong):,} rows)'
      yield 'error', name, problem
  reward = rows.get('reward', np.array([]))
  # Of int8, -128 has no absolute value.
  low, high = float(reward.min(initial=0)), float(reward.max(initial=0))
  if expected.is_atari and max(-low, high) > 1:
    yield (
      'note',
      'reward',
      f'has rewards from {low:g} to {high:g}; those of the '
      'DQN Replay Dataset are clipped to [-1, 1]',
    )
