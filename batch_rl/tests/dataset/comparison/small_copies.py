"""Copies of a run in memory, for tests of comparisons."""

import dataclasses
import itertools

import numpy as np

from batch_rl.dataset.comparison import hashed_rows
from batch_rl.tests import shards
from batch_rl.utils import row_hashes


def make_episodes(lengths, seed=0):
  """Returns episodes, lists of rows; their frames are all different."""
  frame = itertools.count(1 + 1_000_000 * seed)
  return [
    [dataclasses.replace(row, frame=next(frame)) for row in episode]
    for episode in shards.make_episodes(lengths, seed)
  ]


def change(episode, i, **values):
  """Returns an episode with other values in row i."""
  changed = list(episode)
  changed[i] = dataclasses.replace(episode[i], **values)
  return changed


class MemoryCopy:
  """A copy whose frames have four values, the bytes of a number."""

  def __init__(self, episodes, padding=0, with_frames=True):
    rows, begin = [], []
    for episode in episodes:
      rows += [shards.Row(0, 0, 0.0, 0)] * padding
      begin.append(len(rows))
      rows += episode
    columns = np.array([dataclasses.astuple(row) for row in rows])
    frame, action, reward, terminal = columns.reshape(-1, 4).T
    frames = frame.astype('<u4').view(np.uint8).reshape(-1, 4)
    hashes = row_hashes.hash_rows(frames)
    stop = [i + len(e) for i, e in zip(begin, episodes, strict=True)]
    if not with_frames:
      hashes = np.zeros_like(hashes)
    columns = action.astype(np.int32), reward.astype(np.float32)
    columns += terminal.astype(bool), *np.array([begin, stop], np.int64)
    self.rows = hashed_rows.HashedRows(hashes, *columns, {0: (0, len(rows))})

  def place(self, episode, step):
    return {'episode': episode, 'step': step}
