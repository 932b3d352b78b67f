"""Rows are stitched in time order across gaps, repetitions and overlaps."""

import numpy as np
import pytest
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset import store
from batch_rl.dataset.shards import manifests, replay_log, shard_files
from batch_rl.dataset.store import packed_columns
from batch_rl.tests import known_runs, ring_logs, shards
from batch_rl.tests.dataset.store import stores


@settings(max_examples=60)
@given(limit=st.none() | st.integers(1, 70), data=st.data())
def test_each_row_has_its_place_in_a_ring(tmp_path_factory, limit, data):
  """The columns of the run are those of the files, row by row and ring by ring."""
  run, present = known_runs.draw_run(data, tmp_path_factory.mktemp('run'))
  present, capacity = sorted(present), run.capacity
  opened = store.Store(run.directory, max_rows=limit, pack=False)
  assert [p.capacity for p in opened.placements] == [capacity] * len(present)
  used = min(limit or capacity, capacity)
  limited = used < capacity
  whole = run.rows_of(set(present))
  found = []
  for i, suffix in enumerate(present):
    assert opened.capacity(suffix) == used
    files = shards.read_shard(run.directory, suffix)
    ring = np.arange(capacity)
    rows = opened.rows_of(np.full(capacity, suffix), ring)
    in_use = rows >= 0
    found += rows[in_use].tolist()
    packed = packed_columns.read(run.directory, suffix)
    assert opened.digest(suffix) == packed.digest
    expected = [np.full(in_use.sum(), i), ring[in_use]]
    np.testing.assert_array_equal(opened.ring_of(rows[in_use]), expected)
    for name in ('action', 'reward'):
      column = getattr(opened, name)[rows[in_use]]
      np.testing.assert_array_equal(column, files[name][in_use])
    ends = np.isin(rows[in_use], opened.ends)
    np.testing.assert_array_equal(ends, files['terminal'][in_use] != 0)
    # Row r of the run is at position r % capacity.
    logged = [row for row in whole if run.shard_of[row] == suffix]
    kept = [row for row in logged if not limited or row % capacity < used]
    assert sorted(ring[in_use]) == sorted(row % capacity for row in kept)
    count = int(files['add_count'])
    assert opened.add_count(suffix) == (len(kept) if limited else count)
  assert sorted(found) == list(range(opened.rows))
  assert opened.starts_at_reset == (present[0] == 0)
  actions = opened.action.tolist()
  expected = (min(actions), max(actions)) if actions else (0, -1)
  assert opened.action_range() == expected


def test_a_limit_may_leave_no_row_of_a_shard(tmp_path):
  """The last shard has only the last row of its ring."""
  run = known_runs.write_run(tmp_path, [1, 1, 1], 6)
  opened = store.Store(run.directory, max_rows=1, pack=False)
  assert opened.add_count(max(run.suffixes)) == 0


BOTH = 'terminal, at the time limit: not truncated'


@settings(max_examples=40)
@given(
  ends=st.lists(
    st.sampled_from(['no', 'no', 'terminal', 'truncated', BOTH]),
    min_size=1,
    max_size=90,
  ),
  capacity=st.integers(6, 40),
  data=st.data(),
)
def test_truncated_rows_are_as_logged(tmp_path_factory, ends, capacity, data):
  """The action of a row is its number; some shards are left out."""
  directory = str(tmp_path_factory.mktemp('log'))
  with replay_log.ReplayLog(directory, (), np.uint8, capacity, 1) as log:
    for row, end in enumerate(ends):
      log.add(1, row, 0.0, 'terminal' in end, 'truncated' in end)
  listed = shard_files.list_suffixes(directory)
  chosen = data.draw(st.sets(st.sampled_from(listed), min_size=1))
  opened = store.Store(directory, sorted(chosen), pack=False)
  kinds = np.array(ends)[opened.action]
  np.testing.assert_array_equal(opened.ends, np.flatnonzero(kinds != 'no'))
  truncated = np.flatnonzero(kinds == 'truncated')
  np.testing.assert_array_equal(opened.truncations, truncated)


def test_repeated_shard_is_used_once(tmp_path, caplog):
  rows = shards.write_run(tmp_path, [30] * 6, capacity=50)
  last = max(shard_files.list_suffixes(str(tmp_path)))
  stores.copy_shard(tmp_path, last, last + 1)
  stores.copy_shard(tmp_path, last - 1, last)
  (tmp_path / manifests.FILE_NAME).unlink()
  opened = stores.open_store(tmp_path)
  assert 'repeats 50 rows of shard' in caplog.text
  assert stores.rows_in(opened) == rows


def test_overlapping_checkpoints_are_joined(tmp_path):
  """Each of Dopamine's own checkpoints holds the whole ring."""
  memory = circular_replay_buffer.OutOfGraphReplayBuffer((2, 2), 4, 60, 8)
  for array in memory._store.values():
    array[...] = 0  # Dopamine leaves it uninitialised.
  memory._store['reward'][...] = np.nan
  episodes = shards.make_episodes([27, 31, 44, 29])
  rows, suffix = [], 0
  for episode in episodes:
    for row in episode:
      shards.add_row(memory, row)
      rows.append(row)
      if len(rows) % 25 == 0:
        memory.save(str(tmp_path), suffix)
        suffix += 1
  opened = stores.open_store(tmp_path)
  assert [row for row in stores.rows_in(opened) if row.frame] == rows[:125]
  assert all(p.follows for p in opened.placements[1:])
  for number in opened.suffixes:  # A ring begins at its cursor, at any step.
    alone = stores.open_store(tmp_path, suffixes=[number])
    frames = [row.frame for row in stores.rows_in(alone)]
    padding = [bool(frame) for frame in frames].index(True)
    assert alone.leading_padding(number) == padding


def test_two_runs_in_one_directory_are_refused(tmp_path):
  shards.write_run(tmp_path / 'a', [30] * 8, capacity=50)
  shards.write_run(tmp_path / 'b', [30] * 8, capacity=40)
  stores.copy_shard(tmp_path / 'b', 2, 2, to=tmp_path / 'a')
  for name in 'ab':
    (tmp_path / name / 'manifest.json').unlink()
  with pytest.raises(ValueError, match='50 and 40 rows'):
    store.Store(str(tmp_path / 'a'))
  stores.copy_shard(tmp_path / 'b', 0, 2)
  with pytest.raises(ValueError, match='add_count falls'):
    store.Store(str(tmp_path / 'b'))


@pytest.mark.parametrize('dtype, shape', [('u1', (0,)), ('f4', (2, 0))])
def test_empty_observations_are_refused(tmp_path, dtype, shape):
  frames = np.zeros((30, *shape), dtype)
  zeros = np.zeros(30)
  ring_logs.write_shard(tmp_path, 0, 29, frames, zeros, zeros, zeros)
  with pytest.raises(ValueError, match='shard 0 are empty'):
    store.Store(str(tmp_path), pack=False)
