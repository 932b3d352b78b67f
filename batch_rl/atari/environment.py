"""Atari 2600 games under the protocol of the DQN Replay Dataset.

The protocol: sticky actions with probability 0.25, minimal action set, frame skip
4, no end of episode on life loss, episodes of at most 108,000 frames
(27,000 agent steps). `make_atari` builds the emulator; Dopamine's
`create_atari_environment` calls it through `GymWithRomSets` and adds frame skip
and 84x84 frames.

gin chooses the ROMs of all environments (see `roms.find_rom`), and their first seed.
This package's runners seed them again in each iteration, others do not:

  batch_rl.atari.make_atari.rom_set = 'current'
  batch_rl.atari.make_atari.seed = 1
"""

import os
import re
import types
from collections.abc import Mapping
from typing import Any
from unittest import mock

import ale_py
import gin
import gymnasium
import numpy as np
from ale_py import env as ale_env
from ale_py import vector_env

from batch_rl.atari import roms

# The first emulator would print a banner.
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class AtariEnvironment(ale_env.AtariEnv):
  """The emulator as a Gymnasium environment: one frame a step, any ROM.

  Observations are grayscale screens, uint8, (210, 160) in most games; rewards are
  unclipped. At the frame cap, `step` returns `truncated`.

  Args:
    rom: ROM of the game.
    **kwargs: Further arguments of `AtariEnv`.

  Attributes:
    rom: The loaded `roms.Rom`.
  """

  def __init__(self, rom: roms.Rom, **kwargs: Any):
    self.rom = rom  # first, because the constructor calls `load_game`
    super().__init__(rom.rom_id, obs_type='grayscale', frameskip=1, **kwargs)

  def load_game(self) -> None:
    """Loads `rom`; ale-py itself would only load a ROM that it ships."""
    self.ale.loadROM(self.rom.path)


# Dopamine passes repeat_action_probability, so a binding would have no effect.
@gin.configurable(
  module='batch_rl.atari', denylist=['game', 'repeat_action_probability']
)
def make_atari(
  game: str,
  rom_set: str = 'auto',
  repeat_action_probability: float = 0.25,
  max_num_frames_per_episode: int = 108_000,
  seed: int | None = None,
) -> AtariEnvironment:
  """Makes the emulator of a game, without preprocessing.

  Args:
    game: Name of the game, e.g. `Pong` or `montezuma_revenge`.
    rom_set: ROM set: 'auto', 'legacy' or 'current'; see `roms.find_rom`.
    repeat_action_probability: Probability, at each frame, that the emulator repeats
      the previous action.
    max_num_frames_per_episode: Number of emulator frames, 4 an agent step, after
      which an episode is truncated.
    seed: Seed of the sticky actions and the initial memory; None for a random one.
      It is applied once, so the episodes of an environment differ. Environments
      with equal seeds are identical.

  Raises:
    ValueError: If the game is unknown, or its ROM is missing or the wrong one.
  """
  env = AtariEnvironment(
    roms.find_rom(game, rom_set),
    repeat_action_probability=repeat_action_probability,
    max_num_frames_per_episode=max_num_frames_per_episode,
  )
  if seed is not None:
    env.reset(seed=seed)
  return env


class WithoutScreen(gymnasium.Wrapper):
  """Steps without fetching the screen, which saves a sixth of an agent step.

  `AtariPreprocessing` ignores these observations. It fetches the last two of four
  screens itself.
  """

  def __init__(self, env: AtariEnvironment):
    super().__init__(env)
    self._ale = env.ale
    self._actions = env.ale.getMinimalActionSet()

  def step(self, action) -> tuple[None, float, bool, bool, dict]:
    """Steps as `AtariEnvironment` does; returns None for the screen."""
    reward = self._ale.act(self._actions[action], 1.0)
    terminated = self._ale.game_over(with_truncation=False)
    return None, reward, terminated, self._ale.game_truncated(), {}


class GymWithRomSets:
  """Gymnasium for Dopamine's `atari_lib`, with Atari games from `make_atari`.

  `dopamine_compat` assigns it to `atari_lib.gym`.
  """

  def __init__(self, gym: types.ModuleType):
    self._gym = gym

  def __getattr__(self, name):
    return getattr(self._gym, name)

  def make(self, id: str, **kwargs: Any) -> gymnasium.Env:
    """Makes `ALE/<Game>-v5` with `make_atari`, everything else with Gymnasium.

    The outermost wrapper does nothing: `atari_lib.create_atari_environment` removes
    one. The frame cap is that of `make_atari`, not the 100,000 frames of
    `atari_lib`. Environments with continuous actions come from Gymnasium.
    """
    match = re.fullmatch(r'ALE/(\w+)-v5', id)
    if match is None or kwargs.get('continuous'):
      return self._gym.make(id, **kwargs)
    probability = kwargs.get('repeat_action_probability', 0.25)
    env = make_atari(match[1], repeat_action_probability=probability)
    return gymnasium.Wrapper(WithoutScreen(env))


