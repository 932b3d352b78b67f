"""The contract of every online agent."""

import gc
import inspect
import json
import pickle
import random
import re
import sys
import tempfile

import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.agents import backups
from batch_rl.baselines.agents import REGISTRY
from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.tests import cartpole, shards
from batch_rl.tests.dataset.checks import run_files

CLASSES = REGISTRY.load_all()
MEMORY = """
    WrappedReplayBuffer.replay_capacity = 70
    WrappedReplayBuffer.batch_size = 8
    WrappedLoggedReplayBuffer.replay_capacity = 70
    WrappedLoggedReplayBuffer.batch_size = 8
    WrappedLoggedReplayBuffer.shard_capacity = 40
    RandomAgent.shard_capacity = 40
"""
GAMMA = 0.5  # Bound under the gin name of each learner.


@pytest.fixture
def make_agent(tmp_path):
  """Returns a function that builds an agent which logs to `tmp_path`, or Dopamine's."""

  def make(name, class_=None, graph_seed=None, **kwargs):
    gin.parse_config(MEMORY)
    if name != 'random':
      gin.bind_parameter(f'{CLASSES[name].__name__}.gamma', GAMMA)
      kwargs.setdefault('optimizer', tf.compat.v1.train.AdamOptimizer(0.01))
      kwargs.setdefault('min_replay_history', 20)
      kwargs.setdefault('update_period', 1)
    kwargs |= cartpole.OBSERVATION | cartpole.SMALL[name]
    log_dir = [] if class_ else [str(tmp_path)]
    with tf.Graph().as_default(), cartpole.small_layers():
      tf.compat.v1.set_random_seed(graph_seed)
      make_one = class_ or CLASSES[name]
      return make_one(None, cartpole.NUM_ACTIONS, *log_dir, **kwargs)

  return make


def play(agent, lengths, seed=0):
  """Plays episodes of noise; returns the expected rows, by column."""
  random = np.random.default_rng(seed)
  rows = []
  for length in lengths:
    observation = random.uniform(-1, 1, (4, 1))
    action = agent.begin_episode(observation)
    for step in range(length):
      terminal = step == length - 1
      reward = np.float32(random.uniform(-1, 1))
      rows.append((observation, action, reward, terminal))
      observation = random.uniform(-1, 1, (4, 1))
      if terminal:
        agent.end_episode(reward)
      else:
        action = agent.step(reward, observation)
  columns = zip(*rows, strict=True)
  return dict(zip(shard_files.COLUMNS, map(np.array, columns), strict=True))


def online_weights(agent):
  """Returns the weights as one vector; [] for the random agent."""
  if isinstance(agent, CLASSES['random']):
    return []
  return cartpole.weights(agent, 'Online')


