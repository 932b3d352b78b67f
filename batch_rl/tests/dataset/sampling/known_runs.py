"""Runs on disk whose rows a test knows, with which of them are steps."""

import dataclasses

from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs, shards


def open_store(data_dir, **kwargs):
  opened = store.Store(str(data_dir), **kwargs)
  opened.wait()
  return opened


@dataclasses.dataclass(frozen=True)
class Run:
  """A run on disk with its rows in time order.

  `is_step` is False for padding, which the format does not mark; `shard_of` has the
  number of each row's shard.
  """

  directory: str
  capacity: int
  rows: list[shards.Row]
  is_step: list[bool]
  shard_of: list[int]

  @property
  def suffixes(self):
    return sorted(set(self.shard_of))

  def rows_of(self, present):
    """Returns the rows of some shards that a reader can identify.

    In the final shard, the ring's last row belongs to the run only if the previous
    shard is present.
    """
    last = max(self.suffixes)
    unknown = last * self.capacity - 1
    if len(self.rows) % self.capacity == self.capacity - 1 or not last:
      unknown = None  # the ring is full, or the run has one shard
    return [
      row
      for row, suffix in enumerate(self.shard_of)
      if suffix in present and (row != unknown or last - 1 in present)
    ]


def write_run(directory, lengths, capacity, logged_with=4, black=(), dropped=0):
  """Writes episodes as a run that stopped `dropped` rows before its end.

  The first `black[e]` frames of episode e are zero.
  """
  episodes = shards.make_episodes(lengths)
  for episode, count in zip(episodes, black, strict=False):
    for step in range(min(count, len(episode))):
      episode[step] = dataclasses.replace(episode[step], frame=0)
  rows = shards.with_padding(episodes, logged_with)
  is_step = [
    at >= logged_with - 1
    for length in lengths
    for at in range(logged_with - 1 + length)
  ]
  stop = max(1, len(rows) - dropped)
  shard_of = ring_logs.write_run(directory, rows[:stop], capacity)
  return Run(str(directory), capacity, rows[:stop], is_step[:stop], shard_of)
