"""The runner of online training: what the agent is given, and what is logged."""

import json
import os
import shutil

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.baselines import run_experiment
from batch_rl.baselines.agents import random_agent
from batch_rl.runs import progress, run_record
from batch_rl.tests import cartpole, random_walk

MAX_STEPS = 10  # of an episode; the longest ones take 12
OF_RUNNER = dict(training_steps=200, evaluation_steps=30)
OF_RUNNER |= dict(max_steps_per_episode=MAX_STEPS)
OF_AGENT = dict(observation_shape=random_walk.SHAPE, stack_size=1, seed=1)
OF_AGENT |= dict(observation_dtype=tf.float64, shard_capacity=1000)


class SpiedAgent(random_agent.RandomAgent):
  """Records the rewards that it is given."""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self.given = []

  def step(self, reward, observation):
    self.given.append(float(reward))
    return super().step(reward, observation)

  def end_episode(self, reward):
    self.given.append(float(reward))
    super().end_episode(reward)


def make_runner(directory, make_walk=random_walk.RandomWalk, **settings):
  walk = make_walk()
  walk.reset(seed=2)

  def create_agent(*_, **__):
    return SpiedAgent(None, walk.action_space.n, str(directory), **OF_AGENT)

  arguments = str(directory / 'run'), create_agent, lambda: walk
  return run_experiment.LoggedRunner(*arguments, **OF_RUNNER | settings)


def test_the_last_iteration_is_logged_and_the_seed_compared(tmp_path, synced):
  gin.bind_parameter('run_seed.seed', 1)
  make_runner(tmp_path, num_iterations=2, log_every_n=5).run_experiment()
  assert {*os.listdir(tmp_path / 'run/logs')} == {'log_0', 'log_1'} <= {*synced}
  for folder in 'run/checkpoints', 'replay_logs':  # It starts again.
    shutil.rmtree(tmp_path / folder)
  make_runner(tmp_path, num_iterations=1).run_experiment()
  names = 'log_0', 'log_0.before', 'log_1.before'
  assert {*os.listdir(tmp_path / 'run/logs')} == {*names}
  gin.clear_config()
  with pytest.raises(ValueError, match='- seed = 1'):
    make_runner(tmp_path, num_iterations=3)


class SavesAGenerator(random_walk.RandomWalk):
  def state(self):
    return {'rng': self._random}

  def restore(self, state):
    self._random = state['rng']


def test_a_state_that_cannot_be_saved_is_refused_at_the_start(tmp_path):
  with pytest.raises(ValueError, match='SavesAGenerator.state.*generator_ctor'):
    make_runner(tmp_path, SavesAGenerator)


def test_checkpoints_that_an_environment_cannot_have(tmp_path, caplog):
  gin.bind_parameter('batch_rl.checkpoints.Checkpoints.every_steps', 50)
  make_runner(tmp_path)
  assert (
    'every_steps has no effect: the environment lacks state()' in caplog.text
  )


def test_a_policy_of_another_game_is_refused(tmp_path, monkeypatch):
  run_record.write(str(tmp_path), {'environment': {'game': 'Other'}})
  policies = {f'{tmp_path}, last': {}}
  monkeypatch.setattr(SpiedAgent, 'frozen_policies', policies, raising=False)
  with pytest.raises(
    ValueError, match="of Other, but the game is 'RandomWalk'"
  ):
    make_runner(tmp_path)


@pytest.mark.parametrize('clips', [True, False])
def test_rewards_are_clipped_and_logged_unclipped(tmp_path, clips, caplog):
  gin.bind_parameter('run_seed.seed', 1)
  runner = make_runner(tmp_path, num_iterations=1, clip_rewards=clips)
  agent = runner._agent
  runner.run_experiment()
  # This environment is one's own.
  assert ('clips rewards to [-1, 1], such as 1.5' in caplog.text) == clips
  rates = progress.read(str(tmp_path / 'run'))['rates']
  assert rates.keys() == {'train', 'eval'}
  statistics = runner._logger.data['iteration_0']
  lengths = np.array(statistics['train_episode_lengths'])
  rows = np.arange(agent.replay_log.rows)
  logged = cartpole.read_log(tmp_path / 'replay_logs')
  log = {name: column[rows] for name, column in logged.items()}
  # Evaluation is not logged.
  assert 200 <= len(rows) == lengths.sum() < len(agent.given)
  # The environment's rewards, and those of the agent.
  unclipped = log['action'] - 0.5
  rewards = np.minimum(unclipped, 1) if clips else unclipped
  assert set(log['action']) == {0, 1, 2}
  assert agent.given[: len(rows)] == rewards.tolist()
  assert max(agent.given) == (1.0 if clips else 1.5)
  np.testing.assert_array_equal(log['reward'], rewards)
  # Life lost, game over, or the tenth step.
  left = log['observation'][:, 0, 0]
  last = np.cumsum(lengths) - 1
  terminal = np.isin(left, [1, 4])
  assert lengths.max() == MAX_STEPS and not terminal[last].all()
  terminal[last] = True
  np.testing.assert_array_equal(log['terminal'], terminal)
  # Each life is an episode of the log, each game one of the statistics.
  manifest = json.loads((tmp_path / 'replay_logs/manifest.json').read_text())
  [shard] = manifest['shards']
  returns = shard['episodes']['unclipped_returns']
  sums = np.bincount(np.searchsorted(last, np.flatnonzero(terminal)), returns)
  np.testing.assert_array_equal(sums, statistics['train_episode_returns'])
  changed = rf'\{"+" if clips else "-"} LoggedRunner.clip_rewards = False'
  with pytest.raises(ValueError, match=changed):
    make_runner(tmp_path, num_iterations=2, clip_rewards=not clips)
