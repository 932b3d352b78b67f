"""Batches of the memory of online agents that also have logged transitions."""

import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl import dataset
from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset.shards import manifests, replay_log
from batch_rl.tests import equations, shards

EXTRA = circular_replay_buffer.ReplayElement('colour', (), np.int32)
SHAPE, STACK, HORIZON, GAMMA = (3, 2), 2, 3, 0.9


def write_log(
  directory, lengths=(9, 4, 12), reward=1.0, num_actions=5, stack_size=STACK
):
  """Logs episodes of random frames."""
  random = np.random.default_rng(len(lengths))
  with replay_log.ReplayLog(directory, SHAPE, np.uint8, 100, stack_size) as log:
    for length in lengths:
      for step in range(length):
        frame = random.integers(1, 256, SHAPE)
        action = int(random.integers(num_actions))
        log.add(frame, action, reward * random.integers(2), step == length - 1)


@pytest.fixture
def offline_dir(tmp_path):
  write_log(tmp_path / 'offline/replay_logs')
  return str(tmp_path / 'offline')


def make_memory(tmp_path, offline_dir, **kwargs):
  """Returns a memory with rows of its own, whose frames are zero."""
  arguments = dict(batch_size=8, replay_capacity=50, seed=1) | kwargs
  arguments |= dict(update_horizon=HORIZON, gamma=GAMMA)
  with tf.Graph().as_default():
    memory = logged_replay_buffer.WrappedLoggedReplayBuffer(
      str(tmp_path / 'own'), SHAPE, STACK, offline_dir=offline_dir, **arguments
    ).memory
  for step in range(40):
    memory.add(np.zeros(SHAPE, np.uint8), step % 4, 0.5, step % 10 == 9)
  return memory


def test_logged_transitions_follow_the_memorys_own(tmp_path, offline_dir):
  """They are those of the log, by a reference that reads it step by step."""
  memory = make_memory(tmp_path, offline_dir, offline_fraction=0.6)
  log = shards.read_columns(f'{offline_dir}/replay_logs')
  np.random.seed(3)
  own = memory.sample_transition_batch(3, memory.sample_index_batch(3))
  seen, elements = set(), memory.get_transition_elements()
  for number in range(50):
    np.random.seed(3)
    arrays = memory.sample_transition_batch()
    for array, e in zip(arrays, elements, strict=True):
      assert array.dtype == e.type and array.shape == tuple(e.shape)
    np.testing.assert_equal([a[:3] for a in arrays], list(own))
    batch = {e.name: a for e, a in zip(elements, arrays, strict=True)}
    assert batch['indices'][3:].tolist() == [-1] * 5
    for i in range(3, 8):
      same = (log['observation'] == batch['state'][i, ..., -1]).all(axis=(1, 2))
      [row] = np.flatnonzero(same)
      seen.add(row)
      check_transition({k: v[i] for k, v in batch.items()}, log, row)
    assert memory.offline.next_batch == number + 1
  valid = dataset.open(offline_dir).transitions(STACK, HORIZON, GAMMA)
  # Rows of the log count its padding, too.
  assert len(seen) == valid.num_transitions > 15


def check_transition(transition, log, row):
  rewards, terminals = log['reward'], log['terminal']
  total, ends = equations.n_step(rewards, terminals, row, HORIZON, GAMMA)
  assert transition['terminal'] == ends
  assert transition['action'] == log['action'][row]
  assert transition['reward'] == pytest.approx(total)
  # The next state of a terminal transition has no meaning.
  for name, last in [('state', row), ('next_state', row + HORIZON)][: 2 - ends]:
    frames = log['observation'][last + 1 - STACK : last + 1]
    expected = np.moveaxis(frames, 0, -1)
    np.testing.assert_array_equal(transition[name], expected, err_msg=name)


def test_a_directory_without_share_is_warned_of(tmp_path, offline_dir, caplog):
  memory = make_memory(tmp_path, offline_dir)
  assert memory.offline is None and 'offline_fraction is 0' in caplog.text


def test_a_subset_is_drawn_from_and_described(tmp_path, offline_dir):
  subset = 'first_trajectories(0.4)'
  given = dict(offline_subset=subset, offline_cache_dir=str(tmp_path / 'cache'))
  memory = make_memory(tmp_path, offline_dir, offline_fraction=1.0, **given)
  assert any((tmp_path / 'cache').iterdir())
  log = shards.read_columns(f'{offline_dir}/replay_logs')
  first = log['observation'][: 9 + STACK - 1]
  for _ in range(5):
    states = memory.sample_transition_batch()[0][..., -1]
    assert all((first == state).all(axis=(1, 2)).any() for state in states)
  described = memory.offline.describe()
  run = dataset.open(offline_dir).transitions(STACK, subset=subset)
  assert described['subset_hash'] == run.subset_hash()
  assert (described['trajectories'], described['shards']) == (1, [0])
  assert memory.offline.file_hashes()


@pytest.mark.parametrize(
  ('settings', 'error'),
  [
    (dict(offline_dir=None), 'bind WrappedLoggedReplayBuffer.offline_dir'),
    (dict(offline_fraction=0.05), 'is 0 transitions.* from 0.12 to 1'),
    (dict(offline_fraction=1.2), 'is 10 transitions'),
    (dict(offline_subset='first_trajectory(1)'), 'first_trajectory'),
    (dict(offline_dir='/nowhere'), '/nowhere'),
    (dict(observation_dtype=np.float32), 'uint8, the agent expects .*float32'),
    (dict(extra_storage_types=[EXTRA]), 'extra_storage_types'),
  ],
)
def test_what_does_not_fit_is_refused(tmp_path, offline_dir, settings, error):
  given = dict(offline_dir=offline_dir, offline_fraction=0.5) | settings
  with pytest.raises(ValueError, match=error):
    make_memory(tmp_path, **given)


def test_data_without_a_transition_are_refused(tmp_path):
  write_log(tmp_path / 'replay_logs', lengths=(1, 1), stack_size=1)
  with pytest.raises(ValueError, match='No valid transition'):
    make_memory(tmp_path, str(tmp_path), offline_fraction=0.5)


def test_actions_and_rewards_are_checked(tmp_path, caplog):
  write_log(tmp_path / 'replay_logs', reward=-128, num_actions=3)
  memory = make_memory(tmp_path, str(tmp_path), offline_fraction=0.5)
  memory.offline.check_actions(3)
  with pytest.raises(ValueError, match='holds action 2, but .* has 2 actions'):
    memory.offline.check_actions(2)
  with pytest.raises(ValueError, match='rewards of up to 128'):
    memory.offline.check_rewards(clips=True)
  memory.offline.check_rewards(clips=False)
  assert 'may be clipped' not in caplog.text
  data, own = tmp_path / 'data/replay_logs', dict(offline_fraction=0.5)
  write_log(data)
  offline = make_memory(tmp_path / 'new', str(data.parent), **own).offline
  offline.check_rewards(clips=False)  # Its manifest has equal returns.
  assert 'may be clipped' not in caplog.text
  manifests.write(str(data), {'manifest_version': 1})
  offline.check_rewards(clips=False)
  assert 'holds rewards in [-1, 1], which may be clipped' in caplog.text