@pytest.mark.parametrize('name', CLASSES)
def test_trains_and_logs_across_a_checkpoint(name, make_agent, tmp_path):
  """The agent after the checkpoint starts from offline weights before it."""
  agent = make_agent(name)
  assert name == 'random' or agent.gamma == GAMMA
  weights = online_weights(agent)
  before = play(agent, [20])
  # It trains once there is a history.
  np.testing.assert_array_equal(weights, online_weights(agent))
  before = shards.join(before, play(agent, [5], seed=5))
  assert np.isfinite(online_weights(agent)).all()
  assert name == 'random' or not np.array_equal(weights, online_weights(agent))
  before = shards.join(before, play(agent, [75], seed=6))
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 7))
  if name != 'random':  # `resume_test` goes on with the memory.
    steps, variables = agent.training_steps, cartpole.values(agent)
  play(agent, [33], seed=1)  # Not in the checkpoint, so it is lost.

  fresh = make_agent(name) if name == 'random' else started(name, make_agent)
  assert not fresh.unbundle(str(tmp_path), 7, None)
  assert fresh.unbundle(str(tmp_path), 7, pickle.loads(bundle))
  if name != 'random':
    assert fresh.training_steps == steps
    np.testing.assert_equal(cartpole.values(fresh), variables)
    slots = [v for v in variables if re.fullmatch('Online/.*/Adam(_1)?', v)]
    assert slots and all(variables[slot].any() for slot in slots)
  rows = shards.join(before, play(fresh, [25, 30, 1, 44], seed=2))
  assert set(rows['action'][100:]) == set(range(cartpole.NUM_ACTIONS))

  # Unclipped rewards are logged, evaluations are not.
  weights = online_weights(fresh)
  fresh.eval_mode = True
  evaluated = play(fresh, [30], seed=3)
  assert set(evaluated['action']) <= set(range(cartpole.NUM_ACTIONS))
  np.testing.assert_array_equal(weights, online_weights(fresh))
  fresh.eval_mode = False
  rows = shards.join(rows, play(fresh, [10], seed=4))
  fresh.begin_episode(np.zeros((4, 1)))
  for reward in (5.0, -0.5):
    fresh.step(logged_replay_buffer.ClippedReward(reward), np.zeros((4, 1)))
  fresh.end_episode(logged_replay_buffer.ClippedReward(-30))
  fresh.log_final_buffer()
  log_dir = tmp_path / 'replay_logs'
  logged = cartpole.read_log(log_dir)
  rewards = np.append(rows['reward'], [1, -0.5, -1])
  np.testing.assert_array_equal(logged['reward'], rewards)
  for column, expected in rows.items():
    found = logged[column][: len(expected)]
    np.testing.assert_array_equal(found, expected, err_msg=column)
  assert shard_files.list_suffixes(str(log_dir)) == [0, 1, 2, 3, 4, 5]
  manifest = json.loads((log_dir / 'manifest.json').read_text())
  total = rows['reward'].sum(dtype=np.float64)
  for kind, last in (('return', -0.5), ('unclipped_return', -25.5)):
    mean = manifest['episodes'][kind]['mean']
    assert mean == pytest.approx((total + last) / 9)


def started(name, make_agent):
  """Returns an agent that has the weights of an offline agent, and checks them."""
  with tempfile.TemporaryDirectory() as folder:
    cartpole.write_log(f'{folder}/data')
    offline = cartpole.build_offline_agent(name, f'{folder}/data')
    target = {
      variable: array + 1
      for variable, array in cartpole.values(offline).items()
      if variable.startswith('Target/')
    }
    cartpole.load_values(offline, target)
    offline.bundle_and_checkpoint(folder, 3)
    agent = make_agent(name, init_checkpoint_dir=folder)
  for network in 'Online', 'Target':
    expected, found = (cartpole.weights(a, network) for a in (offline, agent))
    np.testing.assert_array_equal(found, expected)
  assert target and not np.array_equal(found, online_weights(agent))
  assert agent.training_steps == 0
  for variable, array in cartpole.values(agent).items():
    assert not (variable.endswith('/Adam') and array.any())
  return agent


@pytest.mark.parametrize('name', ['dqn', 'random'])
def test_an_environment_may_reuse_its_array(name, make_agent, tmp_path):
  """Also if updates are to begin at once, before a transition is complete."""
  history = {} if name == 'random' else {'min_replay_history': 0}
  agent = make_agent(name, **history)
  board = np.zeros((4, 1))
  agent.begin_episode(board)
  for step in range(1, 30):
    board[:] = step
    agent.step(0.0, board)
  agent.end_episode(0.0)
  agent.log_final_buffer()
  logged = cartpole.read_log(tmp_path / 'replay_logs')['observation']
  np.testing.assert_array_equal(logged[:30, 0, 0], np.arange(30))


def test_updates_leave_no_objects_behind(make_agent):
  """TensorFlow leaks one for each result of a Python function without dimensions."""
  agent = make_agent('multi_head_dqn', transform_strategy='STOCHASTIC')
  play(agent, [30])
  agent.training_steps = 1000  # Python keeps small integers.
  for updates in 100, 2000:
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(updates):
      agent._sess.run(agent._train_op)
  gc.collect()
  assert sys.getallocatedblocks() - before < updates / 4


def test_an_agent_follows_one_of_dopamines_with_the_default_optimiser(
  make_agent,
):
  """Dopamine's has its variables in the object, which is the default of both."""
  parameters = inspect.signature(dqn_agent.DQNAgent).parameters
  given = {'optimizer': parameters['optimizer'].default}
  make_agent('dqn', class_=dqn_agent.DQNAgent, **given)
  agent, other = make_agent('dqn', **given), make_agent('dqn', **given)
  before = [online_weights(one) for one in (agent, other)]
  play(agent, [30])
  after = [online_weights(one) for one in (agent, other)]
  assert (before[0] != after[0]).any()
  np.testing.assert_array_equal(before[1], after[1])
  names = {v.split('/')[-1] for v in cartpole.values(agent)}
  assert {'RMSProp', 'RMSProp_1'} <= names


