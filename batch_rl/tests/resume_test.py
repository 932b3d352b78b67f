"""A run that stops anywhere and goes on gives what it would have given."""

import functools
import os
import signal

import gin
import pytest
import tensorflow as tf

from batch_rl import checkpoints, command_line, interruption
from batch_rl.baselines import run_experiment as online
from batch_rl.fixed_replay import agents
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.tests import cartpole, learning_test, results

OFFLINE = """
    {agent}.update_period = 4
    {agent}.target_update_period = 60
    {agent}.updates_per_run = 5
    WrappedFixedReplayBuffer.num_buffers = 1  # of two, another each iteration
    FixedReplayRunner.num_iterations = 2
    FixedReplayRunner.training_steps = 130
    FixedReplayRunner.evaluation_steps = 60
    Checkpoints.every_steps = 40
"""
ONLINE = """
    create_online_agent.agent_name = '{name}'
    atari_lib.create_atari_environment.game_name = 'Pong'
    LoggedRunner.num_iterations = 2
    LoggedRunner.training_steps = 100
    LoggedRunner.evaluation_steps = 30
    LoggedRunner.max_steps_per_episode = 45
    Checkpoints.every_steps = 35
"""
LOGGED = """
    {agent}.num_networks = 2
    {agent}.transform_strategy = 'STOCHASTIC'
    {agent}.min_replay_history = 40
    {agent}.epsilon_train = 0.3
    WrappedLoggedReplayBuffer.shard_capacity = 90
    WrappedLoggedReplayBuffer.replay_capacity = 150
"""


def run(runner_class, create_agent, base_dir, bindings, stop_at=None):
  """Runs until it is done, or SIGTERM comes when a checkpoint may be made.

  Args:
    runner_class: of the run.
    create_agent: for it.
    base_dir: for it.
    bindings: of gin.
    stop_at: the number of times that checkpoints could be made before.

  Returns:
    Whether it is done.
  """
  gin.clear_config()
  calls = 0
  is_due = checkpoints.Checkpoints.is_due

  def count(self, position):
    nonlocal calls
    calls += 1
    if calls == stop_at:
      os.kill(os.getpid(), signal.SIGTERM)
    return is_due(self, position)

  with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default():
    patch.setattr(checkpoints.Checkpoints, 'is_due', count)
    command_line.load_gin([], [bindings, 'run_seed.seed = 3'])
    runner = runner_class(str(base_dir), create_agent)
    assert command_line.unused_bindings() == []
    try:
      runner.run_experiment()
    except interruption.Interrupted:
      return False
  return True


def run_in_parts(run_once, stops):
  """Stops it again and again; it has to make progress."""
  for stop_at in stops:
    assert not run_once(stop_at)
  assert run_once(None)


@pytest.mark.parametrize('name', agents.AGENTS)
def test_offline(tmp_path, name):
  cartpole.write_log(tmp_path / 'log')
  names = {'runner': 'FixedReplayRunner', 'name': name}
  names['agent'] = agents.AGENTS[name][1]
  bindings = ''.join(
    template.format(create_agent='create_offline_agent', **names)
    for template in (
      learning_test.EVERYWHERE,
      learning_test.LEARNER,
      learning_test.NETWORKS[name],
      OFFLINE,
    )
  )
  start = functools.partial(
    run,
    offline.FixedReplayRunner,
    functools.partial(
      offline.create_offline_agent, replay_data_dir=str(tmp_path / 'log')
    ),
  )
  assert start(tmp_path / 'whole', bindings)
  run_in_parts(
    functools.partial(start, tmp_path / 'parts', bindings),
    # While it trains, at the end of that, and while it evaluates.
    [2, 3, 6, 40],
  )
  assert results.of_run(tmp_path / 'parts') == results.of_run(
    tmp_path / 'whole'
  )


@pytest.mark.parametrize('name', ['multi_network_dqn', 'random'])
def test_online(tmp_path, name):
  if name != 'random':
    bindings = ONLINE + LOGGED
  else:
    bindings = ONLINE + '    RandomAgent.shard_capacity = 90\n'
  bindings = bindings.format(agent='LoggedMultiNetworkDQNAgent', name=name)

  def start(part, stop_at=None):
    return run(
      online.LoggedRunner,
      functools.partial(
        online.create_online_agent, replay_log_dir=str(tmp_path / part)
      ),
      tmp_path / part / 'run',
      bindings,
      stop_at,
    )

  assert start('whole')
  run_in_parts(functools.partial(start, 'parts'), [2, 60, 61, 47])
  found = {
    part: results.of_run(
      tmp_path / part / 'run', tmp_path / part / 'replay_logs'
    )
    for part in ('whole', 'parts')
  }
  assert found['parts'] == found['whole']
  assert any('terminal' in key for key in found['whole'])
