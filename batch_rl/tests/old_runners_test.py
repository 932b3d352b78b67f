"""Code written for the 2020 API: runners of forks, and the programs' functions."""

import inspect
import shutil
import types

import gin
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import flagsaver
from dopamine.discrete_domains import iteration_statistics

from batch_rl.baselines import run_experiment as online
from batch_rl.baselines import train as online_train
from batch_rl.fixed_replay import run_experiment, train
from batch_rl.runs import command_line, interruption
from batch_rl.tests import cartpole, gin_lines, learning_test, programs, results
from batch_rl.tests.interchange_runs import SAMPLE


class OwnPhaseRunner(run_experiment.FixedReplayRunner):
  """Overrides two methods with their old parameters."""

  saved: tuple

  def _run_train_phase(self):
    self._agent.eval_mode = False
    for _ in range(self._training_steps):
      self._agent._train_step()

  def _save_tensorboard_summaries(
    self, iteration, num_episodes_eval, average_reward_eval
  ):
    self.saved = iteration, num_episodes_eval, average_reward_eval
    super()._save_tensorboard_summaries(*self.saved)

  def _run_one_phase(self, *args):
    raise AssertionError('never called')


class ForkRunner(OwnPhaseRunner):
  """Runs an iteration as runners of forks do."""

  def _run_one_iteration(self, iteration):
    statistics = iteration_statistics.IterationStatistics()
    if not self._agent._replay_suffix:
      self._agent._replay.memory.reload_buffer(num_buffers=1)
    self._run_train_phase()
    results = self._run_eval_phase(statistics)
    self._save_tensorboard_summaries(iteration, *results)
    return statistics.data_lists


def run(runner_class, directory, iterations):
  """Runs iterations of 40 steps; returns the runner and the weights."""
  if not (directory / 'log').exists():
    cartpole.write_log(directory / 'log')
  text = learning_test.offline_dqn(
    '{agent}.update_period = 4',
    '{runner}.training_steps = 40',
    '{runner}.evaluation_steps = 20',
    'run_seed.seed = 3',
  )
  gin.clear_config()
  gin_lines.load([], [text])

  def create_agent(sess, environment, summary_writer=None):
    data_dir = str(directory / 'log')
    return train.create_agent(sess, environment, data_dir, summary_writer)

  with tf.Graph().as_default(), cartpole.small_layers():
    arguments = str(directory / 'run'), create_agent
    runner = runner_class(*arguments, num_iterations=iterations)
    runner.run_experiment()
    return runner, cartpole.weights(runner._agent, 'Online')


def test_agents_without_the_mixin_or_data_are_refused(tmp_path, monkeypatch):
  agent = types.SimpleNamespace(summary_writer=None)
  monkeypatch.setattr(train, 'create_agent', lambda *_, **__: agent)
  with pytest.raises(ValueError, match='SimpleNamespace is not an offline'):
    run(run_experiment.FixedReplayRunner, tmp_path, 1)
  create = run_experiment.create_offline_agent
  monkeypatch.setattr(
    train, 'create_agent', lambda s, e, *_: create(s, e, None)
  )
  with pytest.raises(ValueError, match='Agent has no logged data: pass'):
    run(run_experiment.FixedReplayRunner, tmp_path, 1)


def test_a_runner_of_a_fork_trains_and_resumes_to_the_bit(tmp_path):
  runner, weights = run(ForkRunner, tmp_path, 2)
  assert runner._agent.training_steps == 80
  tags = results.scalars(tmp_path / 'run')
  for tag in 'Eval/NumEpisodes', 'Eval/AverageReturns':
    assert [*tags[tag]] == [0, 1]
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / 'ckpt-1')
  _, resumed = run(ForkRunner, tmp_path, 2)
  np.testing.assert_array_equal(resumed, weights)


def test_a_runner_may_override_phases_as_in_2020(tmp_path, caplog):
  runner, _ = run(OwnPhaseRunner, tmp_path, 1)
  assert 'OwnPhaseRunner._run_one_phase is never called' in caplog.text
  assert runner.saved[0] == 0 and runner._agent.training_steps == 40
  tags = results.scalars(tmp_path / 'run')
  assert [*tags['Eval/AverageReturns']] == [0]
  assert 'Train/AverageLoss' not in tags  # The phase returns none.
  assert runner.record['data']['files']
  # A train phase of one's own cannot be saved.
  runner._interruption = types.SimpleNamespace(number=15)
  with pytest.raises(interruption.Interrupted, match='_run_train_phase'):
    runner._evaluation_safe_point()
  assert super(OwnPhaseRunner, runner)._run_train_phase()[1] > 0
  assert runner._agent.training_steps == 80


@pytest.mark.parametrize(
  ('program', 'module', 'kind', 'runner', 'data'),
  [
    (train, run_experiment, 'offline', 'FixedReplayRunner', 'replay_data_dir'),
    (online_train, online, 'online', 'LoggedRunner', 'replay_log_dir'),
  ],
)
def test_a_program_makes_agents_by_its_function_or_one_that_replaces_it(
  monkeypatch, tmp_path, program, module, kind, runner, data
):
  monkeypatch.chdir(tmp_path)
  made = []

  def make_runner(base_dir, create, **kwargs):
    made.append(create(None, 'environment', summary_writer='w'))

  monkeypatch.setattr(module, runner, make_runner)
  monkeypatch.setattr(command_line, 'finish', lambda runner: None)
  create = f'create_{kind}_agent'
  monkeypatch.setattr(module, create, lambda *args, **kwargs: (args, kwargs))
  settings = dict(base_dir='base', replay_log_dir='logs', agent_name='quantile')
  pong = ['create_atari_environment.game_name = "Pong"']
  settings |= dict(replay_dir=str(SAMPLE), gin_bindings=pong)
  programs.run_here(program, **settings)
  function = program.create_agent
  monkeypatch.setattr(program, 'create_agent', lambda *_, **kwargs: kwargs)
  programs.run_here(program, **settings)
  (args, kwargs), own = made
  assert args == (None, 'environment')
  assert own.keys() == {data, 'summary_writer'}
  assert own.items() <= kwargs.items()
  # The function itself creates the agent of the flag.
  names = ['sess', 'environment', data, 'summary_writer']
  assert [*inspect.signature(function).parameters] == names
  gin.clear_config()
  for given, name in (('quantile', 'quantile'), (None, 'dqn')):
    with flagsaver.flagsaver(agent_name=given):
      args, kwargs = function(None, 'env', 'data', 'w')
    assert args == (None, 'env', 'data')
    assert (kwargs['agent_name'], kwargs['summary_writer']) == (name, 'w')
