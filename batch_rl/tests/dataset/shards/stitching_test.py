"""Tests of `dataset/shards/stitching.py`; see also `store/run_rows_test.py`."""

import numpy as np
import pytest

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes, sampler
from batch_rl.dataset.shards import stitching
from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs


@pytest.mark.parametrize(
  'add_counts, rows, follows',
  [
    ([49, 99, 20], [49, 50, 21], [False, True, True]),
    # Shards without rows may come first.
    ([0, 0, 30], [0, 0, 30], [False, False, False]),
    ([49, 149], [49, 50], [False, False]),
    ([49, 60], [49, 11], [False, True]),
  ],
)
def test_rows_follow_earlier_rows(add_counts, rows, follows):
  suffixes = range(len(rows))
  placements, problems = stitching.stitch(
    suffixes, add_counts, [50] * len(rows)
  )
  assert [p.rows for p in placements] == rows
  assert [p.follows for p in placements] == follows
  assert bool(problems) == (add_counts[1] in (149, 60))


def test_shards_of_whole_episodes_follow_each_other():
  placements, _ = stitching.join_whole_episodes([3, 4, 5], [0, 7, 5])
  assert [p.follows for p in placements] == [False, False, True]


@pytest.mark.parametrize('stack_size', [1, 4])
def test_a_run_may_begin_with_an_empty_shard(tmp_path, stack_size):
  numbers = np.arange(40) * (np.arange(40) % 10 > 2)  # 3 rows of padding
  columns = (
    np.broadcast_to(numbers.astype(np.uint8)[:, None, None], (40, 2, 2)),
    numbers,
    np.ones(40) * (numbers > 0),
    numbers % 10 == 9,
  )
  draws, found = {}, {}
  for suffix in (0, 1):
    directory = tmp_path / str(suffix)
    for empty in range(suffix):
      nothing = [np.zeros_like(column) for column in columns]
      ring_logs.write_shard(directory, empty, 0, *nothing)
    ring_logs.write_shard(directory, suffix, 33, *columns)
    opened = store.Store(str(directory))
    opened.wait()
    draws[suffix] = sampler.Sampler(opened, stack_size, seed=0)
    found[suffix] = [
      (len(episode.action), episode.begins_at_reset, episode.ended)
      for episode in episodes.Reader(run_directories.as_run(str(directory)))
    ]
  assert found[1] == found[0] and len(found[0]) > 1
  np.testing.assert_array_equal(
    draws[1].valid_rows(), np.flatnonzero(numbers[:32])
  )
  for ours, expected in zip(
    draws[1].batch(0, 64), draws[0].batch(0, 64), strict=True
  ):
    np.testing.assert_array_equal(ours, expected)
