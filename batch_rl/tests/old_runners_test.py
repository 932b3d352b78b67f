"""Code written for the 2020 API: runners of forks, and the programs' functions."""

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


def run(runner_class, log_dir, base_dir, iterations):
  """Runs iterations of 40 steps; returns the runner and the weights."""
  gin.clear_config()
  text = '\n'.join(
    (
      learning_test.EVERYWHERE,
      learning_test.LEARNER,
      learning_test.NETWORKS['dqn'],
      '{agent}.update_period = 4',
      '{runner}.training_steps = 40',
      '{runner}.evaluation_steps = 20',
      'run_seed.seed = 3',
    )
  ).format(
    runner='FixedReplayRunner',
    create_agent='create_offline_agent',
    name='dqn',
    agent='FixedReplayDQNAgent',
  )
  command_line.load_gin([], [text])

  def create_agent(sess, environment, summary_writer=None):
    agent = train.create_agent(
      sess, environment, str(log_dir), summary_writer=summary_writer
    )
    agent.was_wrapped = True
    return agent

  with tf.Graph().as_default(), cartpole.small_layers():
    runner = runner_class(
      str(base_dir), create_agent, num_iterations=iterations
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
  with pytest.raises(interruption.Interrupted, match='_run_train_phase'):
    runner._evaluation_safe_point()
  assert base._run_train_phase()[1] > 0  # without arguments
  assert runner._agent.training_steps == 80


PROGRAMS = [
  (train, run_experiment, 'replay_data_dir'),
  (online_train, online, 'replay_log_dir'),
]


@pytest.mark.parametrize(('program', 'module', 'directory'), PROGRAMS)
def test_programs_create_the_agent_of_the_flag(
  monkeypatch, program, module, directory
):
  assert [*inspect.signature(program.create_agent).parameters] == [
    *('sess', 'environment', directory, 'summary_writer')
  ]
  created = []
  offline = program is train
  monkeypatch.setattr(
    module,
    'create_offline_agent' if offline else 'create_online_agent',
    lambda *args, **kwargs: created.append((args, kwargs)),
  )
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(agent_name='quantile'):
    program.create_agent(None, 'environment', 'data')
  program.create_agent(None, 'environment', 'data', summary_writer='writer')
  assert [args for args, _ in created] == [(None, 'environment', 'data')] * 2
  assert [kwargs['agent_name'] for _, kwargs in created] == ['quantile', 'dqn']
  assert created[1][1]['summary_writer'] == 'writer'


@pytest.mark.parametrize(('program', 'module', 'directory'), PROGRAMS)
def test_a_program_uses_the_function_that_replaces_its_own(
  monkeypatch, tmp_path, program, module, directory
):
  offline, created = program is train, []
  monkeypatch.setattr(
    module,
    'FixedReplayRunner' if offline else 'LoggedRunner',
    lambda base_dir, create, **kwargs: created.append(create),
  )
  monkeypatch.setattr(command_line, 'finish', lambda runner: None)
  run_directory = 'data/Pong/1' if offline else str(tmp_path / 'logs')
  settings = {
    'base_dir': str(tmp_path / 'base'),
    'replay_dir' if offline else 'replay_log_dir': run_directory,
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
  assert passed.keys() == {'summary_writer', directory}
  assert (
    passed.items() <= {**created[0].keywords, 'summary_writer': 'w'}.items()
  )


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
