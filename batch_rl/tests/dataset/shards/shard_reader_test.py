"""The shard format: what is written is what is read, by us and by Dopamine."""

import gzip
import os
import pickle
import shutil

import numpy as np
import pytest
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_rl  # noqa: F401  (prepares the process for Dopamine)
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.tests import shards

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=12)
CAPACITIES = st.integers(9, 60)
STACK_SIZES = st.integers(1, 5)


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, capacity=CAPACITIES, stack_size=STACK_SIZES)
def test_every_row_is_on_disk_once_and_in_order(
  tmp_path_factory, lengths, capacity, stack_size
):
  directory = tmp_path_factory.mktemp('log')
  expected = shards.write_run(directory, lengths, capacity, stack_size)
  assert shards.read_run(directory) == expected
  assert not os.path.exists(directory / 'partial')


@settings(max_examples=30, deadline=None)
@given(lengths=LENGTHS, capacity=CAPACITIES, stack_size=STACK_SIZES)
def test_shards_equal_dumps_of_dopamines_memory(
  tmp_path_factory, lengths, capacity, stack_size
):
  """Row by row, a Dopamine ring dumped when its cursor is at capacity - 1."""
  ours = tmp_path_factory.mktemp('ours')
  shards.write_run(ours, lengths, capacity, stack_size)

  class DumpingMemory(circular_replay_buffer.OutOfGraphReplayBuffer):
    dumps = []

    def _add(self, *args):
      super()._add(*args)
      if self.cursor() == self._replay_capacity - 1:
        columns = {name: array.copy() for name, array in self._store.items()}
        self.dumps.append((columns, int(self.add_count), self.invalid_range))

  memory = DumpingMemory((2, 2), stack_size, capacity, 1)
  memory.dumps = []
  for episode in shards.make_episodes(lengths):
    for row in episode:
      shards.add_row(memory, row)
  for suffix, (columns, add_count, invalid_range) in enumerate(memory.dumps):
    loaded = shard_reader.read_shard(str(ours), suffix)
    assert loaded.add_count == add_count == (suffix + 1) * capacity - 1
    # Shard 0's last row was never written: whatever NumPy found in memory.
    rows = capacity if suffix else capacity - 1
    for name, column in columns.items():
      np.testing.assert_array_equal(loaded.columns[name][:rows], column[:rows])
      assert loaded.columns[name].dtype == column.dtype
    path = ours / shard_files.file_name('invalid_range', suffix)
    written = shard_reader.read_array(str(path))
    assert written.tolist() == list(invalid_range)
    assert written.dtype == np.int64


def test_dopamine_loads_our_shards(tmp_path):
  expected = shards.write_run(tmp_path, [40, 40, 40], capacity=50)
  for suffix in (0, 1, 2):
    memory = circular_replay_buffer.OutOfGraphReplayBuffer((2, 2), 4, 50, 8)
    memory.load(str(tmp_path), suffix)
    batch = memory.sample_transition_batch()
    states, rows = batch[0], batch[7]
    for state, row in zip(states, rows, strict=True):
      in_run = suffix * 50 + row
      frames = [expected[in_run - back].frame for back in (3, 2, 1, 0)]
      assert state[0, 0].tolist() == frames


@pytest.mark.parametrize('with_episode_ends', [True, False])
def test_we_load_dopamines_shards(tmp_path, with_episode_ends):
  memory = circular_replay_buffer.OutOfGraphReplayBuffer((2, 2), 4, 50, 8)
  for episode in shards.make_episodes([20, 45]):
    for row in episode:
      shards.add_row(memory, row)
  memory.save(str(tmp_path), 7)
  if not with_episode_ends:
    os.remove(tmp_path / 'episode_end_indices_ckpt.7.gz')
  assert shard_files.list_suffixes(str(tmp_path)) == [7]
  loaded = shard_reader.read_shard(str(tmp_path), 7)
  assert loaded.add_count == 20 + 45 + 6
  for name, column in memory._store.items():
    np.testing.assert_array_equal(loaded.columns[name], column)


