"""An environment in plain Python, without Gymnasium."""

import types

import gin
import numpy as np

SHAPE = (2, 3)


@gin.configurable
class RandomWalk:
  """Episodes of 6 to 12 agent steps; a life is lost three steps before the end.

  Observations are float64 (2, 3): the number of steps left, and normal random
  numbers. Action a pays a - 0.5, a NumPy scalar.
  """

  def __init__(self, num_actions=3):
    self.action_space = types.SimpleNamespace(n=num_actions)
    self.game_over = False
    self._random = np.random.default_rng()

  def reset(self, seed=None):
    if seed is not None:
      self._random = np.random.default_rng(seed)
    self._left = int(self._random.integers(6, 13))
    self.game_over = False
    return self._observe()

  def step(self, action):
    self._left -= 1
    self.game_over = self._left == 0
    terminal = self._left in (0, 3)
    # As with Atari, the observation at the end has no meaning.
    observation = None if self.game_over else self._observe()
    return observation, np.float32(action - 0.5), terminal, {}

  def _observe(self):
    observation = self._random.normal(size=SHAPE)
    observation[0, 0] = self._left
    return observation


class DrawnWalk(RandomWalk):
  """A `RandomWalk` with images."""

  def render(self):
    return np.full((16, 24, 3), 10 * self._left, np.uint8)
