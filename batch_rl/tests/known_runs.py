"""The model of a run: rows on disk that a test knows, and transitions computed from them.

Runs have several shards with padding, truncated at any row; shards may be missing.
"""

import collections
import dataclasses

import numpy as np
from hypothesis import strategies as st

from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs, shards

LENGTHS = [30, 25, 40, 11, 60, 33]  # of six episodes


def open_store(data_dir, **kwargs):
  opened = store.Store(str(data_dir), **kwargs)
  opened.wait()
  return opened


def assert_same(left, right):
  """Asserts that two batches have equal values and dtypes."""
  for a, b in zip(left, right, strict=True):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


def assert_same_without_compiled_code(sampler, rows):
  """Asserts that compiled code makes batches, and the same as the reference."""
  assert sampler.wait_until_compiled()
  for frames in ('windows', 'stacks', None):
    [compiled] = sampler._compiled.make(rows, 1, frames)
    assert_same(compiled, *sampler.reference(rows, 1, frames))


@dataclasses.dataclass(frozen=True)
class Run:
  """A run on disk with its rows in time order."""

  directory: str
  capacity: int
  rows: list[shards.Row]
  is_step: list[bool]  # False for padding, which the format does not mark
  shard_of: list[int]  # number of each row's shard

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


def draw_run(data, directory):
  """Writes a run drawn by hypothesis; returns it, and the shards that are not missing."""
  lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=10))
  capacity = data.draw(st.integers(6, 60))
  dropped = data.draw(st.integers(0, 5))
  run = write_run(directory, lengths, capacity, dropped=dropped)
  present = set(run.suffixes)
  if len(present) > 1 and data.draw(st.booleans(), label='shards are missing'):
    removed = data.draw(st.sets(st.sampled_from(run.suffixes), max_size=3))
    present = present - removed or present
    for suffix in set(run.suffixes) - present:
      ring_logs.remove_shard(run.directory, suffix)
  return run, present


Transition = collections.namedtuple(
  'Transition', 'stack action reward terminal next_stack next_action'
)


def transitions(run, kept, stack_size, horizon, gamma):
  """Returns `{row: Transition}` of the rows `kept`, computed row by row."""
  rows, kept = run.rows, set(kept)

  def stack_at(row):
    return [rows[r].frame for r in range(row - stack_size + 1, row + 1)]

  expected = {}
  for row in sorted(kept):
    before = range(row - stack_size + 1, row)
    if not run.is_step[row] or not all(
      r in kept and not rows[r].terminal for r in before
    ):
      continue
    reward, terminal, after = 0.0, 0, row
    while after < row + horizon and after in kept and not terminal:
      reward += gamma ** (after - row) * rows[after].reward
      terminal = rows[after].terminal
      after += 1
    if terminal:
      following = None, None
    elif after == row + horizon and after in kept:
      following = stack_at(after), rows[after].action
    else:
      continue
    expected[row] = Transition(
      stack_at(row), rows[row].action, reward, terminal, *following
    )
  return expected
