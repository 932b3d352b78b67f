"""Evaluation of an agent in one environment or several at once.

Episodes are played by Dopamine's rules. `runs/evaluations.py` writes their files, and
`evaluate.py` is the program that evaluates checkpoints.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging
from dopamine.discrete_domains import atari_lib

from batch_rl.atari import environment as atari
from batch_rl.dataset.checks import videos
from batch_rl.fixed_replay import sequential_environments
from batch_rl.runs import environments as environments_lib
from batch_rl.runs import evaluations
from batch_rl.utils import machine

# Limits the share of time in which emulators wait for the last episode to end.
_STEPS_PER_ENVIRONMENT = 10_000
# Settings of an environment and an agent that `AtariVectorEnv` fits.
_SETTINGS = {
  'frame_skip': 4,
  'terminal_on_life_loss': False,
  'screen_size': 84,
  'observation_shape': (84, 84),
  'observation_dtype': np.uint8,
}
_Act = Callable[[np.ndarray, Sequence[np.random.Generator]], np.ndarray]


def default_environments(environment: Any, agent: Any, num_steps: int) -> int:
  """Returns the number of environments of an evaluation.

  It is four emulators per processor, but at most one per 10,000 steps; 1 for
  environments that do not step in threads.

  Args:
    environment: Environment to evaluate in.
    agent: Agent to evaluate.
    num_steps: Number of agent steps in all emulators together.
  """
  if not _steps_in_threads(environment, agent):
    return 1
  most = max(1, num_steps // _STEPS_PER_ENVIRONMENT)
  return min(4 * machine.num_cpus(), most)


def _steps_in_threads(environment, agent):
  """Returns whether `AtariVectorEnv` plays the same episodes as an environment."""
  if type(environment) is not atari_lib.AtariPreprocessing or not isinstance(
    environment.environment, atari.WithoutScreen
  ):
    return False
  settings = {**vars(environment), **vars(agent)}
  others = [
    f'{name} = {settings[name]}'
    for name, value in _SETTINGS.items()
    if settings[name] != value
  ]
  if others:
    logging.warning(
      'Evaluation steps one emulator after another, which is slower, because of %s.',
      ', '.join(others),
    )
  return not others


def make_environments(
  environment: Any,
  num_envs: int,
  max_steps_per_episode: int | None,
  agent: Any,
  create_environment: Callable[[], Any] = atari_lib.create_atari_environment,
) -> Any:
  """Returns environments for `play_episodes`.

  Args:
    environment: The first environment.
    num_envs: Number of environments.
    max_steps_per_episode: Number of agent steps after which an episode is truncated;
      None for no limit but the environment's own.
    agent: Agent that plays.
    create_environment: Function that returns a further environment.

  Returns:
    Emulators that step in threads if there are several and their settings allow it,
    otherwise `SequentialEnvironments`.

  Raises:
    ValueError: If the environments do not fit the agent.
  """
  if num_envs > 1 and _steps_in_threads(environment, agent):
    settings = atari.describe(environment)
    frames = settings['max_num_frames_per_episode']
    if max_steps_per_episode is not None:
      frames = min(frames, 4 * max_steps_per_episode)
    return atari.make_vector_environment(
      environment.environment.unwrapped.rom,
      num_envs,
      repeat_action_probability=settings['repeat_action_probability'],
      max_num_frames_per_episode=frames,
      num_threads=min(num_envs, machine.num_cpus()),
      stack_num=agent.stack_size,
    )
  others = [create_environment() for _ in range(num_envs - 1)]
  return sequential_environments.SequentialEnvironments(
    [environment, *others], agent, max_steps_per_episode
  )


def name_ignored_methods(agent_class: type) -> None:
  """Warns of a user's methods that Dopamine calls in an episode."""
  ignored = [
    name
    for name in ('begin_episode', 'step', 'end_episode')
    if (method := getattr(agent_class, name, None))
    and method.__module__.split('.')[0] not in ('batch_rl', 'dopamine')
  ]
  if ignored:
    logging.warning(
      'Evaluations do not call %s of %s: they act by choose_actions, or by an own '
      '_select_action, in each state on its own.',
      ', '.join(ignored),
      agent_class.__name__,
    )


