"""Copies of a run in memory, for tests of comparisons."""

import dataclasses

import numpy as np

from batch_rl.dataset.comparison import hashed_rows
from batch_rl.utils import row_hashes


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
    columns = (c[start:stop] for c in (self.frame, self.action, self.reward))
    return Episode(*columns, self.terminated and stop >= len(self.frame))


def make_episodes(lengths, seed=0):
  """Returns terminated episodes; their frames are all different."""
  random = np.random.default_rng(seed)
  first, made = 1 + 1_000_000 * seed, []
  for length in lengths:
    frame = tuple(range(first, first + length))
    action = tuple(random.integers(0, 6, length).tolist())
    reward = tuple(random.integers(-1, 2, length).tolist())
    made.append(Episode(frame, action, reward))
    first += length
  return made


class MemoryCopy:
  """A copy whose frames have four values, the bytes of a number."""

  def __init__(self, episodes, padding=0, with_frames=True):
    rows, begin = [], []
    for episode in episodes:
      rows += [(0, 0, 0, False)] * padding
      begin.append(len(rows))
      terminal = [False] * len(episode.frame)
      terminal[-1] = episode.terminated
      rows += zip(
        episode.frame, episode.action, episode.reward, terminal, strict=True
      )
    numbers, action, reward, terminal = np.array(rows, object).reshape(-1, 4).T
    hashes = row_hashes.hash_rows(
      numbers.astype('<u4').view(np.uint8).reshape(-1, 4)
    )
    begin = np.array(begin, np.int64)
    lengths = np.array([len(e.frame) for e in episodes], np.int64)
    self.rows = hashed_rows.HashedRows(
      hashes if with_frames else np.zeros_like(hashes),
      action.astype(np.int32),
      reward.astype(np.float32),
      terminal.astype(bool),
      begin,
      begin + lengths,
      [hashed_rows.PartRows(0, 'part 0', 0, len(rows))],
    )

  def place(self, episode, step):
    return {'episode': episode, 'step': step}
