"""A run that is stopped and resumed equals an uninterrupted one."""

import functools
import os
import pathlib
import signal
from unittest import mock

import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains import logger
from tensorflow.python.framework import config as tf_config

from batch_rl import dopamine_compat
from batch_rl.baselines import run_experiment as online
from batch_rl.baselines import train as online_train
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import agents
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.minatar import games
from batch_rl.runs import checkpoints, interruption
from batch_rl.tests import cartpole, learning_test, programs, results
from batch_rl.utils import seeding

OFFLINE = """
    {agent}.update_period = 4
    {agent}.target_update_period = 60
    {agent}.updates_per_run = 5
    WrappedFixedReplayBuffer.num_buffers = 1  # of two, another each iteration
    FixedReplayRunner.num_iterations = 2
    FixedReplayRunner.probe_size = 40
    FixedReplayRunner.training_steps = 130
    FixedReplayRunner.evaluation_steps = 60
    Checkpoints.every_steps = 40
"""
ONLINE = """
    create_online_agent.agent_name = '{name}'
    import batch_rl.minatar.environment
    LoggedRunner.create_environment_fn = @MinAtarEnvironment
    MinAtarEnvironment.game_name = 'Seaquest'
    {agent}.observation_shape = @minatar_observation_shape()
    {agent}.stack_size = 1
    LoggedRunner.num_iterations = 2
    LoggedRunner.training_steps = 100
    LoggedRunner.evaluation_steps = 30
    LoggedRunner.max_steps_per_episode = 45
    Checkpoints.every_steps = 35
"""
LOGGED = """
    {agent}.num_networks = 2
    import batch_rl.tests.programs
    MultiNetworkQNetwork.network = @TinyNetwork
    {agent}.transform_strategy = 'STOCHASTIC'
    {agent}.min_replay_history = 40
    {agent}.epsilon_train = 0.3
    WrappedLoggedReplayBuffer.shard_capacity = 90
    WrappedLoggedReplayBuffer.replay_capacity = 150
    WrappedLoggedReplayBuffer.offline_dir = '{data}'
    WrappedLoggedReplayBuffer.offline_fraction = 0.25
"""
RANDOM = '{agent}.shard_capacity = 90\n'


@gin.configurable
class ReloadingRunner(offline.FixedReplayRunner):
  """Draws other data before an iteration, as code of 2020 does."""

  def _run_one_iteration(self, iteration):
    self._agent._replay.memory.reload_buffer(num_buffers=1)
    return super()._run_one_iteration(iteration)


class Crash(Exception):  # noqa: N818
  """Ends a run at once, as SIGKILL does."""


def run(runner_class, create_agent, bindings, base_dir, stop_at=None):
  """Runs to the end, or stops at a point where a checkpoint may be made.

  `stop_at` is the number of the point at which SIGTERM arrives, from 1; if negative,
  the run crashes there. Returns whether the run has ended.
  """
  calls, is_due = 0, checkpoints.Checkpoints.is_due

  def count(self, position):
    nonlocal calls
    calls += 1
    if calls == stop_at:
      os.kill(os.getpid(), signal.SIGTERM)
    if -calls == stop_at:
      raise Crash
    return is_due(self, position)

  text = f'{bindings}\nrun_seed.seed = 3'
  with pytest.MonkeyPatch.context() as patch, cartpole.small_layers():
    patch.setattr(checkpoints.Checkpoints, 'is_due', count)
    try:
      learning_test.run_gin(runner_class, create_agent, base_dir, text)
    except (interruption.Interrupted, Crash):
      return False
  return True


def run_in_parts(run_once, stops):
  """Stops a run at each point in turn, then lets it end."""
  for stop_at in stops:
    assert not run_once(stop_at)
  assert run_once(None)


def offline_run(log_dir):
  """Returns a function `(base_dir, stop_at=None)` that runs a DQN on a new log."""
  cartpole.write_log(log_dir)
  bindings = learning_test.offline_dqn(OFFLINE)
  create_agent = learning_test.offline_creator(log_dir)
  return functools.partial(run, ReloadingRunner, create_agent, bindings)


def copy(directory, target):
  """Copies a remote directory to a local one."""
  for folder, _, names in tf.io.gfile.walk(directory):
    local = f'{target}{folder.removeprefix(directory)}'
    tf.io.gfile.makedirs(local)
    for name in names:
      if not tf.io.gfile.exists(f'{folder}/{name}'):
        continue  # `ram://` lists the files of `ckpt-0-40` in `ckpt-0`, too.
      tf.io.gfile.copy(f'{folder}/{name}', f'{local}/{name}')
  return target


