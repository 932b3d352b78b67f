"""Code written for the 2020 API: runners of forks, and the programs' functions."""

import functools
import glob
import inspect
import os
import shutil
import types

import gin
import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from dopamine.discrete_domains import iteration_statistics

from batch_rl.baselines import run_experiment as online
from batch_rl.baselines import train as online_train
from batch_rl.fixed_replay import run_experiment, train
from batch_rl.runs import command_line, interruption
from batch_rl.tests import cartpole, learning_test, programs


@pytest.fixture(scope='module')
def log_dir(tmp_path_factory):
  """Directory of two shards of CartPole."""
  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


class ForkRunner(run_experiment.FixedReplayRunner):
  """Runs an iteration as runners of forks do."""

  def _run_train_phase(self):
    self._agent.eval_mode = False
    for _ in range(self._training_steps):
      self._agent._train_step()

  def _run_one_iteration(self, iteration):
    statistics = iteration_statistics.IterationStatistics()
    if not self._agent._replay_suffix:
      self._agent._replay.memory.reload_buffer(num_buffers=1)
    self._run_train_phase()
    results = self._run_eval_phase(statistics)
    self._save_tensorboard_summaries(iteration, *results)
    return statistics.data_lists


class OwnPhaseRunner(run_experiment.FixedReplayRunner):
  """Overrides two methods with their old parameters."""

  saved: list

  def _run_train_phase(self):
    self._agent.eval_mode = False
    for _ in range(self._training_steps):
      self._agent._train_step()

  def _save_tensorboard_summaries(
    self, iteration, num_episodes_eval, average_reward_eval
  ):
    self.saved = [iteration, num_episodes_eval, average_reward_eval]
    super()._save_tensorboard_summaries(*self.saved)


def run(runner_class, log_dir, base_dir, iterations):
  """Runs iterations of 40 steps; returns the runner and the weights."""
  gin.clear_config()
  names = {
    'runner': 'FixedReplayRunner',
    'create_agent': 'create_offline_agent',
    'name': 'dqn',
    'agent': 'FixedReplayDQNAgent',
  }
  templates = (
    learning_test.EVERYWHERE,
    learning_test.LEARNER,
    learning_test.NETWORKS['dqn'],
  )
  bindings = """
      FixedReplayDQNAgent.update_period = 4
      FixedReplayRunner.training_steps = 40
      FixedReplayRunner.evaluation_steps = 20
      run_seed.seed = 3
  """
  command_line.load_gin([], [*(t.format(**names) for t in templates), bindings])

  def create_agent(sess, environment, replay_data_dir, summary_writer=None):
    agent = train.create_agent(
      sess, environment, replay_data_dir, summary_writer=summary_writer
    )
    agent.was_wrapped = True
    return agent

  create_agent_fn = functools.partial(
    create_agent, replay_data_dir=str(log_dir)
  )
  with tf.Graph().as_default(), cartpole.small_layers():
    runner = runner_class(
      str(base_dir), create_agent_fn, num_iterations=iterations
    )
    runner.run_experiment()
    assert runner._agent.was_wrapped
    return runner, cartpole.weights(runner._agent, 'Online')


def scalars(base_dir):
  """Returns the steps of each tag in the TensorBoard files."""
  found = {}
  for path in glob.glob(os.path.join(str(base_dir), 'events.*')):
    for event in tf.compat.v1.train.summary_iterator(path):
      for value in event.summary.value:
        found.setdefault(value.tag, []).append(event.step)
  return found


def test_a_runner_of_a_fork_trains_and_resumes_to_the_bit(log_dir, tmp_path):
  runner, weights = run(ForkRunner, log_dir, tmp_path / 'whole', 2)
  assert runner._agent.training_steps == 80
  tags = scalars(tmp_path / 'whole')
  assert tags['Eval/NumEpisodes'] == tags['Eval/AverageReturns'] == [0, 1]
  shutil.rmtree(tmp_path / 'whole' / 'checkpoints' / 'ckpt-1')
  _, resumed = run(ForkRunner, log_dir, tmp_path / 'whole', 2)
  np.testing.assert_array_equal(resumed, weights)


