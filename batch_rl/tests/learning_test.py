"""Agents learn CartPole from logged data.

The reward is 1 in each step, so that only the ends of episodes distinguish good
actions from bad ones: an agent learns if, and only if, the right transitions are
terminal. Online, `baselines/agents_test` has a DQN that learns as Dopamine's does.
"""

import functools
import json

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.baselines import run_experiment as online
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import agents as offline_agents
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.runs import command_line
from batch_rl.tests import cartpole, gin_lines

# Returns are at most 200. With other seeds, too, an agent that has learnt returns
# 130 to 200, random actions 22, and an agent that does not learn 9 to 40.
LEARNT = 100

EVERYWHERE = """
    import dopamine.discrete_domains.gym_lib
    create_gym_environment.environment_name = 'CartPole'
    create_gym_environment.version = 'v1'
    {runner}.create_environment_fn = @gym_lib.create_gym_environment
    {runner}.max_steps_per_episode = 200
    {agent}.observation_shape = %gym_lib.CARTPOLE_OBSERVATION_SHAPE
    {agent}.observation_dtype = %gym_lib.CARTPOLE_OBSERVATION_DTYPE
    {agent}.stack_size = %gym_lib.CARTPOLE_STACK_SIZE
"""
RANDOM = """
    run_seed.seed = 1
    create_online_agent.agent_name = 'random'
    RandomAgent.shard_capacity = 2500
    LoggedRunner.num_iterations = 1
    LoggedRunner.training_steps = 10000
    LoggedRunner.evaluation_steps = 2000
"""
LEARNER = """
    import gin.tf.external_configurables
    {create_agent}.agent_name = '{name}'
    {agent}.network = @CartpoleDQNNetwork
    {agent}.gamma = 0.9
    {agent}.epsilon_eval = 0.0
    {agent}.optimizer = @tf.train.AdamOptimizer()
    tf.train.AdamOptimizer.learning_rate = 0.003
    tf.train.AdamOptimizer.epsilon = 0.0003125
"""
HEADS = {
  'dqn': '',
  'multi_head_dqn': """
    {agent}.num_heads = 20
    {agent}.transform_strategy = 'STOCHASTIC'
""",
}
OFFLINE = """
    run_seed.seed = 1
    {agent}.update_period = 4
    {agent}.target_update_period = 400  # agent steps: 100 updates
    WrappedFixedReplayBuffer.num_buffers = 2  # of five, redrawn each iteration
    FixedReplayRunner.num_iterations = 2
    FixedReplayRunner.probe_size = 40
    FixedReplayRunner.training_steps = 1600  # agent steps: 400 updates
    FixedReplayRunner.evaluation_steps = 400
"""


def offline_dqn(*bindings):
  """Returns gin bindings of an offline DQN, formatted as the further `bindings`."""
  text = '\n'.join((EVERYWHERE, LEARNER, *bindings))
  classes = dict(runner='FixedReplayRunner', agent='FixedReplayDQNAgent')
  return text.format(create_agent='create_offline_agent', name='dqn', **classes)


def offline_creator(data_dir):
  """Returns the function by which a runner creates agents on shards."""
  create = offline.create_offline_agent
  return functools.partial(create, replay_data_dir=data_dir)


def online_creator(log_dir, **kwargs):
  """Returns the function by which a runner creates agents that log."""
  create = online.create_online_agent
  return functools.partial(create, replay_log_dir=str(log_dir), **kwargs)


def run_gin(runner_class, create_agent, base_dir, text):
  """Runs all iterations with gin bindings; returns the runner."""
  gin.clear_config()
  gin_lines.load([], [text])
  with tf.Graph().as_default():
    runner = runner_class(str(base_dir), create_agent)
    assert command_line.unused_bindings() == []
    runner.run_experiment()
  return runner


def run(runner_class, create_agent, base_dir, templates, agent, name=None):
  """Runs all iterations; returns the mean return of the last evaluation."""
  create, runner = create_agent.func.__name__, runner_class.__name__
  names = dict(create_agent=create, runner=runner, agent=agent, name=name)
  text = ''.join((EVERYWHERE, *templates)).format(**names)
  runner = run_gin(runner_class, create_agent, base_dir, text)
  *_, last = runner._logger.data.values()
  return last['eval_average_return'][0]


def learn_offline(name, run_dir, base_dir):
  """Trains on a run; returns the mean return of the last evaluation."""
  create_agent = offline_creator(run_dir / 'replay_logs')
  templates = LEARNER, HEADS[name], OFFLINE
  agent = offline_agents.REGISTRY.find(name).__name__
  runner = offline.FixedReplayRunner
  return run(runner, create_agent, base_dir, templates, agent, name)


@pytest.fixture(autouse=True)
def small_layers():
  """With the usual 512 units, tests take three times as long."""
  with cartpole.small_layers(64):
    yield


@pytest.fixture(scope='module')
def random_run(tmp_path_factory):
  """10,000 random actions in five shards."""
  run_dir = tmp_path_factory.mktemp('random')
  arguments = online.LoggedRunner, online_creator(run_dir), run_dir / 'online'
  evaluation = run(*arguments, (RANDOM,), 'RandomAgent')
  manifest = (run_dir / 'replay_logs' / 'manifest.json').read_text()
  logged = json.loads(manifest)['episodes']['return']['mean']
  assert max(evaluation, logged) < LEARNT / 3
  return run_dir


# REM, and DQN for comparison with the run that must not learn.
@pytest.mark.parametrize('name', ['dqn', 'multi_head_dqn'])
def test_learns_from_random_actions(name, random_run, tmp_path):
  assert learn_offline(name, random_run, tmp_path) > LEARNT


def test_does_not_learn_without_true_terminals(random_run, tmp_path):
  rows = cartpole.read_log(random_run / 'replay_logs')
  np.random.default_rng(0).shuffle(rows['terminal'])
  logs = tmp_path / 'replay_logs'
  with replay_log.ReplayLog(logs, (4, 1), np.float64, 2500, 1) as log:
    for row in zip(*rows.values(), strict=True):
      log.add(*row)
  assert learn_offline('dqn', tmp_path, tmp_path) < LEARNT / 2
