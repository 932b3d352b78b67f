"""Logs transitions to shards, on a background thread.

`ReplayLog` numbers the rows of a run and splits them into shards of the dataset's
format (`shard_reader`). It keeps no ring in memory: rows are compressed as they
arrive. `checkpoint` and `restore` tie the log to an agent's checkpoints, so that
a run interrupted at any point resumes without a gap or a repeated row.
"""

import concurrent.futures
import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  shard_writer,
  transition_checks,
)
from batch_rl.utils import files

# Rows that are handed to the writing thread at a time, and their most bytes.
_BLOCK_ROWS = 512
_BLOCK_BYTES = 1 << 25
# Blocks in the queue before the training thread waits for the writing thread.
_MAX_WAITING = 8


def check_log_directory(directory: str, run_id: str | None) -> None:
  """Checks that a directory is empty, or has the log of this run.

  Args:
    directory: Directory to write shards to.
    run_id: Identifier of the run; None matches no existing log.

  Raises:
    ValueError: If logging there would mix two runs.
  """
  names = os.listdir(directory) if os.path.isdir(directory) else []
  if all(name != files.final_name(name) for name in names):
    return  # At most a manifest that a killed run did not complete.
  if run_id is None or manifests.read(directory).get('run_id') != run_id:
    raise ValueError(
      f'{directory} already holds the log of another run, or other files; choose '
      'an empty directory, or resume that run from its own checkpoints.'
    )


