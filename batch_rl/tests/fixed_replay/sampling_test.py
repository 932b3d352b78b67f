"""Batches of a fixed replay: threads, incoming shards and subsets."""

import concurrent.futures
import itertools

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl import dataset
from batch_rl.dataset.sampling import columns
from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.tests import known_runs
from batch_rl.tests.old_code_test import load

Wrapped = fixed_replay_buffer.WrappedFixedReplayBuffer


@pytest.fixture
def data_dir(known_run):
  return known_run.directory


# Idle feeds, a stuck one, and a stuck one that a thread waits for.
_EXIT = """
import sys, threading, time
import batch_rl.agents
import tensorflow as tf
from batch_rl.dataset.sampling import prefetch
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
tf.compat.v1.disable_v2_behavior()
prefetch._SECONDS_TO_EXIT = 0.1
# An error names the lines that built the node; TensorFlow does not keep their code.
code = sys._getframe().f_code
def make(stuck=False, **ways):
  replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
      sys.argv[1], None, (2, 2), 4, batch_size=8, **ways)
  sampler = replay.memory.sampler
  original = sampler.batches
  def batches(number, *args):
    if stuck and number > 100:
      threading.Event().wait()
    return original(number, *args)
  sampler.batches = batches
  return replay
replays = [make(), make(frames_on_device=True), make(True), make(True)]
session = tf.compat.v1.Session()
print(*(len(session.run(replay.indices)) for replay in replays))
def take():
  while True:
    session.run(replays[-1].indices)
threading.Thread(target=take, daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.waits
def test_python_exits_while_a_graph_waits_for_batches(data_dir, run_code):
  assert run_code(_EXIT, data_dir).stdout.split() == ['8'] * 4


@pytest.mark.parametrize('prefetch', [0, 8])
@pytest.mark.parametrize('way', [None, 'stack_on_device', 'frames_on_device'])
def test_a_feed_has_further_columns(data_dir, way, prefetch):
  names = 'return_to_go', 'timestep', 'weight', 'trajectory_return', 'steps'
  names += ('discount_after_log',)
  ways = {'batch_size': 8, 'columns': names, 'prefetch': prefetch}
  ways |= {way: True} if way else {'stack_on_device': False}
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    replay = Wrapped(data_dir, None, (2, 2), 4, seed=3, **ways)
    sampler = replay.memory.sampler
    store, chosen = sampler.store, sampler.trajectories
    returns = chosen.returns - chosen.returns.min()
    returns = returns / (returns.max() or 1)
    for number in range(3):
      found = session.run(replay.transition)
      assert found.keys() > set(names)
      for i, row in enumerate(sampler.draw(number, 8)):
        at = np.flatnonzero(chosen.begin <= row)[-1]
        rewards = store.reward[row : chosen.stop[at]].astype(float)
        expected = (rewards * 0.99 ** np.arange(len(rewards))).sum()
        assert found['return_to_go'][i] == pytest.approx(expected, rel=1e-6)
        is_cut = chosen.stop[at] - 1 not in store.ends
        expected = is_cut * 0.99 ** len(rewards)
        assert found['discount_after_log'][i] == pytest.approx(expected)
        assert found['timestep'][i] == row - chosen.begin[at] - 3  # padding
        assert found['trajectory_return'][i] == chosen.returns[at]
        assert found['steps'][i] == 1
        expected = np.exp((returns[at] - 1) / 0.1)
        assert found['weight'][i] == pytest.approx(expected, rel=1e-6)


def test_a_column_gets_the_rows_of_one_batch(data_dir, monkeypatch):
  monkeypatch.setattr(columns, 'COLUMNS', {**columns.COLUMNS})

  @dataset.column(float)
  def among(at):
    return at.rows - at.rows.mean()

  @dataset.column(np.float32)
  def broken(at):
    raise KeyError('own')

  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    replay = Wrapped(data_dir, None, (2, 2), 4, batch_size=8, columns=['among'])
    sampler = replay.memory.sampler
    for number in range(3):
      rows = sampler.draw(number, 8)
      found = session.run(replay.transition['among'])
      np.testing.assert_array_equal(found, rows - rows.mean())
    with pytest.raises(KeyError, match='own'):  # not TensorFlow's
      Wrapped(data_dir, None, (2, 2), 4, batch_size=8, columns=['broken'])
  with pytest.raises(ValueError, match="column 'amogn'.*among"):
    sampler.named_columns(rows, ['amogn'])
  with pytest.raises(TypeError):
    dataset.column(broken)


def test_an_unknown_column_is_refused_with_the_known_ones():
  with pytest.raises(ValueError, match="'returns'.*return_to_go"):
    Wrapped('missing', None, (2, 2), 4, columns=('returns',))
  for name in ('reward', 'return_to_go', 'count', 'seed'):
    with pytest.raises(ValueError, match=f'{name} is an attribute of batches'):
      dataset.column(np.float32)(type(name, (), {}))


@pytest.mark.parametrize('num_buffers', [None, 2])
def test_the_drawn_shards_are_loaded_first(data_dir, gate, num_buffers):
  """Otherwise early batches would see a part of the data."""
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    future = pool.submit(load, data_dir, seed=1, num_buffers=num_buffers)
    gate.release((num_buffers or 5) - 1)
    assert not concurrent.futures.wait([future], timeout=0.3).done
    gate.release()
    buffer = future.result()
  first = buffer.sample_transition_batch()
  gate.release(3)
  buffer._store.wait()
  assert num_buffers or buffer.add_count == sum(known_runs.LENGTHS)
  buffer.reseed(1)
  known_runs.assert_same(first, buffer.sample_transition_batch())


def test_a_foreign_byte_order_is_refused(data_dir):
  with pytest.raises(ValueError, match='>f4.*--format=shards.*=float32'):
    Wrapped(data_dir, None, (2, 2), 4, observation_dtype='>f4')


@pytest.mark.parametrize('prefix', ['', 'Wrapped'])
def test_gin_chooses_a_subset(data_dir, prefix):
  """A binding of the wrapped buffer has precedence."""
  text = 'shards(1) & first_transitions(33)'
  gin.bind_parameter('FixedReplayBuffer.subset', 'first_transitions(9)')
  gin.bind_parameter(f'{prefix}FixedReplayBuffer.subset', text)
  with tf.Graph().as_default():
    memory = Wrapped(data_dir, None, (2, 2), 4, batch_size=8).memory
  assert memory.add_count == 33
  assert memory.valid_indices().min() >= 49
  assert memory.describe()['subset'] == text
  indices = np.concatenate([memory.sample_index_batch(50) for _ in range(20)])
  assert set(indices) == set(memory.valid_indices())
  assert load(data_dir).add_count == (9 if prefix else 33)


def test_the_record_describes_the_data(data_dir, tmp_path):
  """The description does not depend on storage or reading."""
  text = 'random_trajectories(0.5)'
  in_memory = load(data_dir, subset=text)
  expected, hashes = in_memory.describe(), in_memory.file_hashes()
  every = itertools.product(shard_files.FILES, range(5))
  assert hashes.keys() == {shard_files.file_name(*file) for file in every}
  assert expected['subset'] == text and expected['trajectories'] == 3
  store.convert(data_dir, str(tmp_path / 'store'))
  cache = str(tmp_path / 'cache')
  for found in (
    load(data_dir, subset=text, seed=9, update_horizon=3),
    load(data_dir, subset=text, cache_dir=cache),
    load(data_dir, subset=text, cache_dir=cache),
    load(tmp_path / 'store', subset=text),
    load(data_dir, subset=text, stack_size=1, batch_size=32),
  ):
    assert found.describe() == expected
    assert found.file_hashes() == hashes
  other = load(data_dir).describe()
  assert other['subset'] is None and other['trajectories'] == 6
  assert other['subset_hash'] != expected['subset_hash']
