"""States, rewards and ends of environments that step one after another."""

import types

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.fixed_replay import sequential_environments
from batch_rl.tests import random_walk
from batch_rl.utils import programs

AGENT = types.SimpleNamespace(
  stack_size=3,
  observation_shape=random_walk.SHAPE,
  observation_dtype=tf.float64,
)


class Recorded(random_walk.RandomWalk):
  """A `RandomWalk` that keeps its last episode."""

  def reset(self, seed=None):
    observation = super().reset(seed)
    self.frames, self.actions = [observation], []
    return observation

  def step(self, action):
    observation, *rest = super().step(action)
    self.frames.append(observation)
    self.actions.append(action)
    return observation, *rest


def make(count, max_steps=None):
  environments = [Recorded() for _ in range(count)]
  return environments, sequential_environments.SequentialEnvironments(
    environments, AGENT, max_steps
  )


def expected_state(environment):
  """Returns the last three frames since the start or the lost life."""
  first = 0
  if environment._left <= 3:
    first = len(environment.frames) - 1 - (3 - environment._left)
  return ([np.zeros(random_walk.SHAPE)] * 3 + environment.frames[first:])[-3:]


def test_states_are_stacks_of_an_agents_episode():
  count = 3
  environments, together = make(count)
  states, _ = together.reset(np.arange(count))
  assert states.shape == (count, 3, *random_walk.SHAPE)
  assert states.dtype == np.float64
  random = np.random.default_rng(0)
  ended, episodes = np.zeros(count, bool), 0
  for _ in range(60):
    actions = random.integers(3, size=count)
    states, rewards, terminated, truncated, _ = together.step(actions)
    assert not truncated.any()
    for i, environment in enumerate(environments):
      if ended[i]:  # ignores the action, and starts an episode
        assert not environment.actions and not terminated[i]
        assert rewards[i] == 0
      else:
        assert environment.actions[-1] == actions[i]
        assert rewards[i] == actions[i] - 0.5
        assert terminated[i] == environment.game_over
      if not terminated[i]:
        np.testing.assert_array_equal(states[i], expected_state(environment))
    ended = terminated
    episodes += ended.sum()
  assert episodes > 3 * count


@pytest.mark.parametrize('limit', [5, None])
def test_episodes_are_truncated_unless_they_end(limit):
  [environment], together = make(1)
  together.reset(np.array([0]))
  length = limit or environment._left
  [environment], together = make(1, length)
  together.reset(np.array([0]))
  action = np.array([1 if limit else 0])
  ends = [together.step(action)[2:4] for _ in range(length)]
  assert not np.any(ends[:-1]) and environment.game_over == (limit is None)
  assert ends[-1] == (limit is None, limit is not None)
  # The step after an end starts an episode.
  assert not np.any(together.step(action)[2:4])


class WithAxis(random_walk.RandomWalk):
  """Has observations as Dopamine's, with a last axis of 1."""

  def _observe(self):
    return super()._observe()[..., None]


def test_environments_fit_the_agent_and_are_new_ones():
  create = sequential_environments.SequentialEnvironments
  together = create([WithAxis()], AGENT, None)
  assert together.reset()[0].shape == (1, 3, *random_walk.SHAPE)
  walk = random_walk.RandomWalk()
  for environments, settings, message in (
    ([walk] * 2, {}, 'the same environment'),
    ([walk], {'observation_shape': (84, 84)}, r'RandomWalk .*\(2, 3\).*84'),
    ([walk], {'observation_dtype': tf.uint8}, 'RandomWalk .*float64.*uint8'),
  ):
    agent = types.SimpleNamespace(**{**vars(AGENT), **settings})
    with pytest.raises(ValueError, match=message):
      create(environments, agent, None)


@pytest.mark.parametrize(
  ('dtype', 'value'), [(tf.float32, np.nan), (tf.uint8, np.int64(300))]
)
def test_later_observations_fit_the_agent(monkeypatch, dtype, value):
  walk = random_walk.RandomWalk()
  good = np.zeros(random_walk.SHAPE, dtype.as_numpy_dtype)
  monkeypatch.setattr(walk, 'reset', lambda seed=None: good)
  bad = np.full(random_walk.SHAPE, value)
  monkeypatch.setattr(walk, 'step', lambda action: (bad, 0.0, False, None))
  agent = types.SimpleNamespace(**{**vars(AGENT), 'observation_dtype': dtype})
  play = sequential_environments.SequentialEnvironments([walk], agent, None)
  with pytest.raises(programs.MistakeError, match='RandomWalk: .* cannot hold'):
    play.step(np.zeros(1, int))
