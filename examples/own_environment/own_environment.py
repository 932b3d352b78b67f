"""A grid world. To log random play: python own_environment.py DIRECTORY."""

import collections
import sys
import types

import gin
import numpy as np
import tensorflow as tf

from batch_rl.dataset import ReplayLog

SIZE = 5
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
Outputs = collections.namedtuple('Outputs', 'q_values')


@gin.configurable
class GridWorld:  # see batch_rl.runs.environments.Environment
  name, game_over = 'GridWorld', True
  action_space = types.SimpleNamespace(n=len(MOVES))

  def reset(self, seed=None):  # Nothing is random, so the seed has no effect.
    self._cell, self.game_over = np.zeros(2, int), False
    return self._draw()

  def step(self, action):  # Each step to the opposite corner costs 0.1.
    self._cell = np.clip(self._cell + MOVES[action], 0, SIZE - 1)
    self.game_over = bool(np.all(self._cell == SIZE - 1))
    return self._draw(), -0.1, self.game_over, {}

  def _draw(self):
    return np.uint8(255) * np.all(np.indices((SIZE, SIZE)).T == self._cell, -1)


@gin.configurable
class GridNetwork(tf.keras.Model):
  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self._hidden = tf.keras.layers.Dense(64, activation='relu', name='hidden')
    self._last = tf.keras.layers.Dense(num_actions, name='last')

  def call(self, state):  # uint8 (n, SIZE, SIZE, 1)
    x = tf.reshape(tf.cast(state, tf.float32) / 255, (-1, SIZE**2))
    return Outputs(self._last(self._hidden(x)))


if __name__ == '__main__':
  env, random = GridWorld(), np.random.default_rng(0)
  shape, about = (SIZE, SIZE), {'environment': {'game': env.name}}
  log = ReplayLog(sys.argv[1], shape, np.uint8, stack_size=1, metadata=about)
  with log:
    for _ in range(300):  # episodes
      observation = env.reset()
      while not env.game_over:
        row = observation, random.integers(len(MOVES))
        observation, reward, terminal, _ = env.step(row[1])
        log.add(*row, reward, terminal)
