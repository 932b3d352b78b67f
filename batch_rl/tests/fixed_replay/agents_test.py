"""The contract of every offline agent."""

import pickle
import re

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.runs import initial_weights
from batch_rl.tests import cartpole

# For behaviour of `FixedReplayAgentMixin` alone, the same for all agents.
with_any_agent = pytest.mark.parametrize('name', ['dqn'], indirect=True)


@pytest.fixture(params=cartpole.OFFLINE_CLASSES)
def name(request):
  return request.param


@pytest.fixture
def agent(name, shared_agents):
  """An agent in its first state, shared by the tests."""
  return shared_agents(name)


def test_an_agent_trains_by_its_periods(agent, name):
  """`min_replay_history`, here larger than the data, has no effect."""
  first = cartpole.values(agent)
  for step in range(10):
    before = cartpole.values(agent)
    losses = list(agent.train_steps(1))
    assert len(losses) == (step % 4 == 0) and np.isfinite(losses).all()
    after = cartpole.values(agent)
    changed = {v for v in before if not np.array_equal(before[v], after[v])}
    if agent.uses_target:
      assert any(v.startswith('Target/') for v in changed) == (step % 6 == 0)
    if agent.uses_target and step % 6 == 0:
      weights = [cartpole.weights(agent, n) for n in ('Target', 'Online')]
      np.testing.assert_array_equal(*weights)
  assert agent.training_steps == 10
  online = [variable for variable in first if variable.startswith('Online/')]
  assert online
  for variable in online:
    assert not np.array_equal(first[variable], after[variable]), variable
  # gin has bound this for the class alone.
  assert agent.gamma == cartpole.GAMMA
  with pytest.raises(ValueError, match="named 'gama'"):
    gin.parse_config(f'{cartpole.OFFLINE_CLASSES[name].__name__}.gama = 0.5')


@with_any_agent
def test_acting_leaves_the_data_alone(agent):
  memory = agent._replay.memory
  count = memory.add_count
  assert count > 80  # of both shards
  for eval_mode, steps in (True, 0), (False, 2):
    agent.eval_mode = eval_mode
    agent.begin_episode(np.ones(4))
    agent.step(1.0, np.ones(4))
    agent.end_episode(1.0)
    assert agent.training_steps == steps
  assert memory.add_count == count == len(memory.valid_indices())


def test_evaluation_acts_greedily_and_explores_at_the_set_rate(agent):
  agent.eval_mode = True
  # Centred, because with its first weights or positive ones an agent may take the
  # same action everywhere.
  random = np.random.default_rng(1)
  variables = agent._sess.graph.get_collection('trainable_variables')
  arrays = {}
  for variable in variables:
    array = random.normal(size=variable.shape)
    arrays[variable.op.name] = array - array.mean(axis=0)
  cartpole.load_values(agent, arrays)
  before = cartpole.values(agent)
  with agent._sess.graph.as_default():
    values = agent.acting_outputs(agent.state_ph)
    values = getattr(values, 'q_values', values)
  observations = np.random.default_rng(0).uniform(-2, 2, (20, 4))
  states = observations.reshape(20, 1, 4, 1)
  actions = agent.select_actions(states, cartpole.generators(20)).tolist()
  assert len(set(actions)) > 1
  for observation, action in zip(observations, actions, strict=True):
    assert action == agent.begin_episode(observation)
    found = agent._sess.run(values, {agent.state_ph: agent.state})
    assert action == found.argmax()

  states = np.zeros((1000, 1, 4, 1))
  (greedy,) = agent.select_actions(states[:1], cartpole.generators(1))
  agent.epsilon_eval = 0.25
  one_each = cartpole.generators(1000)
  counts = np.zeros(5, int)
  for _ in range(10):
    actions = agent.select_actions(states, one_each)
    counts += np.bincount(actions, minlength=5)
  expected = np.full(5, 10_000 * 0.25 / 5)
  expected[np.argmax(counts)] += 10_000 * 0.75
  assert np.argmax(counts) == greedy
  assert np.sum((counts - expected) ** 2 / expected) < 18.5  # p = 0.001
  assert agent.training_steps == 0
  np.testing.assert_equal(before, cartpole.values(agent))


def test_infinite_weights_are_not_saved(agent, tmp_path):
  with agent._sess.graph.as_default():
    *_, last = tf.compat.v1.trainable_variables()
  for value in np.inf, np.nan:
    array = np.full(last.shape.as_list(), value, np.float32)
    cartpole.load_values(agent, {last.op.name: array})
    with pytest.raises(FloatingPointError, match='step 0: training has div'):
      agent.bundle_and_checkpoint(str(tmp_path), 0)
  assert not list(tmp_path.iterdir())


@with_any_agent
def test_out_of_memory_names_batch_and_network(agent, monkeypatch):
  def run(*arguments):
    raise tf.errors.ResourceExhaustedError(None, None, 'OOM of 9 GB\n...')

  monkeypatch.setattr(agent._loop, 'run', run)
  with pytest.raises(MemoryError, match='Cartpole.* 32.*OOM of 9 GB'):
    list(agent.train_steps(4))


def test_an_agent_without_data_only_acts():
  agent = cartpole.build_offline_agent('dqn', None)
  with pytest.raises(ValueError, match='has no data and only acts'):
    list(agent.train_steps(4))


