"""Atari 2600 games under the protocol of the DQN Replay Dataset.

Sticky actions with probability 0.25, minimal action set, frame skip 4, losing
a life ends nothing, episodes end after 108,000 frames (27,000 agent steps).
`make_atari` builds the emulator; Dopamine's `create_atari_environment`, which
adds frame skip and 84x84 pictures, calls it through `GymWithRomSets`.

To choose the ROMs of a whole process in gin (see `roms.find_rom` for the
choices), or to make its environments repeatable:

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

# Before the first emulator, or it prints a banner.
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class AtariEnvironment(ale_env.AtariEnv):
  """The emulator as a Gymnasium environment: one frame a step, any ROM.

  Observations are the screen in grayscale, uint8, (210, 160) in most games;
  rewards are unclipped. At the frame cap, `step` returns `truncated`.

  Attributes:
    rom: the `roms.Rom` that is loaded.
  """

  def __init__(
    self,
    rom: roms.Rom,
    repeat_action_probability: float,
    max_num_frames_per_episode: int,
  ):
    self.rom = rom  # First, because the constructor calls `load_game`.
    super().__init__(
      rom.rom_id,
      obs_type='grayscale',
      frameskip=1,
      repeat_action_probability=repeat_action_probability,
      max_num_frames_per_episode=max_num_frames_per_episode,
    )
    # What pickle and copy construct it from.
    gymnasium.utils.EzPickle.__init__(
      self, rom, repeat_action_probability, max_num_frames_per_episode
    )

  def load_game(self) -> None:
    """Loads `rom`, where ale-py would take only a ROM that it ships itself."""
    self.ale.loadROM(self.rom.path)


# Dopamine passes repeat_action_probability: a binding would have no effect.
@gin.configurable(
  module='batch_rl.atari', denylist=['game', 'repeat_action_probability']
)
def make_atari(
  game: str,
  rom_set: str | os.PathLike[str] = 'auto',
  repeat_action_probability: float = 0.25,
  max_num_frames_per_episode: int = 108_000,
  seed: int | None = None,
) -> AtariEnvironment:
  """Makes the emulator of a game, without preprocessing.

  Args:
    game: e.g. `Pong` or `montezuma_revenge`.
    rom_set: 'auto', 'legacy', 'current' or a directory; see `roms.find_rom`.
    repeat_action_probability: probability, at each frame, that the previous
      action is repeated in place of the agent's.
    max_num_frames_per_episode: emulator frames after which an episode is
      truncated; 4 are one agent step.
    seed: of the sticky actions and the initial memory; None for a fresh one.
      Applied once: the episodes that follow differ from one another. All
      environments made with one seed are the same.

  Raises:
    ValueError: if the game is unknown or its ROM is missing or the wrong one.
  """
  env = AtariEnvironment(
    roms.find_rom(game, rom_set),
    repeat_action_probability,
    max_num_frames_per_episode,
  )
  if seed is not None:
    env.reset(seed=seed)
  return env


class _ScreenUnread(gymnasium.Wrapper):
  """Steps without fetching the screen, a sixth of an agent step's time.

  `AtariPreprocessing` drops these observations: it fetches the screen itself,
  of the last two frames in four.
  """

  def __init__(self, env: AtariEnvironment):
    super().__init__(env)
    self._ale = env.ale
    self._actions = env.ale.getMinimalActionSet()

  def step(self, action) -> tuple[None, float, bool, bool, dict]:
    reward = self._ale.act(self._actions[action], 1.0)
    terminated = self._ale.game_over(with_truncation=False)
    return None, reward, terminated, self._ale.game_truncated(), {}


class GymWithRomSets:
  """Gymnasium for Dopamine's `atari_lib`, with Atari games from `make_atari`.

  `dopamine_compat` puts it in place of `atari_lib.gym`.
  """

  def __init__(self, gym: types.ModuleType):
    self._gym = gym

  def __getattr__(self, name):
    return getattr(self._gym, name)

  def make(self, id: str, **kwargs: Any) -> gymnasium.Env:
    """Makes `ALE/<Game>-v5` with `make_atari`, all else with Gymnasium.

    The result is for `atari_lib.create_atari_environment`: it removes the
    outermost wrapper, and its cap of 100,000 frames is overruled by
    `make_atari`'s. Environments with continuous actions stay Gymnasium's.
    """
    match = re.fullmatch(r'ALE/(\w+)-v5', id)
    if match is None or kwargs.get('continuous'):
      return self._gym.make(id, **kwargs)
    probability = kwargs.get('repeat_action_probability', 0.25)
    env = make_atari(match[1], repeat_action_probability=probability)
    return gymnasium.Wrapper(_ScreenUnread(env))


class ResumableEnvironment:
  """Dopamine's Atari environment, and a way to go on with an episode later.

  An emulator's state leaves out which action sticks. What is kept is how the
  episode began and the actions since: some seconds to play again, at most.

  Args:
    environment: `AtariPreprocessing` around what `make_atari` returned.
  """

  def __init__(self, environment: Any):
    self._preprocessing = environment
    self._ale = environment.environment.unwrapped.ale
    self._beginning: dict[str, Any] | None = None
    self._actions: list[int] = []

  def __getattr__(self, name: str) -> Any:
    return getattr(self._preprocessing, name)

  def reset(self) -> np.ndarray:
    """See `AtariPreprocessing`."""
    observation = self._preprocessing.reset()
    self._beginning = {
      'emulator': self._ale.cloneState(include_rng=True).serialize(),
      'screens': [screen.copy() for screen in self.screen_buffer],
    }
    self._actions = []
    return observation

  def step(self, action: int) -> tuple:
    """See `AtariPreprocessing`."""
    self._actions.append(int(action))
    return self._preprocessing.step(action)

  def state(self) -> dict[str, Any] | None:
    """What `restore` needs, plain data; None before the first episode."""
    if self._beginning is None:
      return None
    return {**self._beginning, 'actions': np.array(self._actions, np.uint8)}

  def restore(self, state: Mapping[str, Any] | None) -> None:
    """Goes to where another environment of the game was at its `state()`."""
    if state is None:
      return
    self.reset()
    self._ale.restoreState(ale_py.ALEState(state['emulator']))
    self._preprocessing.screen_buffer = [s.copy() for s in state['screens']]
    self._preprocessing.lives = self._ale.lives()
    self._beginning = {name: state[name] for name in ('emulator', 'screens')}
    for action in state['actions'].tolist():
      self.step(action)


def make_resumable(environment: Any) -> Any:
  """The environment as a `ResumableEnvironment` if it can be one, or as it is."""
  inside = getattr(environment, 'environment', None)
  if isinstance(getattr(inside, 'unwrapped', None), AtariEnvironment):
    return ResumableEnvironment(environment)
  return environment


def make_vector_environment(
  game: str,
  num_envs: int,
  rom_set: str | os.PathLike[str] | None = None,
  repeat_action_probability: float = 0.25,
  max_num_frames_per_episode: int = 108_000,
  seed: int | None = None,
  **kwargs: Any,
) -> vector_env.AtariVectorEnv:
  """Makes emulators that step together, in C++ threads, with preprocessing.

  Observations are stacks of 4 pictures, uint8 (num_envs, 4, 84, 84), oldest
  first, zeros before an episode's first. They, the unclipped rewards and the
  ends of episodes equal those of Dopamine's environment, save the observation
  at the end of an episode, which either leaves undefined. The step after that
  ignores its action and returns the first observation of the next episode.

  Args:
    game: e.g. `Pong` or `montezuma_revenge`.
    num_envs: number of emulators.
    rom_set: as in `make_atari`; None for what gin binds there, or 'auto'.
    repeat_action_probability: as in `make_atari`.
    max_num_frames_per_episode: as in `make_atari`.
    seed: each emulator gets its own seed from it; None for fresh ones. A call
      of `reset(seed=...)` overrides it.
    **kwargs: of `AtariVectorEnv`, e.g. `num_threads` or `autoreset_mode`.

  Raises:
    ValueError: if the game is unknown or its ROM is missing or the wrong one.
  """
  if rom_set is None:
    rom_set = gin.get_bindings(make_atari).get('rom_set', 'auto')
  rom = roms.find_rom(game, rom_set)
  # The constructor looks `game` up among ale-py's ROMs; let it be a path.
  paths = types.SimpleNamespace(get_rom_path=lambda path: path)
  with mock.patch.object(vector_env, 'roms', paths):
    env = vector_env.AtariVectorEnv(
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
  # Left unseeded, emulators made in the same millisecond are the same; with an
  # int, seeds 1 and 2 have all emulators but one in common.
  seeds = np.random.SeedSequence(seed).generate_state(num_envs) >> 1  # int32
  env.reset(seed=seeds)
  return env


def describe(environment: Any) -> dict[str, Any]:
  """What was played, as values that JSON takes, to be kept beside results.

  Args:
    environment: Dopamine's `AtariPreprocessing`, or what `make_atari` returned.

  Returns:
    game (CamelCase), rom_md5, rom_set, rom_same_in_both_sets, engine,
    engine_version, repeat_action_probability, frame_skip (frames an agent
    step), max_num_frames_per_episode (frames) and num_actions; {} for an
    environment that `make_atari` did not make.
  """
  env = getattr(environment, 'environment', environment)
  env = getattr(env, 'unwrapped', env)
  if not isinstance(env, AtariEnvironment):
    return {}
  probability = env.ale.getFloat('repeat_action_probability')
  return {
    'game': env.rom.game,
    'rom_md5': env.rom.md5,
    'rom_set': env.rom.rom_set,
    'rom_same_in_both_sets': env.rom.same_in_both_sets,
    'engine': 'ale-py',
    'engine_version': ale_py.__version__,
    'repeat_action_probability': round(probability, 6),  # It is a float32.
    'frame_skip': getattr(environment, 'frame_skip', 1),
    'max_num_frames_per_episode': env.ale.getInt('max_num_frames_per_episode'),
    'num_actions': int(env.action_space.n),  # type: ignore[attr-defined]
  }