def test_a_full_disk_ends_a_run_in_words(tmp_path, monkeypatch, caplog):
  fail = mock.Mock(side_effect=IndexError('events.out; File too large'))
  monkeypatch.setattr(tf.compat.v1.summary.FileWriter, 'flush', fail)
  with pytest.raises(OSError, match='TensorBoard.*written: File too large'):
    offline_run(tmp_path / 'log')(tmp_path / 'run')
  assert 'No diagnostics' not in caplog.text


def test_no_part_of_a_log_is_left(tmp_path, monkeypatch):
  def fill_the_disk(self, prefix, number):
    pathlib.Path(self._generate_filename(prefix, number)).write_text('part')
    raise tf.errors.ResourceExhaustedError(None, None, 'No space left')

  monkeypatch.setattr(logger.Logger, 'log_to_file', fill_the_disk)
  with pytest.raises(OSError, match='logs cannot be written: No space left'):
    offline_run(tmp_path / 'log')(tmp_path / 'run')
  assert os.listdir(tmp_path / 'run/logs') == []


@pytest.mark.parametrize(
  ('name', 'agent', 'bindings', 'stops'),
  [
    ('multi_network_dqn', 'LoggedMultiNetworkDQNAgent', LOGGED, [60, -47]),
    # Before the first checkpoint, after it, just resumed, at SIGTERM, later.
    ('random', 'RandomAgent', RANDOM, [-20, -50, -1, 60, -47]),
  ],
)
def test_online(tmp_path, name, agent, bindings, stops):
  """On MinAtar; `command_line_test` has a game of Atari."""
  data = tmp_path / 'data'
  shape = games.observation_shape('Seaquest')
  logs = data / 'replay_logs'
  with replay_log.ReplayLog(logs, shape, np.uint8, 40, 1) as log:
    for step in range(60):
      log.add(np.full(shape, step % 2), step % 6, 0.5, step % 15 == 14)
  bindings = (ONLINE + bindings).format(agent=agent, name=name, data=data)

  def start(base_dir, log, stop_at=None):
    create_agent = learning_test.online_creator(tmp_path / log)
    return run(online.LoggedRunner, create_agent, bindings, base_dir, stop_at)

  assert start(tmp_path / 'whole', 'a')
  remote = f'ram://{tmp_path.name}' if name == 'random' else tmp_path / 'parts'
  run_in_parts(functools.partial(start, remote, 'b'), stops)
  if name == 'random':
    copy(remote, tmp_path / 'parts')
  whole, parts = (
    results.of_run(tmp_path / part, tmp_path / log / 'replay_logs')
    for part, log in (('whole', 'a'), ('parts', 'b'))
  )
  assert parts == whole
  assert any('terminal' in key for key in whole)
  # The command continues a run of the program, and the other way around.
  bindings += 'LoggedRunner.num_iterations = 3\n'
  given = dict(replay_log_dir=str(tmp_path / 'a'), gin_bindings=[bindings])
  given |= dict(base_dir=str(tmp_path / 'whole'), seed=3)
  programs.run_here(online_train, **given)
  bindings += 'LoggedRunner.num_iterations = 4'
  assert start(tmp_path / 'whole', 'a')
  assert (tmp_path / 'whole/checkpoints/ckpt-3').exists()


def test_deterministic_operations_train_alike(tmp_path):
  cartpole.write_log(tmp_path)
  losses, are_timed = [], []
  try:
    for switch in False, True:
      with tf.Graph().as_default(), cartpole.small_layers():
        gin.bind_parameter('run_seed.deterministic_ops', switch)
        seeding.seed_libraries(1, 0)
        assert dopamine_compat.is_deterministic() == switch
        settings = cartpole.OBSERVATION | cartpole.SMALL['dqn']
        create = agents.REGISTRY.find('dqn')
        agent = create(None, 2, str(tmp_path), seed=1, **settings)
      agent.begin_iteration(0)
      losses.append(list(agent.train_steps(40)))
      are_timed.append(agent.seconds_waited > 0)
  finally:
    tf_config.disable_op_determinism()
  assert losses[1] == losses[0] and len(losses[0]) == 10
  assert are_timed == [True, False]
