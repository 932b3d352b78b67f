import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes, sampler
from batch_rl.dataset.shards import stitching
from batch_rl.tests import known_runs, ring_logs


@pytest.mark.parametrize(
  'add_counts, rows, follows',
  [
    ([49, 99, 20], [49, 50, 21], [False, True, True]),
    # Shards without rows may come first.
    ([0, 0, 30], [0, 0, 30], [False, False, False]),
    # A cursor that does not continue the shard before.
    ([49, 80, 20], [49, 31, 20], [False, True, False]),
  ],
)
def test_a_last_shard_may_have_its_cursor_as_count(add_counts, rows, follows):
  suffixes = range(len(rows))
  placements, _ = stitching.stitch(suffixes, add_counts, [50] * len(rows))
  assert [p.rows for p in placements] == rows
  assert [p.follows for p in placements] == follows


@given(
  counts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
  capacity=st.integers(2, 30),
  numbers=st.sets(st.integers(0, 20), min_size=8, max_size=8),
)
def test_stitched_dumps_of_a_ring_are_the_rows_added(counts, capacity, numbers):
  """A ring is dumped after some rows; its dumps have the last `capacity` rows."""
  suffixes = sorted(numbers)[: len(counts)]
  added = np.cumsum(counts).tolist()
  capacities = [capacity] * len(added)
  placements, problems = stitching.stitch(suffixes, added, capacities)
  ring, end, lost, repeated = np.full(capacity, -1), 0, 0, 0
  for placement, suffix, count in zip(placements, suffixes, added, strict=True):
    for row in range(max(0, count - capacity), count):
      ring[row % capacity] = row
    begin = max(0, count - capacity)
    found = stitching.in_time_order(ring, placement)
    assert found.tolist() == list(range(max(begin, end), count))
    assert placement.follows == (0 < end and begin <= end)
    assert (placement.suffix, placement.capacity) == (suffix, capacity)
    lost += begin > end and suffix - 1 in suffixes[: suffixes.index(suffix)]
    repeated += begin < end
    end = count
  text = ' '.join(problems)
  assert text.count('are missing between') == lost
  assert text.count('repeats') == repeated


def test_shards_of_whole_episodes_follow_each_other():
  placements, _ = stitching.join_whole_episodes([3, 4, 5], [0, 7, 5])
  assert [p.follows for p in placements] == [False, False, True]


@pytest.mark.parametrize('stack_size', [1, 4])
def test_a_run_may_begin_with_an_empty_shard(tmp_path, stack_size):
  numbers = np.arange(40) * (np.arange(40) % 10 > 2)  # 3 rows of padding
  frames = np.broadcast_to(numbers.astype(np.uint8)[:, None, None], (40, 2, 2))
  columns = frames, numbers, np.ones(40) * (numbers > 0), numbers % 10 == 9
  draws, found = {}, {}
  for suffix in (0, 1):
    directory = tmp_path / str(suffix)
    for empty in range(suffix):
      nothing = [np.zeros_like(column) for column in columns]
      ring_logs.write_shard(directory, empty, 0, *nothing)
    ring_logs.write_shard(directory, suffix, 33, *columns)
    opened = known_runs.open_store(directory)
    draws[suffix] = sampler.Sampler(opened, stack_size, seed=0)
    found[suffix] = [
      (len(episode.action), episode.begins_at_reset, episode.ended)
      for episode in episodes.Reader(run_directories.as_run(str(directory)))
    ]
  assert found[1] == found[0] and len(found[0]) > 1
  valid = np.flatnonzero(numbers[:32])
  np.testing.assert_array_equal(draws[1].valid_rows(), valid)
  known_runs.assert_same(draws[1].batch(0, 64), draws[0].batch(0, 64))
