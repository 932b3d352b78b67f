"""Episodes in many emulators equal those in one."""

import json

import gin
import gymnasium
import hypothesis
import numpy as np
import pytest
from dopamine.discrete_domains import atari_lib
from hypothesis import strategies as st

from batch_rl.atari import environment
from batch_rl.fixed_replay import vector_evaluation
from batch_rl.runs import evaluations


class ScriptedEnvironments:
  """Environments with episodes of given lengths; the last length repeats.

  Action a pays reward a; the step after an end pays nothing and starts the next
  episode, as Gymnasium's NEXT_STEP does.
  """

  def __init__(self, lengths):
    self.lengths = lengths
    self.num_envs = len(lengths)

  def reset(self, seed):
    self.seed = seed
    self.episode = np.zeros(self.num_envs, int)
    self.step_ = np.zeros(self.num_envs, int)
    self.resetting = np.zeros(self.num_envs, bool)
    return self.states(), {}

  def states(self):
    """Returns environment, episode and step, (n, 3)."""
    return np.stack(
      [np.arange(self.num_envs), self.episode, self.step_], axis=1
    )

  def step(self, actions):
    rewards = np.where(self.resetting, 0, actions)
    truncated = np.zeros(self.num_envs, bool)
    for i, lengths in enumerate(self.lengths):
      if self.resetting[i]:
        self.episode[i] += 1
        self.step_[i] = 0
        self.resetting[i] = False
        continue
      self.step_[i] += 1
      if self.step_[i] == lengths[min(self.episode[i], len(lengths) - 1)]:
        truncated[i] = self.resetting[i] = True
    odd = self.episode % 2 == 1
    return self.states(), rewards, truncated & odd, truncated & ~odd, {}


@hypothesis.given(
  lengths=st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=5
  ),
  num_steps=st.integers(1, 120),
)
def test_each_environment_plays_whole_episodes_for_its_share(
  lengths, num_steps
):
  environments = ScriptedEnvironments(lengths)
  steps = []

  def act(states):
    # Rewards grow within an episode, beyond the clipped range.
    return states[:, 2] + states[:, 0]

  episodes = vector_evaluation.play_episodes(
    environments, act, num_steps, 1, steps.append
  )
  share = -(-num_steps // len(lengths))
  expected = []
  for i, own in enumerate(lengths):
    taken = episode = 0
    while taken < share:
      length = own[min(episode, len(own) - 1)]
      rewards = np.arange(length) + i
      expected.append(
        evaluations.Episode(
          i, length, rewards.sum(), np.clip(rewards, -1, 1).sum()
        )
      )
      taken, episode = taken + length, episode + 1
  assert episodes == expected
  # Incomplete episodes are dropped, but their steps are counted.
  assert sum(steps) >= sum(episode.length for episode in episodes)


def play_single(game, num_steps, seed):
  """Plays at random in Dopamine's environment; returns the episodes."""
  single = environment.make_atari(game)
  # The seed of the emulator itself, which Gymnasium would hash.
  single.ale.setInt('random_seed', seed)
  single.load_game()
  single = atari_lib.AtariPreprocessing(gymnasium.Wrapper(single))
  random = np.random.default_rng(0)
  episodes, taken = [], 0
  while taken < num_steps:
    if episodes:  # The step that starts an episode has an action, too.
      random.integers(single.action_space.n, size=1)
    single.reset()
    rewards, done = [], False
    while not done:
      [action] = random.integers(single.action_space.n, size=1)
      _, reward, done, _ = single.step(int(action))
      rewards.append(reward)
    clipped = np.clip(rewards, -1, 1).sum()
    episodes.append(
      evaluations.Episode(0, len(rewards), np.sum(rewards), clipped)
    )
    taken += len(rewards)
  return episodes


@pytest.mark.parametrize(
  ('game', 'num_steps'), [('Breakout', 700), ('SpaceInvaders', 1000)]
)
def test_random_play_is_that_of_dopamines_environment(game, num_steps):
  gin.bind_parameter('batch_rl.atari.make_atari.rom_set', 'current')
  single = atari_lib.create_atari_environment(game)
  environments = vector_evaluation.make_environments(single, 1, 27_000)
  random = np.random.default_rng(0)
  episodes = vector_evaluation.play_episodes(
    environments,
    lambda states: random.integers(single.action_space.n, size=len(states)),
    num_steps,
    seed=4,
  )
  [seed] = np.random.SeedSequence(4).generate_state(1) >> 1
  assert episodes == play_single(game, num_steps, int(seed))
  assert len(episodes) > 1
  assert sum(episode.undiscounted_return for episode in episodes) > 0


def test_a_seed_decides_the_episodes():
  single = atari_lib.create_atari_environment('Pong')
  runs = []
  for seed in (1, 1, 2):
    random = np.random.default_rng(0)
    environments = vector_evaluation.make_environments(single, 2, 200)
    runs.append(
      vector_evaluation.play_episodes(
        environments, lambda s, r=random: r.integers(6, size=len(s)), 800, seed
      )
    )
  assert runs[0] == runs[1] != runs[2]
  assert {episode.length for episode in runs[0]} == {200}  # truncated


def test_unsupported_environments_are_played_singly(caplog):
  class Other(gymnasium.Env):
    pass

  assert vector_evaluation.make_environments(Other(), 4, 27_000) is None
  gin.bind_parameter('AtariPreprocessing.terminal_on_life_loss', True)
  single = atari_lib.create_atari_environment('Pong')
  assert vector_evaluation.make_environments(single, 4, 27_000) is None


def test_few_steps_are_played_in_few_environments():
  assert vector_evaluation.default_environments(100) == 1
  assert vector_evaluation.default_environments(29_999) == 2
  assert 1 < vector_evaluation.default_environments(125_000) <= 12


@pytest.mark.parametrize('returns', [[1.0, 4.0], []])
def test_every_episode_is_written(tmp_path, returns):
  episodes = [
    evaluations.Episode(i, 10 + i, value, min(value, 1.0))
    for i, value in enumerate(returns)
  ]
  evaluations.write(str(tmp_path), 7, episodes, 2)
  content = json.loads((tmp_path / 'evaluations' / '7.json').read_text())
  assert evaluations.read(str(tmp_path)) == {7: content}
  assert content['iteration'] == 7 and content['environments'] == 2
  assert content['mean_return'] == (2.5 if returns else None)
  assert [evaluations.Episode(**e) for e in content['episodes']] == episodes


def test_evaluations_of_later_iterations_are_put_aside(tmp_path):
  for iteration in range(4):
    evaluations.write(str(tmp_path), iteration, [], 1)
  evaluations.write(str(tmp_path), 3, [], 1, 'evaluate-3')
  evaluations.put_aside(str(tmp_path), 2)
  assert list(evaluations.read(str(tmp_path))) == [0, 1]
  left = {path.name for path in (tmp_path / 'evaluations').iterdir()}
  assert {'2.json.before', '3.json.before', 'evaluate-3.json'} <= left
