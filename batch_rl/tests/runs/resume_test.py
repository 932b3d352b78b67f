"""A run that stops anywhere and goes on gives what it would have given."""

import functools
import os
import signal
import subprocess
import sys

import gin
import pytest
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.baselines import run_experiment as online
from batch_rl.fixed_replay import agents
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.runs import checkpoints, command_line, interruption
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
    MultiNetworkQNetwork.network = @TinyNetwork
    {agent}.transform_strategy = 'STOCHASTIC'
    {agent}.min_replay_history = 40
    {agent}.epsilon_train = 0.3
    WrappedLoggedReplayBuffer.shard_capacity = 90
    WrappedLoggedReplayBuffer.replay_capacity = 150
"""


@gin.configurable
class TinyNetwork(tf.keras.Model):
  """Looks at a few pixels."""

  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self.flatten = tf.keras.layers.Flatten()
    self.dense = tf.keras.layers.Dense(num_actions)

  def call(self, state):
    pixels = tf.cast(state[:, ::8, ::8], tf.float32) / 255
    return atari_lib.DQNNetworkType(self.dense(self.flatten(pixels)))


class Crash(Exception):  # noqa: N818
  """Ends a run without a word, as SIGKILL would."""


def run(runner_class, create_agent, base_dir, bindings, stop_at=None):
  """Runs until it is done, or is stopped when a checkpoint may be made.

  Args:
    runner_class: of the run.
    create_agent: for it.
    base_dir: for it.
    bindings: of gin.
    stop_at: when that is for this time, SIGTERM comes; if negative, it crashes.

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
    if -calls == stop_at:
      raise Crash
    return is_due(self, position)

  with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default():
    patch.setattr(checkpoints.Checkpoints, 'is_due', count)
    command_line.load_gin([], [bindings, 'run_seed.seed = 3'])
    runner = runner_class(str(base_dir), create_agent)
    assert command_line.unused_bindings() == []
    try:
      runner.run_experiment()
    except (interruption.Interrupted, Crash):
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
    # While it trains, at the end of that, and while it evaluates. Where it stops is
    # the runner's business; what is in a checkpoint, each agent's: -3 is after one.
    [2, -4, 40] if name == 'dqn' else [-3],
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
  run_in_parts(functools.partial(start, 'parts'), [-50, 60, -47])
  found = {
    part: results.of_run(
      tmp_path / part / 'run', tmp_path / part / 'replay_logs'
    )
    for part in ('whole', 'parts')
  }
  assert found['parts'] == found['whole']
  assert any('terminal' in key for key in found['whole'])


def test_deterministic_operations_train_alike(tmp_path):
  """In a process of their own: TensorFlow does not go back."""
  cartpole.write_log(tmp_path)
  code = f"""
import batch_rl, sys
import tensorflow as tf
from batch_rl.utils import seeding
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.tests import cartpole
seeding.seed_libraries(1, 0, deterministic_ops=sys.argv[1] == 'True')
agent = dqn_agent.FixedReplayDQNAgent(
  None, 2, {str(tmp_path)!r}, seed=1, **cartpole.OBSERVATION, **cartpole.SMALL['dqn'])
agent.begin_iteration(0)
print(list(agent.train_steps(40)), agent.seconds_waited > 0)
"""
  printed = {
    switch: subprocess.run(
      [sys.executable, '-c', code, switch],
      capture_output=True,
      text=True,
      check=True,
    ).stdout
    for switch in ('True', 'False')
  }
  assert printed['True'].replace('False', 'True') == printed['False']
  assert printed['False'].count(',') == 9
