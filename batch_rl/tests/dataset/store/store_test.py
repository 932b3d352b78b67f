"""A store has the rows of its shards, in time order."""

import hashlib
import os
import pickle
import shutil
import threading

import numpy as np
import pytest
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset import store
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.tests import known_runs, ring_logs, shards
from batch_rl.tests.dataset.store import stores


def hashes(directory):
  return {
    str(path): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(directory.rglob('*'))
    if path.is_file()
  }


@settings(max_examples=60, deadline=None)
@given(
  lengths=st.lists(st.integers(1, 40), min_size=1, max_size=10),
  capacity=st.integers(6, 60),
  dropped=st.integers(0, 5),
  on_disk=st.booleans(),
  length=st.integers(1, 30),
  data=st.data(),
)
def test_rows_equal_the_shards_in_time_order(
  tmp_path_factory, lengths, capacity, dropped, on_disk, length, data
):
  """Windows end at the first gap, and gaps are reported."""
  directory = tmp_path_factory.mktemp('run')
  run = known_runs.write_run(
    directory / 'logs', lengths, capacity, dropped=dropped
  )
  present = known_runs.remove_shards(run, data)
  before = hashes(directory)
  cache = str(directory / 'cache') if on_disk else None
  opened = stores.open_store(run.directory, directory=cache)
  kept = run.rows_of(present)
  assert stores.rows_in(opened) == [run.rows[row] for row in kept]
  has_gap = max(present) - min(present) >= len(present)
  assert bool(opened.problems) == has_gap
  assert all('no shard between' in problem for problem in opened.problems)
  starts = np.arange(len(kept) + 2)
  windows = opened.windows(starts, length)[..., 0, 0]
  for start, window in enumerate(windows.tolist()):
    expected = [
      run.rows[row].frame
      for i, row in enumerate(kept[start : start + length])
      if row == kept[start] + i
    ]
    assert window == expected + [0] * (length - len(expected))
  assert not opened.windows(np.array([-1, -40]), 1).any()
  after = hashes(directory)
  assert {path: after[path] for path in before} == before


def test_frames_of_the_sample_run(tmp_path):
  opened = stores.open_store(stores.SAMPLE, suffixes=[9, 10])
  [nine, ten] = opened.placements
  assert opened.rows == nine.rows + ten.rows == 30_000 + 12_041
  # A part at a time: copies of all frames would take more memory than the rest.
  windows = np.random.default_rng(0).integers(0, opened.rows - 5, 500)
  windows[:8] = nine.rows - np.arange(8)  # Across the two shards.
  windows = windows[:, None] + np.arange(5)
  expected = np.empty((500, 5, 84, 84), np.uint8)
  for placement, first in (nine, 0), (ten, nine.rows):
    loaded = shard_reader.read_shard(stores.SAMPLE, placement.suffix)
    frames, count = loaded.columns['observation'], placement.rows
    order = (placement.start + np.arange(count)) % placement.capacity
    for rows in np.array_split(np.arange(count), 20):
      np.testing.assert_array_equal(
        opened.frames(first + rows), frames[order[rows]]
      )
    inside = (windows >= first) & (windows < first + count)
    expected[inside] = frames[order[windows[inside] - first]]
  np.testing.assert_array_equal(opened.windows(windows[:, 0], 5), expected)
  assert opened.nbytes / opened.rows < 100  # Of 7,065 bytes uncompressed.


def test_frames_of_another_dtype(tmp_path):
  """Observations as CartPole's: (4, 1) float64."""
  memory = circular_replay_buffer.OutOfGraphReplayBuffer(
    (4, 1), 1, 50, 8, observation_dtype=np.float64
  )
  random = np.random.default_rng(0)
  for _ in range(30):
    memory.add(random.normal(size=(4, 1)), 300, 0.5, 0)
  memory.save(str(tmp_path), 0)
  opened = stores.open_store(tmp_path)
  np.testing.assert_array_equal(
    opened.frames(np.arange(30)), memory._store['observation'][:30]
  )
  assert set(opened.action) == {300} and set(opened.reward) == {0.5}


