"""Episodes in many emulators are those of one, by number and by kind."""

import json

import gin
import gymnasium
import hypothesis
import numpy as np
import pytest
from dopamine.discrete_domains import atari_lib
from hypothesis import strategies as st

from batch_rl.fixed_replay import vector_evaluation
from batch_rl.runs import evaluations


class ScriptedEnvironments:
  """Episodes of given lengths, one after the other; then for ever the last one.

  Action a pays reward a; the step after an end pays nothing, and begins the next
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
    """Which environment, episode and step: (n, 3)."""
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
    # Worth more the later in an episode, and more than a clipped reward.
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
  # What is begun and not completed is no part of it, but takes its time.
  assert sum(steps) >= sum(episode.length for episode in episodes)


def play_one_by_one(game, num_episodes, seed):
  """Returns and lengths of a random player, in Dopamine's environment."""
  environment = atari_lib.create_atari_environment(game)
  environment.environment.reset(seed=seed)
  random = np.random.default_rng(seed)
  played = []
  for _ in range(num_episodes):
    environment.reset()
    total, length, done = 0.0, 0, False
    while not done:
      _, reward, done, _ = environment.step(
        int(random.integers(environment.action_space.n))
      )
      total, length = total + reward, length + 1
    played.append((total, length))
  return np.array(played, float)


def test_random_play_is_the_same_side_by_side():
  """Means differ by less than four standard errors; seeds make it repeatable."""
  single = atari_lib.create_atari_environment('Breakout')
  environments = vector_evaluation.make_environments(single, 4, 27_000)
  random = np.random.default_rng(0)
  episodes = vector_evaluation.play_episodes(
    environments,
    lambda states: random.integers(single.action_space.n, size=len(states)),
    10_000,
    seed=0,
  )
  ours = np.array([(e.undiscounted_return, e.length) for e in episodes], float)
  assert len(ours) > 40
  theirs = play_one_by_one('Breakout', 40, seed=1)
  for one, other in zip(ours.T, theirs.T, strict=True):
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    assert abs(one.mean() - other.mean()) < 4 * error


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
  assert {episode.length for episode in runs[0]} == {200}  # cut off


def test_what_would_be_played_otherwise_is_played_in_one(caplog):
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


def test_evaluations_of_iterations_to_come_are_put_aside(tmp_path):
  for iteration in range(4):
    evaluations.write(str(tmp_path), iteration, [], 1)
  evaluations.write(str(tmp_path), 3, [], 1, 'evaluate-3')
  evaluations.put_aside(str(tmp_path), 2)
  assert list(evaluations.read(str(tmp_path))) == [0, 1]
  left = {path.name for path in (tmp_path / 'evaluations').iterdir()}
  assert {'2.json.before', '3.json.before', 'evaluate-3.json'} <= left