def test_heads_on_one_torso_are_no_separate_networks(make_agent, tmp_path):
  cartpole.write_log(tmp_path / 'data')
  offline = cartpole.build_offline_agent('multi_head_dqn', tmp_path / 'data')
  offline.bundle_and_checkpoint(str(tmp_path), 3)
  with pytest.raises(ValueError, match='does not fit the networks'):
    make_agent('multi_network_dqn', init_checkpoint_dir=str(tmp_path))


def test_damage_of_offline_data_ends_in_one_line(make_agent, tmp_path):
  cartpole.write_log(tmp_path / 'data/replay_logs')
  cache, memory = tmp_path / 'cache', 'WrappedLoggedReplayBuffer'
  gin.bind_parameter(f'{memory}.offline_dir', str(tmp_path / 'data'))
  gin.bind_parameter(f'{memory}.offline_fraction', 1.0)
  gin.bind_parameter(f'{memory}.offline_cache_dir', str(cache))
  agent = make_agent('dqn')
  run_files.flip_a_bit(next(cache.glob('*/shard-1.bin')), 10)
  with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
    play(agent, [200])


def test_dqn_acts_and_learns_as_dopamines(make_agent, tmp_path):
  """With summaries, evaluations, several steps and a schedule of epsilon."""
  settings = dict(update_horizon=3, gamma=GAMMA, update_period=2)
  settings |= dict(target_update_period=7, epsilon_train=0.2, graph_seed=1)
  settings |= dict(epsilon_decay_period=60, summary_writing_frequency=5)
  found = []
  for class_ in dqn_agent.DQNAgent, None:
    random.seed(1)
    np.random.seed(1)
    agent = make_agent('dqn', class_, summary_writer=str(tmp_path), **settings)
    actions = []
    for episode in range(6):
      agent.eval_mode = episode in (2, 4)
      actions += play(agent, [30], seed=episode)['action'].tolist()
    found.append((actions, cartpole.values(agent)))
  (theirs, variables), (ours, others) = found
  assert ours == theirs and len(set(ours)) > 1
  np.testing.assert_equal(others, variables)


# Its learning rate would never change.
CONSTANT = tf.compat.v1.train.GradientDescentOptimizer


@pytest.mark.parametrize(
  ('name', 'settings', 'error'),
  [
    ('dqn', lambda: dict(optimizer=CONSTANT(tf.constant(0.1))), 'tensor'),
    # It needs a column that only logged data has.
    (
      'dqn',
      lambda: dict(backup=backups.MonteCarlo()),
      'return_to_go, .* online',
    ),
    ('c51', lambda: dict(replay_scheme='prioritized'), "'prioritized'"),
    ('quantile', lambda: dict(replay_scheme='prioritized'), "'prioritized'"),
    ('random', lambda: dict(gama=0.5), 'gama'),
  ],
)
def test_settings_that_are_refused(make_agent, name, settings, error):
  with pytest.raises((ValueError, TypeError), match=error):
    make_agent(name, **settings())


@pytest.mark.parametrize('method', ['loss', 'acting_outputs'])
def test_stateful_random_numbers_are_named(
  make_agent, monkeypatch, method, caplog
):
  """A run that is resumed draws others."""
  make_agent('dqn')
  assert 'stateful' not in caplog.text
  original = getattr(CLASSES['dqn'], method)

  def noisy(agent, given):
    return tf.nest.map_structure(
      lambda tensor: tensor * tf.random.uniform(()), original(agent, given)
    )

  monkeypatch.setattr(CLASSES['dqn'], method, noisy)
  make_agent('dqn')
  assert 'stateful operation RandomUniform, so a resumed run' in caplog.text


def test_random_agent_acts_uniformly(make_agent):
  actions = play(make_agent('random'), [4000])['action']
  # Five standard deviations of a fair coin.
  assert abs((actions == 0).sum() - 2000) < 5 * np.sqrt(4000 * 0.25)
