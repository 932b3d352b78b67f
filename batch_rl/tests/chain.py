"""A chain of four states, whose policies have known values, and logs of it.

Action 1 goes on, and pays 1 after the last state; action 0 ends the episode in state s,
and pays s / 4.
"""

import types

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.dataset.shards import replay_log

STATES, GAMMA = 4, 0.9
# Gin bindings of runs on the chain, besides those of CartPole, of the same shape.
SETTINGS = [
  f'import {__name__}',
  'FixedReplayRunner.create_environment_fn = @Chain',
  'FixedReplayDQNAgent.network = @TableNetwork',
  f'FixedReplayDQNAgent.gamma = {GAMMA}',
  'FixedReplayDQNAgent.target_update_period = 20',
  'FixedReplayRunner.num_iterations = 1',
  'FixedReplayRunner.training_steps = 400',
  'FixedReplayRunner.evaluation_steps = 20',
  'FixedReplayRunner.probe_size = 0',
  'tf.train.AdamOptimizer.learning_rate = 0.05',
]


@gin.configurable
class Chain:
  """The chain as an environment; observations are one-hot, float64 (4, 1)."""

  name = 'Chain'

  def __init__(self):
    self.action_space = types.SimpleNamespace(n=2)
    self.game_over = True

  def reset(self, seed=None):
    self._state, self.game_over = 0, False
    return one_hot(0)

  def step(self, action):
    reward = float(self._state == STATES - 1) if action else self._state / 4
    self._state += 1
    self.game_over = not action or self._state == STATES
    return one_hot(self._state % STATES), reward, self.game_over, {}


def one_hot(state):
  return np.eye(STATES)[state][:, None]


@gin.configurable(denylist=['num_actions', 'name'])
class TableNetwork(tf.keras.Model):
  """A Q-value for each state and action, random at first."""

  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self.dense = tf.keras.layers.Dense(
      num_actions, use_bias=False, kernel_initializer='random_normal'
    )

  def call(self, state):
    x = tf.reshape(tf.cast(state, tf.float32), (-1, STATES))
    return atari_lib.DQNNetworkType(self.dense(x))


def write_log(directory, episodes=200):
  """Logs episodes of a random policy that mostly goes on."""
  random, environment = np.random.default_rng(0), Chain()
  with replay_log.ReplayLog(directory, (STATES, 1), np.float64, 1000, 1) as log:
    for _ in range(episodes):
      observation = environment.reset()
      while not environment.game_over:
        action = int(random.random() < 0.7)
        following, reward, terminal, _ = environment.step(action)
        log.add(observation, action, reward, terminal)
        observation = following


def value(actions):
  """Returns the discounted return of a policy, its action in each state: float."""
  environment, total, discount = Chain(), 0.0, 1.0
  environment.reset()
  while not environment.game_over:
    _, reward, _, _ = environment.step(actions[environment._state])
    total, discount = total + discount * reward, discount * GAMMA
  return total
