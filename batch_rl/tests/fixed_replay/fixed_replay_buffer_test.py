import concurrent.futures
import functools
import logging

import numpy as np
import pytest
from dopamine.tf.replay_memory.circular_replay_buffer import ReplayElement

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import packer
from batch_rl.tests import old_code_test, shards
from batch_rl.tests.dataset.checks import run_files

STATE, INDICES = 0, 7
load = functools.partial(old_code_test.load, seed=0)


@pytest.mark.parametrize(
  ('shape', 'dtype'), [((84, 84), np.uint8), ((2, 2), np.float64)]
)
def test_other_frames_are_refused(tmp_path, shape, dtype):
  shards.write_run(tmp_path, [30], capacity=50)
  with pytest.raises(ValueError, match=r'\(2, 2\) uint8, .* expects .*bind'):
    load(tmp_path, observation_shape=shape, observation_dtype=dtype)


def test_damage_found_while_sampling_is_an_error(tmp_path):
  shards.write_run(tmp_path / 'logs', [30] * 4, capacity=50)
  load(tmp_path / 'logs', None, cache_dir=str(tmp_path / 'cache'))
  [binary] = (tmp_path / 'cache').glob('*/shard-1.bin')
  run_files.flip_a_bit(binary, 10)
  buffer = load(tmp_path / 'logs', None, cache_dir=str(tmp_path / 'cache'))
  with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
    for _ in range(20):
      buffer.sample_transition_batch(64)
  with pytest.raises(shard_reader.DataError, match='shard-1.bin'):
    buffer.raise_error()


def test_a_range_of_shards_can_be_chosen(tmp_path):
  shards.write_run(tmp_path, [30] * 4, capacity=50)
  limits = {'replay_file_start_index': 1, 'replay_file_end_index': 2}
  assert load(tmp_path, None, **limits)._store.suffixes == [1]
  with pytest.raises(ValueError, match='has 3, numbered 0 to 2'):
    load(tmp_path, None, replay_file_start_index=3)


def test_shards_are_redrawn_but_packed_once(tmp_path, packings):
  shards.write_run(tmp_path, [30] * 10, capacity=50)
  buffer = load(tmp_path, None, num_buffers=3)
  seen = set()
  for _ in range(20):
    assert len(buffer._replay_buffers) == 3
    drawn = set((buffer.sample_index_batch(500) // 50).tolist())
    assert drawn == {0, 1, 2}  # three concatenated rings
    seen |= set(buffer._backend._suffixes)
    buffer.reload_buffer(num_buffers=3)
  assert seen == set(range(7)) and sorted(packings) == [*range(7)]
  with pytest.raises(ValueError, match='num_buffers=0'):
    buffer.reload_buffer(0)
  with pytest.raises(ValueError, match='Row 10.9 is not an integer'):
    buffer.sample_transition_batch(1, [10.9])
  buffer.reload_buffer(num_buffers=100)  # more than exist
  assert len(buffer._replay_buffers) == 7


def test_replay_capacity_limits_the_rows_of_a_shard(tmp_path):
  rows = shards.write_run(tmp_path, [30] * 4, capacity=100)
  buffer = load(tmp_path, 0, replay_capacity=40)
  assert buffer.valid_indices().max() < 40
  assert len(buffer._replay_buffers[0]._store['terminal']) == 40
  batch = buffer.sample_transition_batch(100)
  newest = [rows[row].frame for row in batch[INDICES]]
  assert batch[STATE][:, 0, 0, -1].tolist() == newest


@pytest.mark.parametrize('rows', [100, 101, 102])
def test_a_final_shard_without_a_transition_is_skipped(tmp_path, rows):
  """Even if it is the only shard drawn."""
  shards.write_run(tmp_path, [rows - 3], capacity=50)
  assert shard_files.list_suffixes(str(tmp_path)) == [0, 1, 2]
  buffer = load(tmp_path, None, num_buffers=1)
  for _ in range(20):
    buffer.reload_buffer(1)
    assert buffer.add_count > 0
  assert load(tmp_path, None, num_buffers=None).add_count > 80
  with pytest.raises(ValueError, match='No valid transition in shard 2'):
    load(tmp_path, 2)


def test_a_view_waits_for_its_shard(tmp_path, gate):
  rows = shards.write_run(tmp_path, [30] * 4, capacity=50)  # three shards
  gate.release()
  buffer = load(tmp_path, None, num_buffers=1)
  [first] = buffer._backend._suffixes
  other = (first + 1) % 2
  view = buffer._load_buffer(other)
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    future = thread.submit(lambda: view._store['observation'][10, 0, 0])
    with pytest.raises(concurrent.futures.TimeoutError):
      future.result(0.05)
    gate.release(2)
    assert future.result(60) == rows[50 * other + 10].frame
  frames = view._store['observation']
  for key in (3, ..., (..., 0), (0, ..., 0), (slice(2), ..., None, 1), [4, 1]):
    np.testing.assert_array_equal(frames[key], np.array(frames)[key])


@pytest.mark.parametrize(
  ('name', 'value'),
  [
    *[('num_buffers', value) for value in (0, -1, 1.5, 2.0, 'two')],
    *[('batch_size', value) for value in (0, 8.0)],
    ('extra_storage_types', [ReplayElement('foo', (), np.float32)]),
    ('action_shape', (2,)),
    ('reward_shape', (2,)),
  ],
)
def test_a_wrong_argument_is_named(tmp_path, name, value):
  shards.write_run(tmp_path, [30] * 4, capacity=50)
  with pytest.raises(ValueError, match=f'^{name}='):
    load(tmp_path, None, **{name: value})


def test_skipping_a_damaged_shard_gives_one_hash(tmp_path, caplog):
  shards.write_run(tmp_path, [30] * 5, capacity=50)
  run_files.flip_a_bit(tmp_path / shard_files.file_name('observation', 1))
  ways = {'skip_damaged': True, 'subset': 'first_transitions(80)'}
  descriptions = [
    load(tmp_path, None, num_buffers=number, **ways).describe()
    for number in (None, 1)
  ]
  assert descriptions[0] == descriptions[1]
  assert descriptions[0]['shards'] == [0, 2, 3]
  buffer = load(tmp_path, None, skip_damaged=True)
  caplog.set_level(logging.INFO, 'absl')
  buffer.reload_buffer()
  assert 'waiting' not in caplog.text


def test_too_little_memory_is_reported_after_a_shard(tmp_path, monkeypatch):
  shards.write_run(tmp_path, [30] * 4, capacity=50)

  class NoMemory:
    available = 100

  monkeypatch.setattr(packer.psutil, 'virtual_memory', NoMemory)
  with pytest.raises(
    ValueError, match='set cache_dir .FixedReplayBuffer, open'
  ):
    load(tmp_path, None)
