"""Copies of a run in memory, for tests of comparisons."""

import dataclasses

import numpy as np

from batch_rl.dataset.comparison import copies, hashed_rows


@dataclasses.dataclass(frozen=True)
class Episode:
  """An episode: the number that its frames show, actions, and rewards."""

  frame: tuple
  action: tuple
  reward: tuple
  terminated: bool = True

  def change(self, column, i, value):
    values = list(getattr(self, column))
    values[i] = value
    return dataclasses.replace(self, **{column: tuple(values)})

  def part(self, start, stop):
    """Returns some of the rows; without a terminal unless the last is one."""
    rows = slice(start, stop)
    return Episode(
      self.frame[rows],
      self.action[rows],
      self.reward[rows],
      self.terminated and stop >= len(self.frame),
    )


def make_episodes(lengths, seed=0):
  """Returns terminated episodes; their frames are all different."""
  random = np.random.default_rng(seed)
  first, made = 1 + 1_000_000 * seed, []
  for length in lengths:
    made.append(
      Episode(
        tuple(range(first, first + length)),
        tuple(random.integers(0, 6, length).tolist()),
        tuple(random.integers(-1, 2, length).tolist()),
      )
    )
    first += length
  return made


class MemoryCopy(copies.Copy):
  """A copy whose frames have four values, the bytes of a number.

  Args:
    episodes: Episodes.
    padding: Number of padding rows before each.
    with_frames: Whether frames are hashed.
  """

  def __init__(self, episodes, padding=0, with_frames=True):
    self.path, self.kind, self.game, self.run = 'memory', 'shards', 'Pong', '1'
    self.is_atari, self.unit = True, 'row'
    self.frame_shape, self.frame_dtype = (4,), np.dtype(np.uint8)
    columns = [], [], [], []
    begin, stop = [], []
    for episode in episodes:
      n = len(episode.frame)
      begin.append(len(columns[0]) + padding)
      stop.append(begin[-1] + n)
      last = [0] * (n - 1) + [int(episode.terminated)]
      added = episode.frame, episode.action, episode.reward, last
      for column, values in zip(columns, added, strict=True):
        column.extend([0] * padding + list(values))
    numbers, action, reward, terminal = columns
    frames = np.array(numbers, '<u4').view(np.uint8).reshape(-1, 4)
    hashes = hashed_rows.hash_rows(frames)
    self.total = len(action)
    self.rows = hashed_rows.HashedRows(
      hashes if with_frames else np.zeros_like(hashes),
      np.array(action, np.int32),
      np.array(reward, np.float32),
      np.array(terminal, bool),
      np.array(begin, np.int64),
      np.array(stop, np.int64),
      [hashed_rows.PartRows(0, 'part 0', 0, self.total)],
    )

  def read(self, with_frames, advance):
    pass

  def _position(self, row):
    return {'row': row}
