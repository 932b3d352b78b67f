"""Writes everything an agent experiences to shards, off the training thread.

`ReplayLog` numbers the rows of a run and cuts them into shards in the dataset's
format (`batch_rl.dataset.shard`). It keeps no ring in memory: rows are compressed
as they come. `checkpoint` and `restore` tie the log to the agent's checkpoints,
so that a run that was stopped anywhere continues as one seamless run.
"""

import base64
import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  shard_writer,
)
from batch_rl.utils import files

_BLOCK_ROWS = 512
# Blocks that may wait for the compressor before the training thread does.
_MAX_WAITING = 8


def check_log_directory(directory: str, run_id: str | None) -> None:
  """Refuses a directory that holds the rows of another run.

  Args:
    directory: where shards are to be written.
    run_id: of the run that is about to write; None never matches.

  Raises:
    ValueError: if logging there would mix two runs.
  """
  if not os.path.isdir(directory) or not os.listdir(directory):
    return
  manifest = files.read_json(os.path.join(directory, manifests.FILE_NAME)) or {}
  if run_id is None or manifest.get('run_id') != run_id:
    raise ValueError(
      f'{directory} already holds the log of another run; choose an empty '
      'directory, or continue that run with its own base_dir.'
    )


class ReplayLog:
  """The log of one run.

  Args:
    directory: where the shards go; local.
    observation_shape: of one observation.
    observation_dtype: of one observation.
    shard_capacity: rows of a shard's ring.
    stack_size: frames in a state; each episode starts with `stack_size - 1`
      all-zero rows.
    update_horizon: the 'n' of n-step, which the format's `invalid_range` needs.
    metadata: goes into the manifest; `run_id` in it claims the directory.
  """

  def __init__(
    self,
    directory: str,
    observation_shape: tuple[int, ...],
    observation_dtype,
    shard_capacity: int = 1_000_000,
    stack_size: int = 4,
    update_horizon: int = 1,
    metadata: Mapping | None = None,
  ):
    if shard_capacity < stack_size + update_horizon + 1:
      raise ValueError(
        f'shard_capacity={shard_capacity} is too small for stack_size='
        f'{stack_size} and update_horizon={update_horizon}.'
      )
    self.directory = directory
    self.metadata = dict(metadata or {})
    self.shard_capacity = shard_capacity
    self._stack_size = stack_size
    self._update_horizon = update_horizon
    self._dtypes = {
      'observation': (np.dtype(observation_dtype), tuple(observation_shape)),
      'action': (np.dtype(np.int32), ()),
      'reward': (np.dtype(np.float32), ()),
      'terminal': (np.dtype(np.uint8), ()),
    }
    # Rows given to `add`, of which the last `_filled` wait in `_block`.
    self.rows = 0
    self._block = self._new_block()
    self._filled = 0
    self._at_episode_start = True
    # [return, unclipped return, agent steps] of the episode under way.
    self._episode = [0.0, 0.0, 0]
    # The same of finished episodes, after the number of their terminal row.
    self._episodes: list[list] = []
    # Last rows of episodes that were cut off, not ended.
    self._truncated: list[int] = []
    self._shards: list[dict] = []  # manifest entries of finished shards
    # What the environment gave before clipping; the runner sets it.
    self.unclipped_reward: float | None = None
    # Rows that the checkpoint before the last one had: a run that goes on has
    # that one for certain.
    self._safe_rows = 0
    self._last_checkpoint_rows = 0
    self._error: Exception | None = None  # of the thread; nothing follows it
    self._writer: Any = None  # a shard.ShardWriter once rows arrive
    self._thread = concurrent.futures.ThreadPoolExecutor(
      1, thread_name_prefix='replay_log'
    )
    self._waiting: list[concurrent.futures.Future] = []

  def add(
    self,
    observation,
    action: int,
    reward: float,
    terminal: bool,
    truncated: bool = False,
    padded: bool = True,
  ) -> None:
    """Logs one transition, after the padding rows if it starts an episode.

    Args:
      observation: what the agent saw, observation_shape.
      action: what it did.
      reward: what it got for it (clipped, if the agent's rewards are).
      terminal: whether the episode ended with it.
      truncated: whether the episode was cut off with it. The format can only
        call that a terminal; the manifest lists the row in `truncated_rows`, and
        `batch_rl.dataset` takes it for what follows the row before, no more.
      padded: whether an episode that starts with it gets padding rows; not if
        its true beginning is missing.
    """
    terminal = terminal or truncated
    if self._writer is None:
      self._begin()
    if self._at_episode_start and padded:
      for _ in range(self._stack_size - 1):
        self._add_row(0, 0, 0, 0)
    self._add_row(observation, action, reward, terminal)
    unclipped = self.unclipped_reward
    self.unclipped_reward = None
    self._episode[0] += float(reward)
    self._episode[1] += float(reward if unclipped is None else unclipped)
    self._episode[2] += 1
    self._at_episode_start = bool(terminal)
    if truncated:
      self._truncated.append(self.rows - 1)
    if terminal:
      self._episodes.append([self.rows - 1, *self._episode])
      self._episode = [0.0, 0.0, 0]
    if self._filled >= _BLOCK_ROWS - self._stack_size:
      self._submit_block()

  @property
  def at_episode_start(self) -> bool:
    """Whether the next row is the first of an episode."""
    return self._at_episode_start

  def checkpoint(self) -> dict:
    """Makes every row so far durable.

    Returns:
      A JSON-able state for `restore`.
    """
    if self._writer is None:
      self._begin()
    self._submit_block()
    self._safe_rows = self._last_checkpoint_rows
    self._last_checkpoint_rows = self.rows
    return self._on_thread(self._cut)

  def restore(self, state: Mapping) -> None:
    """Comes back to a checkpoint: rows logged since are discarded.

    Args:
      state: what `checkpoint` returned, in this or another process.

    Raises:
      ValueError: if the log does not reach the checkpoint, or was written with
        another shard capacity or kind of observation.
    """
    described = self._describe_rows()
    if state['format'] != described:
      raise ValueError(
        f'The log in {self.directory} was written as {state["format"]}, not '
        f'{described}: restore the settings it was made with.'
      )
    self._on_thread(self._roll_back, state)

  def read_back(self, count: int) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yields the last `count` rows: `(column, number of first row, rows)`.

    Only after `checkpoint` or `restore`; chunks come in no particular order.
    """
    first = max(0, self.rows - count)
    capacity, writer = self.shard_capacity, self._writer
    for suffix in range(max(0, first // capacity), writer.suffix + 1):
      start = suffix * capacity
      for name in shard_files.COLUMNS:
        if suffix == writer.suffix:
          path, stop = writer.partial_path(name), writer.rows
          if writer.carry is not None:
            yield name, start - 1, np.asarray(writer.carry[name])[None]
        else:
          path = os.path.join(
            self.directory, shard_files.file_name(name, suffix)
          )
          stop = capacity
        for row, chunk in shard_reader.iterate_rows(path, stop):
          last = row + len(chunk) == capacity
          body = chunk[:-1] if last else chunk
          skip = max(0, first - start - row)
          if len(body) > skip:
            yield name, start + row + skip, body[skip:]
          if last and suffix > 0 and start - 1 >= first:
            yield name, start - 1, chunk[-1:]

  def close(self) -> None:
    """Writes the final, partial shard and the manifest. `restore` undoes it."""
    if self._writer is None:
      return
    self._submit_block()
    self._on_thread(self._finish_run)
    self._thread.shutdown()
    self._writer = None

  def _new_block(self) -> dict[str, np.ndarray]:
    return {
      name: np.zeros((_BLOCK_ROWS, *shape), dtype)
      for name, (dtype, shape) in self._dtypes.items()
    }

  def _add_row(self, *values) -> None:
    for name, value in zip(shard_files.COLUMNS, values, strict=True):
      self._block[name][self._filled] = value
    self._filled += 1
    self.rows += 1

  def _begin(self) -> None:
    """Starts a log from nothing, discarding what never reached a checkpoint."""
    check_log_directory(self.directory, self.metadata.get('run_id'))
    path = os.path.join(self.directory, manifests.FILE_NAME)
    rows = (files.read_json(path) or {}).get('safe_rows', 0)
    if rows:
      raise ValueError(
        f'{self.directory} holds {rows} rows of this run, but its checkpoints '
        'are gone: restore them, or start again with other directories.'
      )
    os.makedirs(self.directory, exist_ok=True)
    self._write_manifest(0)
    self._remove_shards_from(0)
    self._open_writer(0, None)

  def _remove_shards_from(self, suffix: int) -> None:
    for found in shard_files.list_suffixes(self.directory, complete=False):
      if found >= suffix:
        for name in shard_files.FILES:
          with contextlib.suppress(FileNotFoundError):
            os.remove(
              os.path.join(self.directory, shard_files.file_name(name, found))
            )

  def _open_writer(self, suffix: int, carry) -> None:
    self._writer = shard_writer.ShardWriter(
      self.directory, suffix, self.shard_capacity, self._dtypes, carry
    )

  def _submit_block(self) -> None:
    block = {name: rows[: self._filled] for name, rows in self._block.items()}
    self._block, self._filled = self._new_block(), 0
    self._waiting.append(self._thread.submit(self._run, self._write, block))
    while len(self._waiting) > _MAX_WAITING or (
      self._waiting and self._waiting[0].done()
    ):
      self._waiting.pop(0).result()

  def _on_thread(self, function, *args):
    """Runs a function behind all that waits, and returns its result."""
    for future in self._waiting:
      future.result()
    self._waiting = []
    return self._thread.submit(self._run, function, *args).result()

  # What follows runs on the writing thread.

  def _run(self, function, *args):
    """Runs a task, unless one before it failed: no row may be left out."""
    if self._error is not None:
      raise self._error
    try:
      return function(*args)
    except Exception as error:
      self._error = error
      raise

  def _write(self, block: Mapping[str, np.ndarray]) -> None:
    while len(block['terminal']):
      room = self._writer.room
      self._writer.append({name: rows[:room] for name, rows in block.items()})
      block = {name: rows[room:] for name, rows in block.items()}
      if self._writer.room == 0 and len(block['terminal']):
        # The ring's last row is the first thing that the next shard holds.
        carry = {name: rows[0].copy() for name, rows in block.items()}
        block = {name: rows[1:] for name, rows in block.items()}
        self._finish_shard()
        self._open_writer(self._writer.suffix + 1, carry)

  def _finish_shard(self) -> None:
    """Puts the shard in place; it is full, or the final one."""
    writer, capacity = self._writer, self.shard_capacity
    start = writer.suffix * capacity
    full = writer.room == 0
    cursor = writer.rows
    horizon = self._update_horizon
    paths = writer.finish(
      add_count=start + cursor if full else cursor,
      invalid_range=np.arange(cursor - horizon, cursor + self._stack_size)
      % capacity,
    )
    first = start - (writer.carry is not None)
    episodes = [e for e in self._episodes if first <= e[0] < start + cursor]
    self._shards.append(
      {
        'suffix': writer.suffix,
        'first_row': first,
        'rows': start + cursor - first,
        'episodes': _episode_statistics(episodes),
        'files': {
          os.path.basename(path): _describe_file(path) for path in paths
        },
      }
    )
    self._write_manifest(start + cursor)

  def _finish_run(self) -> None:
    if self.rows:
      self._safe_rows = self._last_checkpoint_rows
      self._finish_shard()
      shutil.rmtree(os.path.join(self.directory, shard_files.PARTIAL))

  def _cut(self) -> dict:
    carry = self._writer.carry
    state = {
      'format': self._describe_rows(),
      'rows': self.rows,
      'suffix': self._writer.suffix,
      'cut': self._writer.cut(),
      'carry': carry and {name: _pack(row) for name, row in carry.items()},
      'at_episode_start': self._at_episode_start,
      'episode': self._episode,
      'episodes': self._episodes,
      'truncated_rows': self._truncated,
      'shards': self._shards,
    }
    self._write_manifest(self.rows)
    return json.loads(json.dumps(state))

  def _roll_back(self, state: Mapping) -> None:
    carry = state['carry'] and {
      name: _unpack(state['carry'][name], *self._dtypes[name])
      for name in shard_files.COLUMNS
    }
    if self._writer is not None:
      self._writer.close()
    self._remove_shards_from(state['suffix'] + 1)
    self._writer = shard_writer.ShardWriter.resume(
      self.directory,
      state['suffix'],
      self.shard_capacity,
      self._dtypes,
      carry,
      state['cut'],
    )
    self.rows = state['rows']
    self._block, self._filled = self._new_block(), 0
    self._at_episode_start = state['at_episode_start']
    self._episode = list(state['episode'])
    self._episodes = list(state['episodes'])
    self._truncated = list(state.get('truncated_rows', []))
    self._shards = list(state['shards'])
    self._safe_rows = self._last_checkpoint_rows = self.rows
    self._write_manifest(self.rows)

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
    episodes = [e for e in self._episodes if e[0] < rows]
    content = {
      'manifest_version': 1,
      **self.metadata,
      'rows': rows,
      'safe_rows': self._safe_rows,
      'episodes': _episode_statistics(episodes),
      'format': self._describe_rows(),
      'shards': self._shards,
    }
    if self._truncated:
      content[manifests.TRUNCATED_ROWS] = [
        r for r in self._truncated if r < rows
      ]
    files.write_json(os.path.join(self.directory, manifests.FILE_NAME), content)


def _episode_statistics(episodes: list) -> dict:
  """Count, and mean, least and greatest return and length of episodes."""
  names = ('return', 'unclipped_return', 'agent_steps')
  statistics: dict = {'count': len(episodes)}
  for name, values in (
    zip(names, np.array(episodes)[:, 1:].T, strict=True) if (episodes) else ()
  ):
    statistics[name] = {
      'mean': float(values.mean()),
      'min': float(values.min()),
      'max': float(values.max()),
    }
  return statistics


def _describe_file(path: str) -> dict:
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    while chunk := file.read(1 << 20):
      digest.update(chunk)
  return {'bytes': os.path.getsize(path), 'sha256': digest.hexdigest()}


def _pack(row: np.ndarray) -> str:
  return base64.b64encode(zlib.compress(np.asarray(row).tobytes())).decode()


def _unpack(text: str, dtype, shape) -> np.ndarray:
  data = zlib.decompress(base64.b64decode(text))
  return np.frombuffer(data, dtype).reshape(shape)
