"""Trains, evaluates, checkpoints and resumes on a run that you have.

  python -um batch_rl.tests.fixed_replay_runner_test --replay_dir=<run dir>

Without `--replay_dir` it takes the sample in the repository.
"""

import functools
import glob
import json
import os
import pathlib
import tempfile

import gin
import numpy as np
import tensorflow as tf
from absl import flags
from absl.testing import absltest

from batch_rl.dataset.shards import shard_files
from batch_rl.fixed_replay import (
  run_experiment,
  train,  # noqa: F401  (defines --replay_dir)
)
from batch_rl.runs import command_line

SAMPLE = pathlib.Path(__file__).parents[2] / 'data' / 'Pong' / '1'
_BINDINGS = [
  'FixedReplayRunner.training_steps = 40',
  'FixedReplayRunner.evaluation_steps = 10',
  'FixedReplayRunner.max_steps_per_episode = 30',
  'WrappedFixedReplayBuffer.num_buffers = 1',
  'WrappedFixedReplayBuffer.replay_file_end_index = 2',
  'WrappedFixedReplayBuffer.replay_capacity = 20000',
  'run_seed.seed = 1',
]


def replay_dir() -> str:
  """The run given on the command line, or the sample."""
  given = flags.FLAGS.is_parsed() and flags.FLAGS.replay_dir
  return given or str(SAMPLE)


class FixedReplayRunnerTest(absltest.TestCase):
  """The whole of `FixedReplayRunner` on real shards."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.TemporaryDirectory()
    cls.addClassCleanup(directory.cleanup)
    cls.stores = directory.name  # shards are compressed once for all tests

  def setUp(self):
    super().setUp()
    gin.clear_config()
    self.base_dir = self.make_directory()
    self.data_dir = shard_files.replay_logs_dir(replay_dir())

  def tearDown(self):
    super().tearDown()
    gin.clear_config()

  def make_directory(self):
    """A new directory, gone after the test."""
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    return directory.name

  def make_runner(self, num_iterations):
    """A runner as the program makes it, in a graph of its own."""
    tf.compat.v1.reset_default_graph()
    game = run_experiment.logged_game(self.data_dir) or 'Pong'
    with gin.unlock_config():
      command_line.load_gin(
        ['batch_rl/fixed_replay/configs/dqn.gin'],
        [
          *_BINDINGS,
          f'FixedReplayBuffer.cache_dir = "{self.stores}"',
          f'FixedReplayRunner.num_iterations = {num_iterations}',
          f'atari_lib.create_atari_environment.game_name = "{game}"',
        ],
      )
    return run_experiment.FixedReplayRunner(
      self.base_dir,
      functools.partial(
        run_experiment.create_offline_agent, replay_data_dir=self.data_dir
      ),
    )

  def test_trains_evaluates_and_resumes(self):
    runner = self.make_runner(num_iterations=2)
    runner.run_experiment()
    self.assertEqual(runner._agent.training_steps, 80)
    weights = runner._sess.run(tf.compat.v1.global_variables())
    for path in (
      'checkpoints/ckpt-1/tf_ckpt-1.index',
      'checkpoints/ckpt-1/state.pickle',
      'checkpoints/ckpt-1/checkpoint.json',
      'logs/log_1',
      'run.json',
    ):
      self.assertTrue(os.path.exists(os.path.join(self.base_dir, path)), path)

    # A restart has nothing left to do, and is where the first one was.
    again = self.make_runner(num_iterations=2)
    again.run_experiment()
    self.assertEqual(again._agent.training_steps, 80)
    for before, after in zip(
      weights, again._sess.run(tf.compat.v1.global_variables()), strict=True
    ):
      np.testing.assert_array_equal(before, after)

    # With one more iteration it does that one.
    more = self.make_runner(num_iterations=3)
    more.run_experiment()
    self.assertEqual(more._agent.training_steps, 120)
    self.assertEqual(
      sorted(more._logger.data), ['iteration_0', 'iteration_1', 'iteration_2']
    )
    statistics = more._logger.data['iteration_2']
    self.assertEqual(statistics['train_updates'], [10])
    self.assertTrue(np.isfinite(statistics['train_average_loss'][0]))
    self.assertGreaterEqual(sum(statistics['eval_episode_lengths']), 10)

    # It would begin again, with what it has learnt.
    with self.assertRaisesRegex(ValueError, 'make another'):
      more.run_experiment()

    # Another ROM is another environment.
    path = os.path.join(self.base_dir, 'run.json')
    with open(path, encoding='utf-8') as file:
      text = file.read()
    digest = json.loads(text)['environment']['rom_md5']
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text.replace(digest, 'f' * 32))
    with self.assertRaisesRegex(ValueError, f'- rom_md5 = f+; .*{digest}'):
      self.make_runner(num_iterations=4)

  def test_tensorboard_has_loss_and_returns_of_each_iteration(self):
    self.make_runner(num_iterations=2).run_experiment()
    scalars = {}
    for path in glob.glob(os.path.join(self.base_dir, 'events.*')):
      for event in tf.compat.v1.train.summary_iterator(path):
        for value in event.summary.value:
          scalars.setdefault(value.tag, []).append(event.step)
    for tag in (
      'Train/AverageLoss',
      'Train/UpdatesPerSecond',
      'Eval/AverageReturns',
      'Eval/NumEpisodes',
    ):
      self.assertEqual(scalars[tag], [0, 1], tag)

  def test_evaluates_side_by_side(self):
    gin.bind_parameter('FixedReplayRunner.evaluation_environments', 3)
    runner = self.make_runner(num_iterations=1)
    runner.run_experiment()
    statistics = runner._logger.data['iteration_0']
    self.assertEqual(statistics['eval_episode_lengths'], [30, 30, 30])
    self.assertLen(statistics['eval_episode_clipped_returns'], 3)
    path = os.path.join(self.base_dir, 'evaluations', '0.json')
    with open(path, encoding='utf-8') as file:
      episodes = json.load(file)['episodes']
    self.assertEqual([e['environment'] for e in episodes], [0, 1, 2])
    self.assertEqual(
      [e['undiscounted_return'] for e in episodes],
      statistics['eval_episode_returns'],
    )

    # The number belongs to the run, wherever it goes on.
    gin.bind_parameter('FixedReplayRunner.evaluation_environments', None)
    again = self.make_runner(num_iterations=2)
    self.assertEqual(again.record['evaluation_environments'], 3)

  def test_a_seed_decides_the_losses(self):
    runs = []
    for _ in range(2):
      self.base_dir = self.make_directory()
      runner = self.make_runner(num_iterations=1)
      runner._begin_iteration(0)
      runner._agent.begin_iteration(0)
      runs.append(list(runner._agent.train_steps(20)))
    self.assertEqual(runs[0], runs[1])


if __name__ == '__main__':
  absltest.main()