def play_episodes(
  environments: Any,
  act: _Act,
  num_steps: int,
  seed: int | None,
  progress: Callable[[int], Any] = lambda steps: None,
) -> list[evaluations.Episode]:
  """Plays complete episodes until a number of agent steps is reached.

  Each emulator plays complete episodes until its share of the steps is reached,
  which is Dopamine's rule for one emulator (Machado et al., 2018). Stopping as soon
  as their sum reaches the number would favour short episodes. The seed and the random
  numbers of an emulator do not depend on the number of emulators.

  Args:
    environments: `AtariVectorEnv` that resets an emulator in the step after its
      episode ends, and takes one seed per emulator; or `SequentialEnvironments`.
    act: Function from states (n, stack_size, *observation_shape), and a generator of
      random numbers for each, to actions int (n,).
    num_steps: Number of agent steps in all emulators together.
    seed: Seed of the emulators and of the generators; None draws one.
    progress: Function called with the number of steps since its last call.

  Returns:
    The episodes by emulator, in the order played.
  """
  episodes: list[evaluations.Episode] = []
  for steps, ended in _play(environments, act, num_steps, seed):
    progress(steps)
    episodes += ended
  return sorted(episodes, key=lambda episode: episode.environment)


def _play(
  environments: Any, act: _Act, num_steps: int, seed: int | None, first: int = 0
) -> Iterator[tuple[int, list[evaluations.Episode]]]:
  """Yields after each step the number of emulators in it, and episodes it ended.

  Those in `environments` get the random numbers of emulators `first`, `first + 1`, ...
  """
  count = environments.num_envs
  sequence = np.random.SeedSequence(seed)
  seeds = sequence.generate_state(first + count)[first:] >> 1  # int32
  children = sequence.spawn(first + count)[first:]
  generators = [np.random.default_rng(child) for child in children]
  states, _ = environments.reset(seed=seeds)
  share = -(-num_steps // count)
  taken = np.zeros(count, np.int64)
  length = np.zeros(count, np.int64)
  total, clipped = np.zeros(count), np.zeros(count)
  playing, ended = np.full(count, share > 0), np.zeros(count, bool)
  actions = np.zeros(count, np.int64)
  while playing.any():
    # The step after an end resets an emulator. Finished emulators keep stepping;
    # their results are ignored.
    acting = np.flatnonzero(playing & ~ended)
    if acting.size:
      actions[acting] = act(states[acting], [generators[i] for i in acting])
    states, rewards, terminated, truncated, _ = environments.step(actions)
    length[acting] += 1
    total[acting] += rewards[acting]
    clipped[acting] += np.clip(rewards[acting], -1, 1)
    ended = terminated | truncated
    over = acting[ended[acting]]
    results = over, length[over], total[over], clipped[over]
    episodes = [*map(evaluations.Episode, *(x.tolist() for x in results))]
    taken[over] += length[over]
    length[over] = total[over] = clipped[over] = 0
    playing &= ~(ended & (taken >= share))
    yield acting.size, episodes


def record_video(
  path: str,
  environment: Any,
  max_steps_per_episode: int | None,
  agent: Any,
  seed: int,
  emulator: int = 0,
  number: int = 0,
) -> evaluations.Episode:
  """Writes a video of one episode of `play_episodes`, which it plays again, in color.

  Args:
    path: Output file, .gif or .mp4.
    environment: Environment to play in.
    max_steps_per_episode: Number of agent steps after which an episode is
      truncated; None for no limit but the environment's own.
    agent: Agent that plays.
    seed: Seed of `play_episodes`.
    emulator: Number of the episode's emulator.
    number: Number of the episode among those of the emulator.

  Returns:
    The episode that is shown.

  Raises:
    ValueError: If the environment gives no images.
  """
  episodes: list[evaluations.Episode] = []
  single = make_environments(environment, 1, max_steps_per_episode, agent)

  def screens():
    played = _play(single, agent.select_actions, sys.maxsize, seed, emulator)
    for steps, ended in played:
      if steps and len(episodes) == number:
        yield environments_lib.screen(environment)
      episodes.extend(ended)
      if len(episodes) > number:
        return

  videos.write_images(screens(), path, scale=2)
  return dataclasses.replace(episodes[number], environment=emulator)
