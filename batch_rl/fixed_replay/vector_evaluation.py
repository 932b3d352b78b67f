"""Evaluation of an agent in one emulator or several at once.

Episodes are played by Dopamine's rules. `runs/evaluations.py` writes their files, and
`evaluate.py` is the program that evaluates checkpoints.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tqdm.auto as tqdm
from absl import logging
from dopamine.discrete_domains import atari_lib

from batch_rl.atari import environment as atari
from batch_rl.dataset.checks import videos
from batch_rl.runs import evaluations
from batch_rl.utils import machine

# Limits the share of time in which emulators wait for the last episode to end.
_STEPS_PER_ENVIRONMENT = 10_000


def default_environments(num_steps: int) -> int:
  """Returns four emulators per processor, but at most one per 10,000 steps.

  Args:
    num_steps: Number of agent steps in all emulators together.
  """
  most = max(1, num_steps // _STEPS_PER_ENVIRONMENT)
  return min(4 * machine.num_cpus(), most)


def make_environments(
  single: Any, num_envs: int, max_steps_per_episode: int
) -> Any:
  """Returns several emulators with the settings of a single environment.

  Args:
    single: Dopamine's `AtariPreprocessing`.
    num_envs: Number of emulators.
    max_steps_per_episode: Number of agent steps after which an episode is
      truncated.

  Returns:
    An `AtariVectorEnv`, or None if it does not support the settings.
  """
  settings = atari.describe(single)
  if not settings:
    return None
  supported = {
    'frame_skip': 4,
    'terminal_on_life_loss': False,
    'screen_size': 84,
  }
  for name, value in supported.items():
    if getattr(single, name) != value:
      logging.warning(
        'AtariPreprocessing.%s = %s: evaluation uses a single emulator.',
        name,
        getattr(single, name),
      )
      return None
  return atari.make_vector_environment(
    settings['game'],
    num_envs,
    repeat_action_probability=settings['repeat_action_probability'],
    max_num_frames_per_episode=min(
      settings['max_num_frames_per_episode'], 4 * max_steps_per_episode
    ),
    num_threads=min(num_envs, machine.num_cpus()),
  )


def play_episodes(
  environments: Any,
  act: Callable[[np.ndarray], np.ndarray],
  num_steps: int,
  seed: int | None,
  progress: Callable[[int], Any] = lambda steps: None,
) -> list[evaluations.Episode]:
  """Plays complete episodes until a number of agent steps is reached.

  Each emulator plays complete episodes until its share of the steps is reached,
  which is Dopamine's rule for one emulator (Machado et al., 2018). Stopping as soon
  as their sum reaches the number would favour short episodes.

  Args:
    environments: `AtariVectorEnv` that resets an emulator in the step after its
      episode ends, and takes one seed per emulator.
    act: Function from states uint8 (n, stack_size, height, width) to actions int
      (n,).
    num_steps: Number of agent steps in all emulators together.
    seed: Seed of the emulators; None draws one.
    progress: Function called with the number of steps since its last call.

  Returns:
    The episodes by emulator, in the order played.
  """
  count = environments.num_envs
  seeds = np.random.SeedSequence(seed).generate_state(count) >> 1  # int32
  states, _ = environments.reset(seed=seeds)
  share = -(-num_steps // count)
  episodes: list[list[evaluations.Episode]] = [[] for _ in range(count)]
  taken = np.zeros(count, np.int64)
  length = np.zeros(count, np.int64)
  total, clipped = np.zeros(count), np.zeros(count)
  playing, ended = np.ones(count, bool), np.zeros(count, bool)
  actions = np.zeros(count, np.int64)
  while playing.any():
    # Finished emulators keep stepping; their results are ignored.
    actions[playing] = act(states[playing])
    states, rewards, terminated, truncated, _ = environments.step(actions)
    stepped = playing & ~ended  # the others were reset
    length[stepped] += 1
    total[stepped] += rewards[stepped]
    clipped[stepped] += np.clip(rewards[stepped], -1, 1)
    progress(int(stepped.sum()))
    ended = terminated | truncated
    for i in np.flatnonzero(ended & stepped):
      episode = evaluations.Episode(
        int(i), int(length[i]), float(total[i]), float(clipped[i])
      )
      episodes[i].append(episode)
      taken[i] += length[i]
      length[i] = total[i] = clipped[i] = 0
    playing &= ~(ended & (taken >= share))
  return [episode for played in episodes for episode in played]


class Evaluator:
  """Evaluates checkpoints of an offline agent in Atari, without data.

  Args:
    create_agent: Function `(session, environment, replay_data_dir) -> agent`.
    num_environments: Number of emulators.
    max_steps_per_episode: Number of agent steps after which an episode is
      truncated.

  Attributes:
    num_environments: Number of emulators in use; 1 if the agent or the settings
      do not support several.
  """

  def __init__(
    self,
    create_agent: Callable[..., Any],
    num_environments: int,
    max_steps_per_episode: int,
  ):
    self._environment = atari_lib.create_atari_environment()
    self._max_steps = max_steps_per_episode
    self._agent = create_agent(None, self._environment, replay_data_dir=None)
    self._agent.eval_mode = True
    self._environments = None
    if num_environments > 1 and self._agent.acts_on_batches:
      self._environments = make_environments(
        self._environment, num_environments, max_steps_per_episode
      )
    self.num_environments = num_environments if self._environments else 1

  def load(self, prefix: str) -> None:
    """Loads all variables of the TensorFlow checkpoint with this prefix."""
    self._agent._saver.restore(self._agent._sess, prefix)

  def evaluate(self, num_steps: int, seed: int) -> list[evaluations.Episode]:
    """Plays complete episodes until a number of agent steps is reached.

    Args:
      num_steps: Number of agent steps.
      seed: Seed of the emulators and the random actions.
    """
    with tqdm.tqdm(
      total=num_steps, unit='step', unit_scale=True, disable=None, leave=False
    ) as bar:
      if self._environments is not None:
        generator = np.random.default_rng(seed)
        return play_episodes(
          self._environments,
          lambda states: self._agent.select_actions(states, generator),
          num_steps,
          seed,
          bar.update,
        )
      self._seed(seed)
      episodes: list[evaluations.Episode] = []
      while sum(episode.length for episode in episodes) < num_steps:
        rewards = [reward for reward, _ in self._play_one()]
        bar.update(len(rewards))
        episodes.append(
          evaluations.Episode(
            0,
            len(rewards),
            float(np.sum(rewards)),
            float(np.clip(rewards, -1, 1).sum()),
          )
        )
      return episodes

  def record_video(self, path: str, seed: int) -> tuple[float, int]:
    """Writes a video of one episode, in color.

    Args:
      path: Output file, .gif or .mp4.
      seed: Seed of the episode.

    Returns:
      The episode's return, and its length in agent steps.
    """
    self._seed(seed)
    rewards = []

    def screens():
      for reward, screen in self._play_one():
        rewards.append(reward)
        yield screen()

    videos.write_images(screens(), path, scale=2)
    return float(np.sum(rewards)), len(rewards)

  def _seed(self, seed: int) -> None:
    random.seed(seed)  # for Dopamine's epsilon-greedy choice
    self._environment.environment.reset(seed=seed % 2**31)

  def _play_one(self) -> Iterator[tuple[float, Callable[[], np.ndarray]]]:
    """Yields each reward with a function that returns the screen after it."""
    agent, environment = self._agent, self._environment
    screen = environment.environment.unwrapped.ale.getScreenRGB
    action = agent.begin_episode(environment.reset())
    for _ in range(self._max_steps):
      observation, reward, terminal, _ = environment.step(action)
      yield float(reward), screen
      if environment.game_over:
        break
      if terminal:  # a lost life ends the agent's episode, but not the game
        agent.end_episode(reward)
        action = agent.begin_episode(observation)
      else:
        action = agent.step(reward, observation)
    agent.end_episode(reward)
