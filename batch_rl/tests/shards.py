"""Small logs for the tests, and an independent reader of the format."""

import dataclasses
import gzip

import numpy as np

from batch_rl.dataset.shards import replay_log, shard_files, shard_reader


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of a run; all pixels of its observation equal `frame`."""

  frame: int
  action: int
  reward: float
  terminal: int


def make_episodes(lengths, seed=0):
  """Returns the transitions of each episode.

  Frames are never zero, and distinct among 250 in succession.
  """
  random = np.random.default_rng(seed)
  episodes, frame = [], 0
  for length in lengths:
    episode = []
    for step in range(length):
      frame = frame % 250 + 1
      action, reward = int(random.integers(1, 4)), float(random.integers(-1, 2))
      episode.append(Row(frame, action, reward, int(step == length - 1)))
    episodes.append(episode)
  return episodes


def with_padding(episodes, stack_size):
  """Returns the rows of a run: padding, then transitions, for each episode."""
  padding = [Row(0, 0, 0.0, 0)] * (stack_size - 1)
  return [row for episode in episodes for row in padding + episode]


def make_log(directory, capacity, stack_size=4, **metadata):
  """Returns a log of 2 x 2 frames."""
  return replay_log.ReplayLog(
    str(directory), (2, 2), np.uint8, capacity, stack_size, metadata=metadata
  )


def add_row(log_or_buffer, row):
  """Adds a transition to a log or a Dopamine replay memory."""
  frame = np.full((2, 2), row.frame, np.uint8)
  log_or_buffer.add(frame, row.action, row.reward, row.terminal)


def add_rows(log_or_buffer, rows):
  for row in rows:
    add_row(log_or_buffer, row)


def write_run(directory, lengths, capacity, stack_size=4, **metadata):
  """Logs episodes and returns the rows expected on disk, in time order."""
  episodes = make_episodes(lengths)
  with make_log(directory, capacity, stack_size, **metadata) as log:
    add_rows(log, sum(episodes, []))
  return with_padding(episodes, stack_size)


def write_images(directory):
  """Logs 60 random frames of 84 x 84 in two shards, four episodes, six actions."""
  random = np.random.default_rng(0)
  with replay_log.ReplayLog(str(directory), (84, 84), np.uint8, 40) as log:
    for step in range(60):
      frame = random.integers(1, 256, (84, 84))
      log.add(frame, step % 6, step % 3 - 1.0, step % 15 == 14)


def read_shard(directory, suffix, names=shard_files.FILES):
  """Returns columns and counters of a shard, the columns in ring order."""
  shard_reader.read_headers(str(directory), suffix)  # Checks the lengths.
  paths = {name: shard_files.path(directory, name, suffix) for name in names}
  return {name: shard_reader.read_array(path) for name, path in paths.items()}


def read_columns(directory):
  """Returns all rows on disk in time order, `{column: (n, ...)}`.

  In time order a shard is its last row (except in shard 0), then the rows up to
  the cursor.
  """
  parts = []
  for suffix in shard_files.list_suffixes(str(directory)):
    loaded = read_shard(directory, suffix)
    capacity = len(loaded['terminal'])
    last = [capacity - 1] if suffix else []
    rows = [*last, *range(loaded['add_count'] % capacity)]
    parts.append({name: loaded[name][rows] for name in shard_files.COLUMNS})
  return join(*parts)


def join(*parts):
  """Returns parts of a run, `{column: (n, ...)}`, end to end."""
  return {
    name: np.concatenate([part[name] for part in parts])
    for name in shard_files.COLUMNS
  }


def read_run(directory):
  """Returns all rows in time order, as `Row`."""
  return rows_of(*read_columns(directory).values())


def rows_of(frames, *columns):
  """Returns rows, given their frames of one value each and other columns, as `Row`."""
  assert (frames == frames[:, :1, :1]).all()
  return [
    Row(int(f), int(a), float(r), int(t))
    for f, a, r, t in zip(frames[:, 0, 0], *columns, strict=True)
  ]


def write_zeros(path, descr, shape, count):
  """Writes a column with a header of any claim, and `count` zero bytes."""
  header = (
    f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"
  )
  start = b'\x93NUMPY\x01\x00' + len(header).to_bytes(2, 'little')
  step = 1 << 24
  zeros = gzip.compress(bytes(step))
  path.write_bytes(
    gzip.compress(start + header.encode())
    + zeros * (count // step)  # gzip members concatenate.
    + gzip.compress(bytes(count % step))
  )