def test_remote_shards(tmp_path):
  """TensorFlow's in-memory file system replaces gs://."""
  import tensorflow as tf

  rows = shards.write_run(tmp_path / 'logs', [30] * 6, capacity=50)
  remote = 'ram://store_test/replay_logs'
  tf.io.gfile.makedirs(remote)
  for path in (tmp_path / 'logs').iterdir():
    if path.is_file():
      tf.io.gfile.copy(str(path), f'{remote}/{path.name}')
  assert stores.rows_in(stores.open_store(remote)) == rows
  cache = str(tmp_path / 'cache')
  assert stores.rows_in(stores.open_store(remote, directory=cache)) == rows
  assert stores.rows_in(stores.open_store(remote, directory=cache)) == rows
  with pytest.raises(ValueError, match='ram://nowhere'):
    store.Store('ram://nowhere')


@pytest.mark.parametrize('name', ['reward', 'add_count', 'observation'])
def test_damage_found_on_opening(tmp_path, name, caplog):
  shards.write_run(tmp_path, [30] * 6, capacity=50)
  (tmp_path / shard_files.file_name(name, 1)).write_bytes(b'')
  with pytest.raises(ValueError, match=rf'{name}_ckpt.1.gz is damaged'):
    store.Store(str(tmp_path))
  os.remove(tmp_path / shard_files.file_name('action', 2))
  with pytest.raises(ValueError, match='Shard 2 .* incomplete'):
    store.Store(str(tmp_path))
  opened = stores.open_store(tmp_path, skip_damaged=True)
  assert opened.suffixes == [0, 3]
  assert 'Shard 1 is not used' in caplog.text


def test_a_copy_in_another_process_has_the_same_shards(tmp_path, gate):
  logs, cache = tmp_path / 'logs', tmp_path / 'cache'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  gate.release(4)
  opened = stores.open_store(logs, directory=str(cache))
  opened.close()
  content = pickle.dumps(opened)
  os.remove(cache / 'shard-2.json')  # It has to be packed again.
  threading.Timer(0.2, gate.release).start()
  copy = pickle.loads(content)
  assert copy.packed == opened.packed
  assert stores.rows_in(copy) == rows
  copy.close()
  shutil.rmtree(logs)
  shards.write_run(logs, [25] * 8, capacity=50)
  with pytest.raises(ValueError, match='Shard 0 .* has changed since'):
    pickle.loads(content)


def test_a_copy_with_a_damaged_shard_is_an_error(tmp_path, monkeypatch):
  logs, cache = tmp_path / 'logs', tmp_path / 'cache'
  shards.write_run(logs, [30] * 6, capacity=50)
  opened = stores.open_store(logs, directory=str(cache), skip_damaged=True)
  opened.close()
  content = pickle.dumps(opened)
  os.remove(cache / 'shard-2.json')
  stores.damage_frames(monkeypatch, 2)
  with pytest.raises(ValueError, match='Shard 2 in .* is damaged, but was'):
    pickle.loads(content)


def test_a_copy_without_a_shard_is_an_error(tmp_path):
  logs, directory = tmp_path / 'logs', tmp_path / 'store'
  shards.write_run(logs, [30] * 6, capacity=50)
  store.convert(str(logs), str(directory))
  content = pickle.dumps(stores.open_store(directory, skip_damaged=True))
  os.remove(directory / 'shard-2.json')
  with pytest.raises(ValueError, match='There is no shard 2'):
    pickle.loads(content)


@pytest.mark.parametrize('value', [np.nan, -np.inf])
def test_rewards_that_are_not_finite_are_refused(tmp_path, value, caplog):
  shards.write_run(tmp_path / 'logs', [30] * 6, capacity=50)
  reward = np.zeros(50)
  reward[7] = value
  frames = np.zeros((50, 2, 2), np.uint8)
  ring_logs.write_shard(
    tmp_path / 'logs', 1, 99, frames, np.zeros(50), reward, np.zeros(50)
  )
  message = f'Shard 1 in .*logs has reward {value}; run `verify .*logs` to'
  with pytest.raises(ValueError, match=message):
    store.Store(str(tmp_path / 'logs'))
  opened = store.Store(str(tmp_path / 'logs'), skip_damaged=True, pack=False)
  assert opened.suffixes == [0, 2, 3]
  assert f'Shard 1 is not used: Shard 1 in {tmp_path}/logs has' in caplog.text
