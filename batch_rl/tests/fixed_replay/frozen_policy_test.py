"""The trained policy of another run as an input of an agent."""

import json
import shutil
import types

import gin
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from batch_rl.agents import policies
from batch_rl.fixed_replay import frozen_policy, recorded_run, train
from batch_rl.fixed_replay.agents import dqn_agent, fixed_replay_agent
from batch_rl.runs.bindings import gin_internals
from batch_rl.tests import cartpole, programs
from batch_rl.tests.fixed_replay import evaluate_test

STATES = np.random.default_rng(0).uniform(-1, 1, (40, 4, 1, 1))


def outputs_of(agent, states=STATES):
  """Returns the outputs of the frozen agent for states, and whether it draws."""
  network = frozen_policy.freeze(agent)
  assert 'PyFunc' not in str(network.graph)  # of an agent that is gone by then
  seeds = np.random.default_rng(0).integers(2**31, size=(len(states), 2))
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    outputs = network(tf.constant(states), tf.constant(seeds))
    assert not tf.compat.v1.global_variables()
    return session.run(outputs), network.draws


@pytest.mark.parametrize('name', cartpole.OFFLINE_CLASSES)
def test_each_agent_is_frozen_as_it_acts(name, shared_agents):
  agent = shared_agents(name)
  outputs, draws = outputs_of(agent)
  generators = [np.random.default_rng(0)] * len(STATES)
  actions = agent.select_actions(np.moveaxis(STATES, -1, 1), generators)
  assert not draws
  np.testing.assert_array_equal(outputs.probabilities, np.eye(5)[actions])
  with agent._sess.graph.as_default():
    q_values = agent.online(tf.constant(STATES)).q_values
  expected = agent._sess.run(q_values)
  np.testing.assert_allclose(outputs.q_values, expected, atol=1e-5)


class Sampling(dqn_agent.FixedReplayDQNAgent):
  """An agent that samples from a distribution that only it knows."""

  def choose_actions(self, outputs, seed):
    return policies.sample(outputs.q_values, seed)


class OfPython(dqn_agent.FixedReplayDQNAgent):
  def choose_actions(self, outputs, seed):
    values = [outputs.q_values]
    return tf.numpy_function(lambda q: q.argmax(1), values, tf.int64)


class Untempered(policies.Softmax):
  def __call__(self, outputs, seed):
    return policies.sample(outputs.q_values, seed)