def test_a_checkpoint_resumes_to_the_bit(agent, name, shared_agents, tmp_path):
  """In an agent that reads the data in another way."""
  list(agent.train_steps(9))  # The last synchronisation was at step 6.
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 7))
  saved = cartpole.values(agent)
  if agent.uses_target:
    target = cartpole.weights(agent, 'Target')
    assert not np.array_equal(target, cartpole.weights(agent, 'Online'))
  slots = [v for v in saved if re.fullmatch('Online/.*/Adam(_1)?', v)]
  assert slots and all(saved[slot].any() for slot in slots)
  losses = list(agent.train_steps(12))

  fresh = shared_agents(name, frames_on_device=True)
  others = {v: array + 1 for v, array in cartpole.values(fresh).items()}
  cartpole.load_values(fresh, others)
  fresh.training_steps = 10**6
  assert fresh.unbundle(str(tmp_path), 7, pickle.loads(bundle))
  assert fresh.training_steps == 9
  np.testing.assert_equal(cartpole.values(fresh), saved)
  fresh.begin_iteration(0, updates=3)  # at steps 0, 4 and 8
  assert list(fresh.train_steps(12)) == losses
  np.testing.assert_equal(cartpole.values(fresh), cartpole.values(agent))


@with_any_agent
def test_starts_from_the_newest_weights_of_a_run_only(agent, log_dir, tmp_path):
  (tmp_path / 'checkpoints').mkdir()
  for number in (9, 10):  # '10' < '9'
    list(agent.train_steps(4))
    agent.bundle_and_checkpoint(str(tmp_path / 'checkpoints'), number)
  started = cartpole.build_offline_agent(
    'dqn', log_dir, num_actions=5, init_checkpoint_dir=tmp_path
  )
  for network in 'Online', 'Target':
    weights = [cartpole.weights(a, network) for a in (agent, started)]
    np.testing.assert_array_equal(*weights)
  assert started.training_steps == 0
  for variable, array in cartpole.values(started).items():
    assert not (variable.endswith('/Adam') and array.any())


def test_data_without_iterations_go_on_after_a_checkpoint(log_dir, tmp_path):
  first, second = (cartpole.build_offline_agent('dqn', log_dir) for _ in '12')
  list(first.train_steps(9))
  bundle = first.bundle_and_checkpoint(str(tmp_path), 0)
  losses = list(first.train_steps(12))
  assert second.unbundle(str(tmp_path), 0, bundle)
  assert list(second.train_steps(12)) == losses


def test_refuses_data_with_more_actions_than_the_environment(log_dir):
  with pytest.raises(ValueError, match='action 1, but .* has 1 actions'):
    cartpole.build_offline_agent('dqn', log_dir, num_actions=1)


def write_checkpoint(directory, arrays):
  """Writes a checkpoint by TensorFlow alone, with TensorFlow 1's variables."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    for variable, array in arrays.items():
      tf.compat.v1.get_variable(variable, initializer=array, use_resource=False)
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver()
    saver.save(session, str(directory / 'tf_ckpt'), global_step=199)


LAYERS = 'Conv Conv_1 Conv_2 fully_connected fully_connected_1'.split()
# In Dopamine 1 and 2, and in Keras, which numbers layers through the graph.
SLIM = [(layer, 'weights', 'biases') for layer in 2 * LAYERS]
KERAS = 'conv2d conv2d_1 conv2d_2 dense dense_1 '
KERAS += 'conv2d_3 conv2d_4 conv2d_5 dense_2 dense_3'
UNNAMED = [(layer, 'kernel', 'bias') for layer in KERAS.split()]


@pytest.mark.parametrize('old', [SLIM, UNNAMED])
def test_checkpoints_of_tensorflow_1_are_loaded(old, tmp_path):
  """`atari_helpers_test` checks the names in networks."""
  saved, arrays = {}, {}
  for i, (layer, *ends) in enumerate(old):
    scope = ('Online', 'Target')[i // 5]
    for end, old_end in zip(('kernel', 'bias'), ends, strict=True):
      array = np.full(i % 5 + 1, len(saved), np.float32)
      arrays[f'{scope}/{LAYERS[i % 5]}/{end}'] = array
      saved[f'{scope}/{layer}/{old_end}'] = array
  # Such checkpoints also hold slots of the optimiser.
  saved[f'{next(iter(saved))}/RMSProp'] = np.zeros(3, np.float32)
  (tmp_path / 'checkpoints').mkdir()
  write_checkpoint(tmp_path / 'checkpoints', saved)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    get = tf.compat.v1.get_variable
    variables = {name: get(name, array.shape) for name, array in arrays.items()}
    initial_weights.load(session, str(tmp_path))
    np.testing.assert_equal(session.run(variables), arrays)


def test_statistics_of_a_network_are_loaded_and_no_slots(tmp_path):
  names = 'Online/kernel', 'Online/mean', 'Online/kernel/Adam', 'other/mean'
  zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
  write_checkpoint(tmp_path, dict.fromkeys(names, ones))
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variables = [
      tf.compat.v1.get_variable(n, initializer=zeros, trainable=n == names[0])
      for n in names
    ]
    session.run(tf.compat.v1.global_variables_initializer())
    initial_weights.load(session, str(tmp_path))
    expected = [ones, ones, zeros, zeros]
    np.testing.assert_array_equal(session.run(variables), expected)


@with_any_agent
def test_refuses_weights_of_other_networks(agent, tmp_path):
  (tmp_path / 'empty' / 'checkpoints').mkdir(parents=True)
  for folder in ('empty', 'missing'):
    with pytest.raises(ValueError, match=folder):
      initial_weights.load(agent._sess, str(tmp_path / folder))
  trainable = agent._sess.graph.get_collection('trainable_variables')
  *others, last = [variable.op.name for variable in trainable]
  arrays = cartpole.values(agent)
  arrays = {name: arrays[name] for name in (*others, last)}
  arrays[last] = arrays[last][:-1]  # without the bias of the last action
  write_checkpoint(tmp_path, arrays)
  with pytest.raises(ValueError, match=f'tf_ckpt-199 .* 1 of .* {last}'):
    initial_weights.load(agent._sess, str(tmp_path))
