"""Plays episodes in many emulators at once, as Dopamine plays in one."""

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

# So that the last episodes, which end after the others, are a small part.
_STEPS_PER_ENVIRONMENT = 10_000


def default_environments(num_steps: int) -> int:
  """Four for each processor, none of them with but a few steps to play.

  Args:
    num_steps: agent steps to play in all.
  """
  most = max(1, num_steps // _STEPS_PER_ENVIRONMENT)
  return min(4 * machine.num_cpus(), most)


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
    num_threads=min(num_envs, machine.num_cpus()),
  )


def play(
  environments: Any,
  act: Callable[[np.ndarray], np.ndarray],
  num_steps: int,
  seed: int | None,
  progress: Callable[[int], Any] = lambda steps: None,
) -> list[evaluations.Episode]:
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
  episodes: list[list[evaluations.Episode]] = [[] for _ in range(count)]
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
      episode = evaluations.Episode(
        int(i), int(length[i]), float(total[i]), float(clipped[i])
      )
      episodes[i].append(episode)
      taken[i] += length[i]
      length[i] = total[i] = clipped[i] = 0
    playing &= ~(ended & (taken >= share))
  return [episode for played in episodes for episode in played]


class Player:
  """An agent that plays Atari, without data and without learning.

  Args:
    create_agent: `(session, environment, replay_data_dir) -> agent`, of offline
      agents.
    num_environments: emulators that it plays in, side by side.
    max_steps_per_episode: agent steps after which an episode is cut off.

  Attributes:
    num_environments: how many it plays in; 1 if it cannot play in several.
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
    """Loads all variables of a TensorFlow checkpoint."""
    self._agent._saver.restore(self._agent._sess, prefix)

  def play(self, num_steps: int, seed: int) -> list[evaluations.Episode]:
    """Plays complete episodes until there are at least so many agent steps."""
    with tqdm.tqdm(
      total=num_steps, unit='step', unit_scale=True, disable=None, leave=False
    ) as bar:
      if self._environments is not None:
        choices = np.random.default_rng(seed)
        return play(
          self._environments,
          lambda states: self._agent.select_actions(states, choices),
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

  def record(self, path: str, seed: int) -> tuple[float, int]:
    """Writes a video of an episode, in color.

    Args:
      path: Output file, .gif or .mp4.
      seed: of the episode.

    Returns:
      Its return, and its length in agent steps.
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
    random.seed(seed)  # of Dopamine's epsilon-greedy choice
    self._environment.environment.reset(seed=seed % 2**31)

  def _play_one(self) -> Iterator[tuple[float, Callable[[], np.ndarray]]]:
    """Yields rewards, and what gets the screen after each."""
    agent, environment = self._agent, self._environment
    screen = environment.environment.unwrapped.ale.getScreenRGB
    action = agent.begin_episode(environment.reset())
    for _ in range(self._max_steps):
      observation, reward, terminal, _ = environment.step(action)
      yield float(reward), screen
      if environment.game_over:
        break
      if terminal:  # a life is lost, and that counts
        agent.end_episode(reward)
        action = agent.begin_episode(observation)
      else:
        action = agent.step(reward, observation)
    agent.end_episode(reward)