class ReplayLog:
  """The log of one run, e.g. of one's own environment and policy.

  It needs neither gin nor TensorFlow. Observations have any shape and dtype:

    with ReplayLog(
      'data/GridWorld/1/replay_logs',
      observation_shape=(10, 10, 4),
      observation_dtype=np.uint8,
      shard_capacity=100_000,
      metadata={'environment': {'game': 'GridWorld', 'num_actions': 4}},
    ) as log:
      observation, terminal = env.reset(), False
      while not terminal:
        action = policy(observation)
        next_observation, reward, terminal, _ = env.step(action)
        log.add(observation, action, reward, terminal)
        observation = next_observation

  The data tools, samplers and offline agents read the log once it is closed.
  `with` closes it after an exception, too, so that the rows logged until then can
  be read; `restore` continues a closed log from its last checkpoint.

  Args:
    directory: Local directory of the shards, `<root>/<Game>/<run>/replay_logs`;
      empty, not there yet, or with a log of the same `run_id` to `restore`.
    observation_shape: Shape of one observation; () for a single number.
    observation_dtype: NumPy dtype of one observation: booleans, integers or floats, which
      are logged in the native byte order.
    shard_capacity: Number of rows in a shard. The last shard is filled up with zero
      rows, which take a reader some time; choose fewer rows for observations above 7 kB.
    stack_size: Number of frames in the agents' states, or more, at most 512; each
      episode starts with `stack_size - 1` all-zero rows.
    update_horizon: Number of steps in returns, for the format's `invalid_range`.
    metadata: More entries for the manifest, numbers and text. The data tools know
      `environment.game`, the environment's name, `environment.num_actions` and
      `agent`; `run_id` identifies the run that owns the directory. A log of the same
      `run_id` that was killed before its second `checkpoint` is started again, and
      its shards are deleted, unless `restore` follows.

  Attributes:
    directory: Local directory of the shards.
    metadata: Entries for the manifest.
    shard_capacity: Number of rows in a shard's ring.
    rows: Number of rows logged, padding included.
    at_episode_start: Whether the next row is the first of an episode.
    truncated_rows: Last rows of truncated episodes.

  Raises:
    ValueError: If an argument is invalid, or the directory is remote.
  """

  def __init__(
    self,
    directory: str,
    observation_shape: tuple[int, ...],
    observation_dtype: Any,
    shard_capacity: int = 1_000_000,
    stack_size: int = 4,
    update_horizon: int = 1,
    metadata: Mapping | None = None,
  ):
    self.directory = os.fspath(directory)
    files.check_local(self.directory)
    shape, dtype = transition_checks.check_format(
      observation_shape, observation_dtype
    )
    self.shard_capacity, self._stack_size, self._update_horizon = (
      transition_checks.check_sizes(shard_capacity, stack_size, update_horizon)
    )
    self.metadata = transition_checks.check_metadata(metadata)
    environment = self.metadata.get('environment') or {}
    self._num_actions = environment.get('num_actions') or 2**31
    row_bytes = math.prod(shape) * dtype.itemsize
    self._block_rows = min(_BLOCK_ROWS, _BLOCK_BYTES // row_bytes)
    self._dtypes = {'observation': (dtype, shape)}
    for name, kind in shard_reader.DTYPES.items():
      self._dtypes[name] = np.dtype(kind), ()
    self.rows = 0
    self._block: list[shard_writer.Row] = []  # The last rows, not yet written.
    self.at_episode_start = True
    # [return, unclipped return, agent steps] of the current episode.
    self._episode = [0.0, 0.0, 0]
    # [last row, return, unclipped return, agent steps] of the current shard's episodes.
    self._episodes: list[list] = []
    self.truncated_rows: list[int] = []
    self._shards: list[dict] = []  # Manifest entries of finished shards.
    # Rows at the last checkpoint but one. The agent's part of the last checkpoint
    # may be missing, so a resumed run is certain to have only these rows.
    self._safe_rows = 0
    self._last_checkpoint_rows = 0
    # First error of writing; nothing is written after it.
    self._error: Exception | None = None
    self._writer: Any = None  # A ShardWriter once rows arrive.
    self._restored: Any = None  # A checkpoint, until rows follow it.
    self._thread = concurrent.futures.ThreadPoolExecutor(
      1, thread_name_prefix='replay_log'
    )
    self._waiting: list[concurrent.futures.Future] = []
    self._closed = False

  def __enter__(self) -> 'ReplayLog':
    check_log_directory(self.directory, self.metadata.get('run_id'))
    return self

  def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
    self.close()

  def add(
    self,
    observation: Any,
    action: int,
    reward: float,
    terminal: bool,
    truncated: bool = False,
    padded: bool = True,
    unclipped_reward: float | None = None,
  ) -> None:
    """Logs one transition, after the padding rows if it starts an episode.

    Args:
      observation: Observation before the action, of shape `observation_shape`. It
        is copied. Floats may lose precision in the log's dtype; integers may not.
      action: Action taken, an integer from 0, below `num_actions` if that is given.
      reward: Reward received, clipped if the agent's rewards are.
      terminal: Whether the transition ended the episode.
      truncated: Whether the episode was truncated here; without effect on a
        terminal transition. The format stores a terminal; the manifest lists the
        row in `truncated_rows`. Sampled transitions use only its observation, as the
        next one of the previous row; sequences and returns have its action and reward.
      padded: Whether to write padding rows if an episode starts here; False if
        the episode's true beginning is missing.
      unclipped_reward: Reward before clipping, for the manifest's statistics;
        None if it equals `reward`.

    Raises:
      ValueError: If a value does not fit, the log is closed, or the directory holds
        another log. The transition is not logged then.
      OSError: If the shards cannot be written.
    """
    dtype, shape = self._dtypes['observation']
    observation = transition_checks.check_value(
      'observation', observation, shape, dtype
    )
    action = transition_checks.check_action(action, self._num_actions)
    reward = transition_checks.check_reward(reward)
    if unclipped_reward is not None:
      unclipped_reward = transition_checks.check_reward(unclipped_reward)
    terminal = transition_checks.check_flag('terminal', terminal)
    truncated = transition_checks.check_flag('truncated', truncated)
    ended = terminal or truncated
    if self._writer is None:
      self._begin()
    if self.at_episode_start and padded:
      zeros = np.zeros(shape, dtype)
      self._block += [(zeros, 0, 0, 0)] * (self._stack_size - 1)
      self.rows += self._stack_size - 1
    self._block.append((observation.copy(), action, reward, ended))
    self.rows += 1
    self._episode[0] += reward
    self._episode[1] += reward if unclipped_reward is None else unclipped_reward
    self._episode[2] += 1
    self.at_episode_start = ended
    if truncated and not terminal:
      self.truncated_rows.append(self.rows - 1)
    if ended:
      self._episodes.append([self.rows - 1, *self._episode])
      self._episode = [0.0, 0.0, 0]
    if len(self._block) >= self._block_rows:
      self._flush(_MAX_WAITING)

  def checkpoint(self) -> dict:
    """Makes every row so far durable.

    Returns:
      A JSON-serialisable state for `restore`.

    Raises:
      ValueError: If the log is closed, or the directory holds another log.
      OSError: If the shards cannot be written.
    """
    if self._writer is None:
      self._begin()
    self._safe_rows = self._last_checkpoint_rows
    self._last_checkpoint_rows = self.rows
    self._flush()
    with self._lasting_errors():
      state = {
        'run_id': self.metadata.get('run_id'),
        'format': self._describe_rows(),
        'rows': self.rows,
        **self._writer.checkpoint(),
        'at_episode_start': self.at_episode_start,
        'episode': self._episode,
        'episodes': self._episodes,
        'truncated_rows': self.truncated_rows,
        'shards': self._shards,
      }
      self._write_manifest(self.rows)
    return json.loads(json.dumps(state))

  def restore(self, state: Mapping) -> None:
    """Returns to a checkpoint; rows logged since are discarded.

    Args:
      state: Result of `checkpoint`, from this or another process.

    Raises:
      ValueError: If the log is of another run, ends before the checkpoint, was written
        with another shard capacity, stack size or observation format, or is closed.
        No file is changed then.
    """
    self._check_open()
    described = self._describe_rows()
    if state['format'] != described:
      raise ValueError(
        f'The log in {self.directory} was written as {state["format"]}, not '
        f'{described}: resume with the settings it was made with, or log to '
        'another directory.'
      )
    self._wait(0)
    manifests.check_checkpoint(self.directory, self.metadata, state)
    shard_writer.check_sizes(self.directory, state)
    with self._lasting_errors():
      if self._writer is not None:
        self._writer.close()
      self._writer, self._restored, self._block = None, state, []
      self.rows = state['rows']
      self.at_episode_start = state['at_episode_start']
      self._episode = list(state['episode'])
      self.truncated_rows = list(state.get('truncated_rows', []))
      self._shards = list(state['shards'])
      # Earlier versions saved those of finished shards, too.
      finished = sum(entry['rows'] for entry in self._shards)
      self._episodes = [e for e in state['episodes'] if e[0] >= finished]
      self._safe_rows = self._last_checkpoint_rows = self.rows
      # A closed log can be read by others until a row arrives.
      if self._closed_rows() != self.rows:
        self._begin()

  def read_back(self, count: int) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yields the last rows of the log, in chunks of no particular order.

    May be called only right after `checkpoint` or `restore`.

    Args:
      count: Number of rows.

    Yields:
      `(column, first_row, rows)`, rows of shape (n, ...).
    """
    first = max(0, self.rows - count)
    capacity, folder = self.shard_capacity, self.directory
    if writer := self._writer:
      folder = os.path.join(folder, shard_files.PARTIAL)
      newest, rows, carry = writer.suffix, writer.rows, writer.carry
    else:
      newest, rows = self._restored['suffix'], self._restored['cut']['rows']
      carry = shard_writer.carry_of(self._restored, self._dtypes)
    for suffix in range(max(0, first // capacity), newest + 1):
      start = suffix * capacity
      for name in shard_files.COLUMNS:
        if suffix == newest:
          path, stop = shard_files.path(folder, name, suffix), rows
          if carry is not None and start > first:
            yield name, start - 1, carry[name][None]
        else:
          path = shard_files.path(self.directory, name, suffix)
          stop = capacity
        for row, chunk in shard_reader.iterate_rows(path, stop):
          last = row + len(chunk) == capacity
          body = chunk[:-1] if last else chunk
          skip = max(0, first - start - row)
          if len(body) > skip:
            yield name, start + row + skip, body[skip:]
          if last and suffix > 0 and start > first:
            yield name, start - 1, chunk[-1:]

  def close(self) -> None:
    """Writes the final, partial shard and the manifest; idempotent.

    A new log of the same run can undo it with `restore`.

    Raises:
      OSError: If the shards cannot be written.
    """
    if self._writer is not None:
      self._flush()
      with self._lasting_errors():
        if self.rows:
          self._safe_rows = self._last_checkpoint_rows
          self._finish_shard()
          shutil.rmtree(os.path.join(self.directory, shard_files.PARTIAL))
        else:  # A checkpoint without rows needs the files.
          self._writer.close()
      self._thread.shutdown()
      self._writer = None
    self._closed = True

  def _check_open(self) -> None:
    if self._closed:
      raise ValueError(
        f'The log in {self.directory} is closed; log to another directory.'
      )

  def _closed_rows(self) -> int | None:
    """Returns the number of rows of a closed log in the directory; None without one."""
    is_closed = shard_files.PARTIAL not in files.names_in(self.directory)
    return manifests.read(self.directory).get('rows') if is_closed else None

  def _begin(self) -> None:
    """Starts the log, discarding rows that no checkpoint covers."""
    self._check_open()
    if state := self._restored:
      self._remove_shards_from(state['suffix'] + 1)
      self._open_writer(state['suffix'], None, state)
      self._write_manifest(self.rows)
      self._restored = None
      return
    check_log_directory(self.directory, self.metadata.get('run_id'))
    manifest = manifests.read(self.directory)
    if manifest.get('safe_rows') or self._closed_rows():
      raise ValueError(
        f'{self.directory} holds {manifest.get("rows")} rows of this run, but no '
        'checkpoint was restored: restore one, or start again with other directories.'
      )
    os.makedirs(self.directory, exist_ok=True)
    self._write_manifest(0)
    self._remove_shards_from(0)
    self._open_writer()

  def _remove_shards_from(self, suffix: int) -> None:
    for other in shard_files.missing_files(self.directory):
      if other >= suffix:
        for name in shard_files.FILES:
          with contextlib.suppress(FileNotFoundError):
            os.remove(shard_files.path(self.directory, name, other))

  def _open_writer(self, *position: Any) -> None:
    self._writer = shard_writer.ShardWriter(
      self.directory, self.shard_capacity, self._dtypes, *position
    )

  def _wait(self, most: int) -> None:
    """Waits until at most some blocks are not written, and raises their errors."""
    while len(self._waiting) > most or (
      self._waiting and self._waiting[0].done()
    ):
      self._waiting.pop(0).result()

  def _flush(self, most: int = 0) -> None:
    """Submits the block, and waits until at most some are not written."""
    self._waiting.append(self._thread.submit(self._write, self._block))
    self._block = []
    self._wait(most)

  @contextlib.contextmanager
  def _lasting_errors(self) -> Iterator[None]:
    """Keeps an error, and raises it again at once: no row may be skipped."""
    if self._error is not None:
      raise self._error
    try:
      yield
    except Exception as error:
      if isinstance(error, OSError) and error.errno:  # e.g. of a full disk
        error.filename = error.filename or self.directory
      self._error = error
      raise

  def _write(self, rows: list[shard_writer.Row]) -> None:
    """Writes a block, on the thread, and empties it: Ctrl-C may submit it again."""
    with self._lasting_errors():
      while rows:
        if not self._writer.room:
          self._finish_shard()
          # The next shard holds this row at the last position of its ring.
          self._open_writer(self._writer.suffix + 1, rows.pop(0))
        written = rows[: self._writer.room]
        self._writer.append(written)
        del rows[: len(written)]

  def _finish_shard(self) -> None:
    """Finishes the current shard, which is full or the final one."""
    writer, capacity = self._writer, self.shard_capacity
    start = writer.suffix * capacity
    cursor = writer.rows
    # Write this first: otherwise readers take truncated episodes for terminal ones.
    self._write_manifest(start + cursor)
    count = cursor if writer.room else start + cursor
    around = np.arange(cursor - self._update_horizon, cursor + self._stack_size)
    paths = writer.finish(count, around % capacity)
    first = start - (writer.carry is not None)
    episodes = [e for e in self._episodes if e[0] < start + cursor]
    described = {os.path.basename(p): manifests.describe_file(p) for p in paths}
    entry = {
      'suffix': writer.suffix,
      'first_row': first,
      'rows': start + cursor - first,
      'episodes': manifests.describe_shard_episodes(episodes),
      'files': described,
    }
    self._shards.append(entry)
    del self._episodes[: len(episodes)]  # The other thread may append to it.
    self._write_manifest(start + cursor)

  def _describe_rows(self) -> dict:
    return {
      'shard_capacity': self.shard_capacity,
      'stack_size': self._stack_size,
      'columns': {
        name: [dtype.str, list(shape)]
        for name, (dtype, shape) in self._dtypes.items()
      },
    }

  def _write_manifest(self, rows: int) -> None:
    newest = [e for e in self._episodes if e[0] < rows]
    described = [entry['episodes'] for entry in self._shards]
    described.append(manifests.describe_episodes(newest))
    content = {
      'manifest_version': 1,
      **self.metadata,
      'rows': rows,
      'safe_rows': self._safe_rows,
      'episodes': manifests.combine_episodes(described),
      'format': self._describe_rows(),
      'shards': self._shards,
      manifests.TRUNCATED_ROWS: [r for r in self.truncated_rows if r < rows],
    }
    manifests.write(self.directory, content)