class ResumableEnvironment:
  """Dopamine's Atari environment with a state that can be saved within an episode.

  An emulator's state lacks the last action, which may stick. The saved state is
  therefore the start of the episode and the actions since. Replaying them takes a
  few seconds at most.

  Args:
    environment: `AtariPreprocessing` around an environment of `make_atari`.
  """

  def __init__(self, environment: Any):
    self._preprocessing = environment
    self._ale = environment.environment.unwrapped.ale
    self._beginning: dict[str, Any] = {}
    self._actions: list[int] = []

  def __getattr__(self, name: str) -> Any:
    return getattr(self._preprocessing, name)

  def reset(self) -> np.ndarray:
    """Starts an episode; see `AtariPreprocessing`."""
    observation = self._preprocessing.reset()
    self._beginning = {
      'emulator': self._ale.cloneState(include_rng=True).serialize(),
      'screens': [screen.copy() for screen in self.screen_buffer],
    }
    self._actions = []
    return observation

  def step(self, action: int) -> tuple:
    """Takes an agent step; see `AtariPreprocessing`."""
    self._actions.append(int(action))
    return self._preprocessing.step(action)

  def state(self) -> dict[str, Any]:
    """Returns the state as plain data, once an episode has begun."""
    return {**self._beginning, 'actions': np.array(self._actions, np.uint8)}

  def restore(self, state: Mapping[str, Any]) -> None:
    """Restores a state that an environment of the same game returned."""
    self.reset()
    self._ale.restoreState(ale_py.ALEState(state['emulator']))
    self._preprocessing.screen_buffer = [s.copy() for s in state['screens']]
    self._preprocessing.lives = self._ale.lives()
    self._beginning = {name: state[name] for name in ('emulator', 'screens')}
    for action in state['actions'].tolist():
      self.step(action)


def make_resumable(environment: Any) -> Any:
  """Wraps `AtariPreprocessing` in `ResumableEnvironment`; returns others as is."""
  if emulator(environment) and hasattr(environment, 'screen_buffer'):
    return ResumableEnvironment(environment)
  return environment


def make_vector_environment(
  rom: roms.Rom,
  num_envs: int,
  repeat_action_probability: float = 0.25,
  max_num_frames_per_episode: int = 108_000,
  **kwargs: Any,
) -> vector_env.AtariVectorEnv:
  """Makes emulators that step together in C++ threads, with preprocessing.

  Observations are stacks of frames, uint8 (num_envs, stack_num, 84, 84), oldest first,
  zeros before an episode's first frame; `stack_num` is 4 by default. Observations,
  unclipped rewards and ends of episodes equal those of Dopamine's environment, except
  the observation at the end of an episode, which both leave undefined. The step after that ignores its action
  and returns the first observation of the next episode.

  Args:
    rom: ROM of the game.
    num_envs: Number of emulators. Until `reset(seed=...)`, several may be identical.
    repeat_action_probability: Probability, at each frame, that an emulator repeats
      the previous action.
    max_num_frames_per_episode: Number of emulator frames after which an episode is
      truncated.
    **kwargs: Arguments of `AtariVectorEnv`, e.g. `num_threads`, `autoreset_mode`.
  """
  # The constructor looks up `game` in ale-py's ROMs; this lets it be a path.
  paths = types.SimpleNamespace(get_rom_path=lambda path: path)
  with mock.patch.object(vector_env, 'roms', paths):
    return vector_env.AtariVectorEnv(
      os.fspath(rom.path),
      num_envs,
      repeat_action_probability=repeat_action_probability,
      max_num_frames_per_episode=max_num_frames_per_episode,
      frameskip=4,
      maxpool=True,
      noop_max=0,
      use_fire_reset=False,
      reward_clipping=False,
      **kwargs,
    )


def emulator(environment: Any) -> AtariEnvironment | None:
  """Returns the environment of `make_atari` in an environment, or None."""
  env = getattr(environment, 'environment', environment)
  env = getattr(env, 'unwrapped', env)
  return env if isinstance(env, AtariEnvironment) else None


def describe(environment: Any) -> dict[str, Any]:
  """Describes an environment in JSON-serialisable values, for the record of a run.

  Args:
    environment: Environment of `make_atari`, or `AtariPreprocessing` around one.

  Returns:
    Dictionary of game (CamelCase), rom_md5, rom_set, rom_same_in_both_sets, engine,
    engine_version, repeat_action_probability, frame_skip (frames an agent step),
    max_num_frames_per_episode (frames) and num_actions; {} for an environment that
    `make_atari` did not make.
  """
  env = emulator(environment)
  if env is None:
    return {}
  probability = env.ale.getFloat('repeat_action_probability')
  return {
    'game': env.rom.game,
    'rom_md5': env.rom.md5,
    'rom_set': env.rom.rom_set,
    'rom_same_in_both_sets': env.rom.same_in_both_sets,
    'engine': 'ale-py',
    'engine_version': ale_py.__version__,
    'repeat_action_probability': round(probability, 6),  # a float32
    'frame_skip': getattr(environment, 'frame_skip', 1),
    'max_num_frames_per_episode': env.ale.getInt('max_num_frames_per_episode'),
    'num_actions': int(env.action_space.n),  # type: ignore[attr-defined]
  }
