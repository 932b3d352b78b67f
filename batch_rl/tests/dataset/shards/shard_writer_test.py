"""Written shards have every row once, in the format that Dopamine reads."""

import gzip

import numpy as np
import pytest
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import given
from hypothesis import strategies as st

import batch_rl.agents  # noqa: F401  (prepares the process for Dopamine)
from batch_rl.dataset.shards import shard_files, shard_reader, shard_writer
from batch_rl.tests import shards


@given(
  lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
  capacity=st.integers(9, 60),
  stack_size=st.integers(1, 5),
)
def test_shards_are_dopamines(tmp_path_factory, lengths, capacity, stack_size):
  """Dopamine's ring is dumped whenever its cursor is at capacity - 1."""
  ours = tmp_path_factory.mktemp('ours')
  shards.write_run(ours, lengths, capacity, stack_size)
  dumps = []

  class DumpingMemory(circular_replay_buffer.OutOfGraphReplayBuffer):
    def _add(self, *args):
      super()._add(*args)
      if self.cursor() == self._replay_capacity - 1:
        columns = {name: array.copy() for name, array in self._store.items()}
        dumps.append((columns, int(self.add_count), self.invalid_range))

  memory = DumpingMemory((2, 2), stack_size, capacity, 1)
  shards.add_rows(memory, sum(shards.make_episodes(lengths), []))
  for suffix, (columns, add_count, invalid_range) in enumerate(dumps):
    loaded = shards.read_shard(ours, suffix)
    assert loaded['add_count'] == add_count == (suffix + 1) * capacity - 1
    # Shard 0's last row was never written, so the memory there is arbitrary.
    rows = capacity if suffix else capacity - 1
    for name, column in columns.items():
      np.testing.assert_array_equal(loaded[name][:rows], column[:rows])
      assert loaded[name].dtype == column.dtype
    assert loaded['invalid_range'].tolist() == list(invalid_range)
    assert loaded['invalid_range'].dtype == np.int64


@pytest.mark.parametrize('block', [7, 64, 200])
def test_the_last_shard_is_filled_with_zeros(tmp_path, monkeypatch, block):
  """Zeros are compressed once in blocks; a resumed log replaces some by rows."""
  monkeypatch.setattr(shard_writer, '_ZEROS', block)
  log = shards.make_log(tmp_path, 50, 1, run_id='a')
  shards.add_rows(log, [shards.Row(7, 5, 2.0, 1)] * 60)
  state = log.checkpoint()
  log.close()
  with shards.make_log(tmp_path, 50, 1, run_id='a') as resumed:
    resumed.restore(state)
    shards.add_row(resumed, shards.Row(7, 5, 2.0, 1))
  # Ring position 49 of shard 1 holds the row before its row 0.
  for suffix, filled in ((0, [*range(49)]), (1, [*range(11), 49])):
    for name in shard_files.COLUMNS:
      path = shard_files.path(tmp_path, name, suffix)
      column = shard_reader.read_array(path)
      assert len(column) == 50 and (column[filled] == column[0]).all()
      assert column[0].all()
      assert not np.delete(column, filled, axis=0).any(), name
      with gzip.open(path) as file:
        assert file.read(8) == b'\x93NUMPY\x01\x00'  # as in the dataset
        file.seek(0)
        np.testing.assert_array_equal(np.load(file), column)


def test_checkpoints_and_complete_shards_are_durable(tmp_path, synced):
  log = shards.make_log(tmp_path / 'log', 40)
  shards.add_row(log, shards.Row(1, 0, 0.0, 1))
  log.checkpoint()
  assert {shard_files.file_name(n, 0) for n in shard_files.COLUMNS} < {*synced}
  synced.clear()
  log.close()
  assert {shard_files.file_name(n, 0) for n in shard_files.FILES} < {*synced}
  # The directory, after the files were renamed.
  last = max(i for i, name in enumerate(synced) if name == 'manifest.json.tmp')
  assert synced[last - 1] == 'log'
  # Truncated rows, before the shard that has them.
  assert synced[0] == 'manifest.json.tmp'