def test_the_probabilities_of_a_policy_that_samples(make_agent):
  outputs, draws = outputs_of(make_agent(policy=policies.Softmax(0.5)))
  expected = scipy.special.softmax(outputs.q_values / 0.5, axis=1)
  assert not draws
  np.testing.assert_allclose(outputs.probabilities, expected, rtol=1e-5)
  agent, count = make_agent(class_=Sampling), 2000
  outputs, draws = outputs_of(agent, np.repeat(STATES[:1], count, axis=0))
  assert draws and (np.sort(outputs.probabilities) == [0, 0, 0, 0, 1]).all()
  expected = scipy.special.softmax(outputs.q_values[0])
  frequencies = outputs.probabilities.mean(0)
  assert frequencies == pytest.approx(expected, abs=4 * 0.5 / count**0.5)
  assert outputs_of(make_agent(policy=Untempered()))[1]  # It draws.
  with pytest.raises(ValueError, match='The policy of OfPython calls a Python'):
    frozen_policy.freeze(make_agent(class_=OfPython))
  softmax = policies.Softmax()
  assert not outputs_of(make_agent('multi_network_dqn', policy=softmax))[1]


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run of two iterations, and the options that trained it."""
  folder = tmp_path_factory.mktemp('other')
  data = folder / 'data/CartPole/1'
  cartpole.write_log(data / 'replay_logs')
  files = ['batch_rl/tests/sweep/configs/cartpole.gin']
  options = dict(replay_dir=str(data), gin_files=files, seed=1)
  programs.run_here(train, base_dir=str(folder / 'run'), **options)
  return folder / 'run', options


def fit(base_dir, other, options, *bindings):
  """Learns the values of the policy of another run."""
  bound = [
    'import batch_rl.fixed_replay.frozen_policy',
    'FixedReplayDQNAgent.backup = @PolicyOfRun()',
    f'PolicyOfRun.base_dir = "{other}"',
    *bindings,
  ]
  given = {**options, 'base_dir': str(base_dir)}
  programs.run_here(train, gin_bindings=bound, **given)


def names_in(base_dir):
  checkpoints = recorded_run.list_checkpoints(str(base_dir))
  return {n for n, _ in tf.train.list_variables(checkpoints[1].weights)}


def test_a_run_with_the_policy_of_another_run(run, tmp_path, refusal):
  run, options = run
  other, base_dir = tmp_path / 'other', tmp_path / 'fitted'
  shutil.copytree(run, other)
  fit(base_dir, other, options)
  record = json.loads((base_dir / 'run.json').read_text())
  identity = record['frozen_policies'][f'{other}, last']
  run_id = json.loads((other / 'run.json').read_text())['run_id']
  assert identity['run_id'] == run_id and identity['iteration'] == 1
  assert names_in(base_dir) == names_in(other)
  longer = 'FixedReplayRunner.num_iterations = 3'
  fit(base_dir, other, options, longer)
  assert 2 in recorded_run.list_checkpoints(str(base_dir))
  shutil.rmtree(other / 'checkpoints' / 'ckpt-1')
  printed = refusal(fit, base_dir, other, options, longer)
  assert "'iteration': 1" in printed and "'iteration': 0" in printed
  # Acting needs neither the other run nor its policy.
  shutil.rmtree(other)
  evaluate_test.evaluate_here(base_dir=str(base_dir), evaluation_steps=20)
  assert (base_dir / 'evaluations' / 'evaluate-2.json').exists()
  assert 'has no checkpoints' in refusal(fit, base_dir, other, options, longer)


def test_targets_are_means_over_the_policy_within_limits(run, log_dir):
  gin.clear_config()  # of the run
  backup = frozen_policy.PolicyOfRun(str(run[0]), returns=(0.9, 0.95))
  agent = cartpole.build_offline_agent('dqn', log_dir, backup=backup, gamma=0.5)
  assert [*agent.frozen_policies.values()] == [backup.policy.identity]
  with agent._sess.graph.as_default():
    batch = agent._replay_batch()
    found = agent._sess.run(
      {
        'target': backup(agent, batch).values[:, 0],
        'next_q': agent.target(batch.next_state).q_values,
        'pi': backup.policy.outputs(batch.next_state).probabilities,
        'reward': batch.reward,
        'follows': 1 - tf.cast(batch.terminal, tf.float32),
      }
    )
  values = (found['pi'] * found['next_q']).sum(1)
  targets = found['reward'] + 0.5 * found['follows'] * values
  assert targets.min() < 0.9 and targets.max() > 0.95
  expected = np.clip(targets, 0.9, 0.95)
  np.testing.assert_allclose(found['target'], expected, rtol=1e-5)


class ByFrozen(dqn_agent.FixedReplayDQNAgent):
  """Learns the values of the actions that a frozen policy draws."""

  frozen: frozen_policy.FrozenNetwork

  def loss(self, batch):
    seeds = tf.tile(batch.seed[None], (tf.shape(batch.state)[0], 1))
    drawn = self.frozen(batch.state, seeds).probabilities
    values = tf.reduce_sum(drawn * self.online(batch.state).q_values, axis=1)
    return (values - batch.reward) ** 2


def test_a_policy_that_draws_is_part_of_an_update(make_agent):
  ByFrozen.frozen = frozen_policy.freeze(make_agent(class_=Sampling))
  assert ByFrozen.frozen.draws
  assert np.isfinite(list(make_agent(class_=ByFrozen).train_steps(2))).all()


def test_mistakes_are_one_line(run, tmp_path, refusal):
  run, options = run
  for bindings, message in (
    (['PolicyOfRun.iteration = 7'], 'only of 0, 1'),
    (['PolicyOfRun.iteration = -1'], 'iteration=-1'),
    (['PolicyOfRun.returns = (5, 5)'], 'returns=(5, 5)'),
    (['PolicyOfRun.returns = 100'], 'returns=100 is not'),
    (['FixedReplayDQNAgent.observation_dtype = %tf.float32'], 'float64'),
  ):
    assert message in refusal(fit, tmp_path / 'fitted', run, options, *bindings)
  cartpole.write_log(tmp_path / 'Pong/1/replay_logs')
  other = {**options, 'replay_dir': str(tmp_path / 'Pong/1')}
  printed = refusal(fit, tmp_path / 'fitted', run, other)
  assert "is a run of CartPole-v1, but the game is 'Pong'" in printed


def test_an_agent_that_acts_by_the_policy_loads_it_when_it_is_used(run):
  gin.clear_config()
  with fixed_replay_agent.without_data():
    missing, policy = map(frozen_policy.FrozenPolicy, ('/missing', str(run[0])))
  assert policy.identity == {}
  agent = types.SimpleNamespace(num_actions=2, frozen_policies={})
  with tf.Graph().as_default():
    states = tf.constant(STATES)
    assert policy(agent, states).probabilities.shape[1] == 2
    assert [*agent.frozen_policies] == [f'{run[0]}, last']
    with pytest.raises(ValueError, match='/missing has no checkpoints'):
      missing(agent, states)


def test_the_policy_of_a_run_leaves_gin_as_it_was(run):
  gin.clear_config()  # of the run
  gin.parse_config('FixedReplayDQNAgent.gamma = 0.5')
  gin.finalize()
  before = gin.config_str()
  policy = frozen_policy.FrozenPolicy(str(run[0]), iteration=0)
  assert policy.identity['iteration'] == 0 and policy.gamma == 0.99
  assert gin.config_str() == before
  read = {name for _, name in gin_internals.read_values()}
  assert read == {'batch_rl.fixed_replay.frozen_policy.FrozenPolicy'}
  with pytest.raises(RuntimeError, match='lock'):
    gin.bind_parameter('FixedReplayDQNAgent.gamma', 0.6)
  with gin_internals.separate_config():
    gin.bind_parameter('FixedReplayDQNAgent.gamma', 0.6)
  assert gin.query_parameter('FixedReplayDQNAgent.gamma') == 0.5