def test_a_runner_may_override_phases_with_their_old_parameters(
  log_dir, tmp_path
):
  runner, _ = run(OwnPhaseRunner, log_dir, tmp_path, 1)
  assert runner.saved[0] == 0 and runner._agent.training_steps == 40
  tags = scalars(tmp_path)
  assert tags['Eval/AverageReturns'] == [0]
  assert 'Train/AverageLoss' not in tags  # The phase returns none.
  assert runner.record['data']['files']
  base = super(OwnPhaseRunner, runner)
  # A train phase of one's own cannot be saved.
  runner._interruption = types.SimpleNamespace(requested=True, number=15)
  with pytest.raises(interruption.Interrupted, match='overrides _run_train'):
    runner._evaluation_safe_point()
  assert base._run_train_phase()[1] > 0  # without arguments
  assert runner._agent.training_steps == 80


@pytest.mark.parametrize(
  ('program', 'module', 'create', 'directory'),
  [
    (train, run_experiment, 'create_offline_agent', 'replay_data_dir'),
    (online_train, online, 'create_online_agent', 'replay_log_dir'),
  ],
)
def test_programs_create_the_agent_of_the_flag(
  monkeypatch, program, module, create, directory
):
  assert [*inspect.signature(program.create_agent).parameters] == [
    *('sess', 'environment', directory, 'summary_writer')
  ]
  created = []
  monkeypatch.setattr(
    module, create, lambda *args, **kwargs: created.append((args, kwargs))
  )
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(agent_name='quantile'):
    program.create_agent(None, 'environment', 'data')
  program.create_agent(None, 'environment', 'data', summary_writer='writer')
  assert [args for args, _ in created] == [(None, 'environment', 'data')] * 2
  assert [kwargs['agent_name'] for _, kwargs in created] == ['quantile', 'dqn']
  assert created[1][1]['summary_writer'] == 'writer'


@pytest.mark.parametrize(
  ('program', 'module', 'runner', 'directory'),
  [
    (train, run_experiment, 'FixedReplayRunner', 'replay_dir'),
    (online_train, online, 'LoggedRunner', 'replay_log_dir'),
  ],
)
def test_a_program_uses_the_function_that_replaces_its_own(
  monkeypatch, tmp_path, program, module, runner, directory
):
  run_directory = 'data/Pong/1' if program is train else str(tmp_path / 'logs')
  created = []
  monkeypatch.setattr(
    module, runner, lambda base_dir, create, **kwargs: created.append(create)
  )
  monkeypatch.setattr(command_line, 'finish', lambda runner: None)
  settings = {
    'base_dir': str(tmp_path / 'base'),
    directory: run_directory,
    'agent_name': 'dqn',
    'gin_bindings': ['create_atari_environment.game_name = "Pong"'],
  }
  programs.run_here(program, **settings)

  def own(sess, environment, **kwargs):
    return kwargs

  monkeypatch.setattr(program, 'create_agent', own)
  programs.run_here(program, **settings)
  assert [create.func is own for create in created] == [False, True]
  passed = created[1](None, None, summary_writer='w')
  assert passed.pop('summary_writer') == 'w'
  assert len(passed) == 1 and passed.items() <= created[0].keywords.items()


@pytest.mark.parametrize(
  ('program', 'missing'),
  [(train, '--base_dir, --replay_dir'), (online_train, '--base_dir')],
)
def test_main_names_missing_flags(program, missing, capsys):
  """As `app.run(train.main)` in a script calls it."""
  with pytest.raises(SystemExit) as error:
    programs.run_here(program)
  assert error.value.code == 2
  assert f'error: missing {missing}\n' in capsys.readouterr().err
