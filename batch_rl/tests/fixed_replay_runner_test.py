"""Trains, evaluates, checkpoints and resumes on a logged run.

  python -um batch_rl.tests.fixed_replay_runner_test --replay_dir=<run dir>

Without `--replay_dir` it uses the sample in the repository.
"""

import functools
import json
import pathlib
from unittest import mock

import gin
import numpy as np
import tensorflow as tf
from absl import flags
from absl.testing import absltest
from dopamine.discrete_domains import atari_lib

from batch_rl.dataset import run_directories
from batch_rl.fixed_replay import (
  run_experiment,
  train,  # noqa: F401  (defines --replay_dir)
)
from batch_rl.runs import games
from batch_rl.tests import gin_lines, programs, results
from batch_rl.utils import locks

SAMPLE = pathlib.Path(__file__).parents[2] / 'data' / 'Pong' / '1'
_BINDINGS = [
  *programs.of_runner(training_steps=40, evaluation_steps=10, probe_size=64),
  'FixedReplayRunner.max_steps_per_episode = 30',
  'WrappedFixedReplayBuffer.replay_file_end_index = 1',
  'WrappedFixedReplayBuffer.replay_capacity = 20000',
  'run_seed.seed = 1',
  # `configs_test` trains the networks of the paper.
  *programs.TINY_DQN,
]