def test_files_are_those_of_the_dataset(tmp_path):
  """Names, dtypes and counters that the original stack wrote (FACTS)."""
  shards.write_run(tmp_path, [120], capacity=50)
  assert sorted(os.listdir(tmp_path)) == sorted(
    [
      f'{n}_ckpt.{k}.gz'
      for k in (0, 1, 2)
      for n in ('add_count', 'invalid_range')
    ]
    + [
      f'$store$_{n}_ckpt.{k}.gz'
      for k in (0, 1, 2)
      for n in ('observation', 'action', 'reward', 'terminal')
    ]
    + ['manifest.json']
  )
  with gzip.open(tmp_path / 'invalid_range_ckpt.1.gz') as file:
    assert file.read(8) == b'\x93NUMPY\x01\x00'
    file.seek(0)
    assert np.load(file).tolist() == [48, 49, 0, 1, 2]
  dtypes = {
    'observation': '|u1',
    'action': '<i4',
    'reward': '<f4',
    'terminal': '|u1',
  }
  for name, dtype in dtypes.items():
    array = shard_reader.read_array(
      str(tmp_path / shard_files.file_name(name, 1))
    )
    assert array.dtype.str == dtype
  assert (
    shard_reader.read_array(str(tmp_path / 'add_count_ckpt.1.gz')).dtype
    == '<i8'
  )
  # 123 rows: 49, then 50 more, and the rest in the final one.
  assert shard_reader.read_shard(str(tmp_path), 1).add_count == 99
  assert shard_reader.read_shard(str(tmp_path), 2).add_count == 23


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_never_read_as_data(tmp_path_factory, data):
  directory = tmp_path_factory.mktemp('log')
  shards.write_run(directory, [30], capacity=40)
  name = data.draw(st.sampled_from(shard_files.FILES))
  path = directory / shard_files.file_name(name, 0)
  content = bytearray(path.read_bytes())
  truncated = data.draw(st.booleans())
  if truncated:
    content = content[: data.draw(st.integers(0, len(content) - 1))]
  else:
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
  intact = shard_reader.read_array(str(path))
  path.write_bytes(content)
  try:
    read = shard_reader.read_array(str(path))
  except ValueError as error:
    assert str(path) in str(error)
    assert '\n' not in str(error)
  else:
    # Only bits that gzip does not use (time stamp, fill after a block) may pass.
    assert not truncated
    np.testing.assert_array_equal(read, intact)


class _Exploit:
  def __reduce__(self):
    return (os.mkdir, ('exploited',))


def test_pickles_are_refused(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = tmp_path / 'x.gz'
  array = np.array([_Exploit()], dtype=object)
  for write in (
    lambda file: np.save(file, array, allow_pickle=True),
    lambda file: pickle.dump(_Exploit(), file),
  ):
    with gzip.open(path, 'wb') as file:
      write(file)
    with pytest.raises(ValueError, match='x.gz is damaged'):
      shard_reader.read_array(str(path))
  assert not os.path.exists('exploited')


def test_wrong_dtype_and_length_are_refused(tmp_path):
  shards.write_run(tmp_path, [30], capacity=40)
  path = tmp_path / shard_files.file_name('action', 0)
  for array, message in (
    (np.zeros(40, np.float64), 'expected int32'),
    (np.zeros(39, np.int32), '39 rows'),
  ):
    with gzip.open(path, 'wb') as file:
      np.save(file, array)
    with pytest.raises(ValueError, match=message):
      shard_reader.read_shard(str(tmp_path), 0)


def test_an_incomplete_shard_is_named(tmp_path):
  shards.write_run(tmp_path, [60], capacity=40)
  os.remove(tmp_path / shard_files.file_name('reward', 1))
  with pytest.raises(ValueError, match='Shard 1 .*reward_ckpt.1.gz'):
    shard_files.list_suffixes(str(tmp_path))


def test_usual_mistakes_with_the_directory(tmp_path):
  run = tmp_path / 'Pong' / '1'
  shards.write_run(run / 'replay_logs', [20], capacity=40)
  (tmp_path / 'Pong' / '2').mkdir()
  assert shard_files.replay_logs_dir(str(run)) == str(run / 'replay_logs')
  for path, message in (
    (run / 'replay_logs', 'give the run directory above'),
    (tmp_path / 'Pong', 'game directory with runs 1, 2'),
    (tmp_path, r'found: Pong'),
    (tmp_path / 'nowhere', 'No such file'),
  ):
    with pytest.raises(ValueError, match=message):
      shard_files.replay_logs_dir(str(path))
  shutil.rmtree(run / 'replay_logs')
  (run / 'replay_logs').mkdir()
  with pytest.raises(ValueError, match='empty of shards'):
    shard_files.replay_logs_dir(str(run))


@settings(max_examples=50, deadline=None)
@given(
  dtype=st.sampled_from(['u1', '<i4', '<f4', '<f8', '>i8', '?']),
  shape=st.lists(st.integers(0, 4), max_size=4),
)
def test_arrays_are_read_as_numpy_reads_them(tmp_path_factory, dtype, shape):
  path = tmp_path_factory.mktemp('array') / 'x.gz'
  array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
  with gzip.open(path, 'wb') as file:
    np.save(file, array)
  read = shard_reader.read_array(str(path))
  np.testing.assert_array_equal(read, array)
  assert (read.dtype, read.shape) == (array.dtype, array.shape)
