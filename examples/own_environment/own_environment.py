"""A grid world, and a log of random play in it.

python own_environment.py --log_dir=data/GridWorld/1
"""

import argparse
import types

import numpy as np

from batch_rl.dataset import ReplayLog

SIZE = 5
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class GridWorld:
  """A robot goes from one corner to the opposite one; each step costs 0.1."""

  name = 'GridWorld'
  action_space = types.SimpleNamespace(n=len(MOVES))
  game_over = True

  def reset(self, seed: int | None = None) -> np.ndarray:
    """Starts an episode; nothing is random, so the seed has no effect."""
    self._cell, self.game_over = np.array([0, 0]), False
    return self._draw()

  def step(self, action: int) -> tuple[np.ndarray, float, bool, dict]:
    """Moves the robot; returns observation, reward, terminal and info."""
    self._cell = np.clip(self._cell + MOVES[action], 0, SIZE - 1)
    self.game_over = bool(np.all(self._cell == SIZE - 1))
    return self._draw(), -0.1, self.game_over, {}

  def _draw(self) -> np.ndarray:
    image = np.zeros((SIZE, SIZE), np.uint8)
    image[tuple(self._cell)] = 255
    return image


if __name__ == '__main__':
  parser = argparse.ArgumentParser()
  parser.add_argument('--log_dir', required=True)
  directory = parser.parse_args().log_dir + '/replay_logs'
  env, random = GridWorld(), np.random.default_rng(0)
  about = {'environment': {'game': env.name, 'num_actions': len(MOVES)}}
  with ReplayLog(directory, (SIZE, SIZE), np.uint8, metadata=about) as log:
    observation = env.reset()
    for _ in range(20_000):
      action = random.integers(len(MOVES))
      following, reward, terminal, _ = env.step(action)
      log.add(observation, action, reward, terminal)
      observation = env.reset() if terminal else following