class FixedReplayRunnerTest(absltest.TestCase):
  """`FixedReplayRunner` from end to end, on real shards."""

  def setUp(self):
    super().setUp()
    given = flags.FLAGS.is_parsed() and flags.FLAGS.replay_dir
    self.data_dir = run_directories.find_data(given or str(SAMPLE))
    flags.FLAGS.mark_as_parsed()  # `create_tempdir` reads them
    self.base_dir = pathlib.Path(self.create_tempdir().full_path)
    self.stores = self.create_tempdir().full_path  # Shards are compressed once.
    self.addCleanup(gin.clear_config)

  def make_runner(self, num_iterations, *bindings, agent=None, **kwargs):
    """Returns a runner as the program makes it."""
    tf.compat.v1.reset_default_graph()
    gin.clear_config()
    game = games.logged_game(self.data_dir) or 'Pong'
    bound = [
      *_BINDINGS,
      f'FixedReplayBuffer.cache_dir = "{self.stores}"',
      f'FixedReplayRunner.num_iterations = {num_iterations}',
      f'atari_lib.create_atari_environment.game_name = "{game}"',
      *bindings,
    ]
    gin_lines.load(['batch_rl/fixed_replay/configs/dqn.gin'], bound)
    given = {'replay_data_dir': self.data_dir, **(agent or {})}
    create = functools.partial(run_experiment.create_offline_agent, **given)
    return run_experiment.FixedReplayRunner(self.base_dir, create, **kwargs)

  def test_progress_counts_the_updates_of_a_session_run_together(self):
    bar = 'batch_rl.runs.progress.'
    runner = self.make_runner(1, 'FixedReplayDQNAgent.updates_per_run = 4')
    with (
      mock.patch(bar + '_SECONDS', 0),
      mock.patch(bar + 'Progress.write') as write,
    ):
      runner._run_train_phase()
    self.assertEqual([c.args[0] for c in write.mock_calls], [4, 8, 10, 10])

  def test_trains_evaluates_and_resumes(self):
    two = 'FixedReplayRunner.evaluation_environments = 2'
    runner = self.make_runner(2, two, training_steps=np.int64(40))
    runner.run_experiment()
    self.assertEqual(runner._agent.training_steps, 80)
    weights = runner._sess.run(tf.compat.v1.global_variables())
    scalars = results.scalars(self.base_dir)
    for tag in 'Train/AverageLoss', 'Eval/AverageReturns', 'Eval/NumEpisodes':
      self.assertEqual([*scalars[tag]], [0, 1], tag)
    # A binding is missing, and another has no effect.
    with self.assertLogs('absl') as logs:
      with self.assertRaisesRegex(ValueError, '- .*environments = 2'):
        self.make_runner(3, 'FixedReplayRunner.clip_rewards = True')
    self.assertIn('clip_rewards has no effect', str(logs.output))
    with self.assertRaisesRegex(ValueError, r"\+ arguments = {'agent_name'"):
      self.make_runner(3, two, agent={'agent_name': 'dqn'})
    with self.assertRaisesRegex(ValueError, 'training_steps=40.0 is not all'):
      self.make_runner(3, training_steps=40.0)
    with self.assertRaisesRegex(ValueError, 'environments=-2 is not allowed'):
      self.make_runner(3, evaluation_environments=-2)
    with self.assertRaisesRegex(ValueError, '- evaluation_environments = 2'):
      self.make_runner(3, two, evaluation_environments=4)
    make = functools.partial(
      atari_lib.create_atari_environment, sticky_actions=True
    )
    with self.assertLogs('absl') as logs:
      self.make_runner(3, two, create_environment_fn=make)
    self.assertIn(
      'with other arguments; continuing: + sticky', str(logs.output)
    )
    with self.assertRaisesRegex(ValueError, 'is a dict, not a function'):
      self.make_runner(3, create_environment_fn={})
    with locks.try_lock(f'{self.base_dir}/.lock'):
      with self.assertRaisesRegex(ValueError, 'in use by process'):
        self.make_runner(3, accept_changes=True)
    owners = [self.make_runner(3, accept_changes=True)]
    early = self.make_runner(3, accept_changes=True)
    with self.assertRaisesRegex(ValueError, 'graph has variables'):
      run_experiment.FixedReplayRunner(self.base_dir, None)
    # A runner with one more iteration starts where the first one ended.
    more = self.make_runner(3, accept_changes=True)
    restored = more._sess.run(tf.compat.v1.global_variables())
    np.testing.assert_equal(restored, weights)
    conclude, lock = more._conclude, f'{self.base_dir}/.lock'
    # The first runner had locked the directory.
    more._conclude = lambda: (
      owners.clear() or owners.append(locks.try_lock(lock))
    )
    more.run_experiment()
    conclude()
    self.assertEqual(owners, [None])
    with self.assertRaisesRegex(ValueError, 'has continued since'):
      early.run_experiment()
    self.assertEqual(more._agent.training_steps, 120)
    self.assertLen(more._logger.data, 3)
    statistics = more._logger.data['iteration_2']
    self.assertEqual(statistics['train_updates'], [10])
    self.assertTrue(np.isfinite(statistics['train_average_loss'][0]))
    # A run keeps its number of environments: one episode in each.
    self.assertEqual(statistics['eval_episode_lengths'], [30, 30])
    path = self.base_dir / 'evaluations' / '2.json'
    evaluation = json.loads(path.read_text())
    self.assertEqual(evaluation['environments'], 2)
    episodes, diagnostics = evaluation['episodes'], evaluation['diagnostics']
    self.assertEqual([e['environment'] for e in episodes], [0, 1])
    self.assertLessEqual({'overestimation', 'srank'}, diagnostics.keys())
    scalars = results.scalars(self.base_dir)
    for name, value in diagnostics.items():
      self.assertEqual(statistics[f'diagnostics_{name}'], [value])
      shown = scalars[f'Diagnostics/{name}']
      self.assertEqual([*shown], [0, 1, 2])
      self.assertAlmostEqual(shown[2], np.float32(value), msg=name)
    returns = [e['undiscounted_return'] for e in episodes]
    self.assertEqual(returns, statistics['eval_episode_returns'])
    # The same runner would start again, with trained weights.
    with self.assertRaisesRegex(ValueError, 'once'):
      more.run_experiment()
    self.assertTrue(path.exists())
    self.base_dir = self.base_dir / 'short'  # no update in the second iteration
    runner = self.make_runner(2, training_steps=2)
    runner.run_experiment()
    statistics = runner._logger.data['iteration_1']
    self.assertTrue(np.isnan(statistics['train_average_loss'][0]))


if __name__ == '__main__':
  absltest.main()
