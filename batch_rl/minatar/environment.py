"""Games of MinAtar as environments (Young and Tian, 2019, arXiv 1903.03176).

Agents have all six actions in every game (nothing, left, up, right, down, fire), as in
Young and Tian and in Obando-Ceron and Castro, 2021, though some have no effect. Actions
stick with probability 0.1, and the difficulty rises within an episode. An agent step is
a frame.
"""

import copy
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import pathlib
import types
from collections.abc import Mapping
from typing import Any

import gin
import gymnasium
import numpy as np

from batch_rl.minatar import games
from batch_rl.utils import plane_colors

_NUM_ACTIONS = 6
_PIXELS = 12  # height and width of a cell in an image
# Attributes of a game that never change, or are saved apart.
_NOT_SAVED = ('channels', 'action_map', 'ramping', 'random')


@gin.configurable(module='batch_rl.minatar')
class MinAtarEnvironment:
  """A game of MinAtar; see `batch_rl.runs.environments.Environment`.

  Observations are uint8 (10, 10, planes), 0 or 1. The episodes with a seed are those of
  a new `minatar.Environment` with that seed.

  Args:
    game_name: Name of the game, e.g. `Breakout` or `MinAtar/Breakout`.
    repeat_action_probability: Probability, at each step, that the game repeats the
      previous action.
    difficulty_ramping: Whether Asterix, Seaquest and Space Invaders become harder
      within an episode.

  Attributes:
    name: Name of the game, e.g. `MinAtar-Breakout`.
    action_space: Object whose `n` is the number of actions, 6.
    observation_space: Space of the observations.
    game_over: Whether the episode has ended. Freeway ends after 2,500 steps, which is
      a terminal step, as in MinAtar.

  Raises:
    ValueError: If the game is unknown, or MinAtar is not installed.
  """

  def __init__(
    self,
    game_name: str,
    repeat_action_probability: float = 0.1,
    difficulty_ramping: bool = True,
  ):
    self.name = games.canonical_name(game_name)
    self.action_space = types.SimpleNamespace(n=_NUM_ACTIONS)
    shape = games.observation_shape(game_name)
    self.observation_space = gymnasium.spaces.Box(0, 1, shape, np.uint8)
    self.game_over = True
    self._repeat_probability = repeat_action_probability
    self._difficulty_ramping = difficulty_ramping
    self._game = _load(games.module_name(game_name)).Env(
      ramping=difficulty_ramping
    )
    self._last_action = 0
    self._random = self._game.random = np.random.RandomState()

  def reset(self, seed: int | None = None) -> np.ndarray:
    """Starts an episode; see `Environment`."""
    if seed is not None:
      self._random = self._game.random = np.random.RandomState(seed)
      self._last_action = 0
    self._game.reset()
    self.game_over = False
    return self._observe()

  def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
    """Takes an agent step; see `Environment`."""
    if not 0 <= action < _NUM_ACTIONS:
      raise ValueError(f'There is no action {action}.')
    if self._random.rand() < self._repeat_probability:
      action = self._last_action
    self._last_action = int(action)
    reward, self.game_over = self._game.act(self._last_action)
    return self._observe(), float(reward), self.game_over, {}

  def _observe(self):
    return self._game.state().view(np.uint8)  # from bool, without a copy

  def render(self) -> np.ndarray:
    """Returns the planes in colour, uint8 (120, 120, 3)."""
    image = plane_colors.color(255 * self._observe()[None])[0]
    return image.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

  def state(self) -> dict[str, Any]:
    """Returns the state as plain data, also within an episode."""
    return {
      'game': {
        name: copy.deepcopy(value)
        for name, value in vars(self._game).items()
        if name not in _NOT_SAVED
      },
      'random': self._random.get_state(legacy=True),
      'last_action': self._last_action,
      'game_over': self.game_over,
    }

  def restore(self, state: Mapping[str, Any]) -> None:
    """Restores a state that an environment of the same game returned."""
    vars(self._game).update(copy.deepcopy(state['game']))
    self._random.set_state(state['random'])
    self._last_action = state['last_action']
    self.game_over = state['game_over']

  def describe(self) -> dict[str, Any]:
    """Returns the settings in JSON-serialisable values, for the record of a run."""
    return {
      'game': self.name,
      'engine': 'minatar',
      'engine_version': importlib.metadata.version('minatar'),
      'repeat_action_probability': self._repeat_probability,
      'difficulty_ramping': self._difficulty_ramping,
      'frame_skip': 1,
      'num_actions': _NUM_ACTIONS,
    }


@gin.configurable(module='batch_rl.minatar')
def minatar_observation_shape() -> tuple[int, int, int]:
  """Returns the shape of an observation in the game that gin configures.

  Raises:
    ValueError: If `MinAtarEnvironment.game_name` is not bound.
  """
  return games.observation_shape(configured_game())


def configured_game() -> str:
  """Returns the name of the game that gin configures.

  Raises:
    ValueError: If `MinAtarEnvironment.game_name` is not bound, or unknown.
  """
  bound = gin.get_bindings(MinAtarEnvironment).get('game_name')
  if bound is None:
    raise ValueError(
      "No game: bind MinAtarEnvironment.game_name, e.g. to 'Breakout'."
    )
  return games.canonical_name(bound)


@functools.cache
def _load(name: str) -> types.ModuleType:
  """Returns the module of a game.

  Importing `minatar` itself takes seconds: it imports seaborn for its window.

  Raises:
    ValueError: If MinAtar is not installed.
  """
  package = importlib.util.find_spec('minatar')
  if package is None or not package.submodule_search_locations:
    raise ValueError(
      "MinAtar is not installed: pip install 'batch_rl[minatar]'."
    )
  [folder, *_] = package.submodule_search_locations
  path = pathlib.Path(folder, 'environments', f'{name}.py')
  loader = importlib.machinery.SourceFileLoader(f'_minatar_{name}', str(path))
  module = types.ModuleType(loader.name)
  loader.exec_module(module)
  return module


def check_installed() -> None:
  """Checks that MinAtar is installed.

  Raises:
    ValueError: If it is not.
  """
  _load('breakout')
