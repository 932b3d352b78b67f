"""Plays episodes in many emulators at once, as Dopamine plays in one."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

from batch_rl.atari import environment as atari
from batch_rl.dataset import files

DIRECTORY = 'evaluations'
# So that the last episodes, which end after the others, are a small part.
_STEPS_PER_ENVIRONMENT = 10_000


@dataclasses.dataclass(frozen=True)
class Episode:
  """A complete episode.

  Attributes:
    environment: the emulator that it was played in.
    length: agent steps.
    undiscounted_return: the sum of its rewards.
    clipped_return: the sum of its rewards, each clipped to [-1, 1].
  """

  environment: int
  length: int
  undiscounted_return: float
  clipped_return: float


def default_environments(num_steps: int) -> int:
  """Four for each processor, none of them with but a few steps to play.

  Args:
    num_steps: agent steps to play in all.
  """
  most = max(1, num_steps // _STEPS_PER_ENVIRONMENT)
  return min(4 * files.num_cpus(), most)


def make_environments(
  single: Any, num_envs: int, max_steps_per_episode: int
) -> Any:
  """Emulators that play what a single environment plays, together.

  Args:
    single: Dopamine's `AtariPreprocessing`.
    num_envs: how many.
    max_steps_per_episode: agent steps after which an episode is cut off.

  Returns:
    An `AtariVectorEnv`, or None if it would play something else.
  """
  about = atari.describe(single)
  if not about:
    return None
  plain = {'frame_skip': 4, 'terminal_on_life_loss': False, 'screen_size': 84}
  for name, value in plain.items():
    if getattr(single, name) != value:
      logging.warning(
        'AtariPreprocessing.%s = %s: evaluation is in one environment.',
        name,
        getattr(single, name),
      )
      return None
  return atari.make_vector_environment(
    about['game'],
    num_envs,
    repeat_action_probability=about['repeat_action_probability'],
    max_num_frames_per_episode=min(
      about['max_num_frames_per_episode'], 4 * max_steps_per_episode
    ),
    num_threads=min(num_envs, files.num_cpus()),
  )


def play(
  environments: Any,
  act: Callable[[np.ndarray], np.ndarray],
  num_steps: int,
  seed: int | None,
  progress: Callable[[int], Any] = lambda steps: None,
) -> list[Episode]:
  """Plays complete episodes until there are at least so many steps.

  That is Dopamine's rule (Machado et al., 2018), kept in each environment for its
  share of the steps: to stop as soon as all of them together have enough would
  favour short episodes.

  Args:
    environments: an `AtariVectorEnv` that starts the next episode in the step
      after an end, and takes a seed for each emulator.
    act: returns actions int (n,), given states uint8 (n, stack, height, width).
    num_steps: agent steps of all environments.
    seed: of the environments; None for chance.
    progress: called with numbers of steps that were taken.

  Returns:
    The episodes, by environment, in the order in which they were played.
  """
  count = environments.num_envs
  seeds = np.random.SeedSequence(seed).generate_state(count) >> 1  # int32
  states, _ = environments.reset(seed=seeds)
  share = -(-num_steps // count)
  episodes: list[list[Episode]] = [[] for _ in range(count)]
  taken = np.zeros(count, np.int64)
  length = np.zeros(count, np.int64)
  total, clipped = np.zeros(count), np.zeros(count)
  playing, ended = np.ones(count, bool), np.zeros(count, bool)
  actions = np.zeros(count, np.int64)
  while playing.any():
    # What is done plays on, with any action: the emulators step together.
    actions[playing] = act(states[playing])
    states, rewards, terminated, truncated, _ = environments.step(actions)
    stepped = playing & ~ended  # the others have begun an episode
    length[stepped] += 1
    total[stepped] += rewards[stepped]
    clipped[stepped] += np.clip(rewards[stepped], -1, 1)
    progress(int(stepped.sum()))
    ended = terminated | truncated
    for i in np.flatnonzero(ended & stepped):
      episode = Episode(
        int(i), int(length[i]), float(total[i]), float(clipped[i])
      )
      episodes[i].append(episode)
      taken[i] += length[i]
      length[i] = total[i] = clipped[i] = 0
    playing &= ~(ended & (taken >= share))
  return [episode for played in episodes for episode in played]


def write(
  base_dir: str, iteration: int, episodes: list[Episode], environments: int
) -> None:
  """Writes `evaluations/<iteration>.json`: every episode, and the mean return.

  Args:
    base_dir: of the run.
    iteration: that was evaluated.
    episodes: that were played.
    environments: in how many they were.
  """
  returns = [episode.undiscounted_return for episode in episodes]
  content = {
    'iteration': iteration,
    'environments': environments,
    'mean_return': float(np.mean(returns)) if returns else None,
    'agent_steps': sum(episode.length for episode in episodes),
    'episodes': [dataclasses.asdict(episode) for episode in episodes],
  }
  directory = os.path.join(base_dir, DIRECTORY)
  os.makedirs(directory, exist_ok=True)
  files.write_json(os.path.join(directory, f'{iteration}.json'), content)
