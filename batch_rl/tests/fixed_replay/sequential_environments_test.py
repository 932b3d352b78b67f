"""States, rewards and ends of environments that step one after another."""

import types

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.fixed_replay import sequential_environments
from batch_rl.tests import random_walk

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


def make(count, max_steps=None, agent=AGENT):
  environments = [Recorded() for _ in range(count)]
  return environments, sequential_environments.SequentialEnvironments(
    environments, agent, max_steps
  )


def expected_state(environment):
  """Returns the last three frames since the start or the lost life."""
  first = 0
  if environment._left <= 3:
    first = len(environment.frames) - 1 - (3 - environment._left)
  frames = [np.zeros(random_walk.SHAPE)] * 3 + environment.frames[first:]
  return frames[-3:]


@pytest.mark.parametrize('count', [1, 3])
def test_states_are_stacks_of_an_agents_episode(count):
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


def test_episodes_are_truncated():
  [environment], together = make(1, max_steps=5)
  together.reset(np.array([0]))
  ends = []
  for _ in range(12):
    *_, terminated, truncated, _ = together.step(np.array([1]))
    assert not terminated[0] and not environment.game_over
    ends.append(bool(truncated[0]))
  # The step after an end starts an episode.
  assert ends == [step % 6 == 4 for step in range(12)]


def test_the_end_of_an_episode_at_the_limit_is_no_truncation():
  [environment], together = make(1)
  together.reset(np.array([0]))
  length = environment._left
  [environment], together = make(1, length)
  together.reset(np.array([0]))
  ends = [together.step(np.array([0]))[2:4] for _ in range(length)]
  assert ends[-1] == (True, False)


def test_dopamines_last_axis_is_dropped():
  class WithAxis(random_walk.RandomWalk):
    def _observe(self):
      return super()._observe()[..., None]

  together = sequential_environments.SequentialEnvironments(
    [WithAxis()], AGENT, None
  )
  assert together.reset()[0].shape == (1, 3, *random_walk.SHAPE)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    (
      {'observation_shape': (84, 84)},
      r'Recorded gives observations of shape \(2, 3\), but the agent has .*84',
    ),
    (
      {'observation_dtype': tf.uint8},
      'Recorded gives observations of float64, but the agent has .* uint8',
    ),
  ],
)
def test_observations_that_do_not_fit_are_refused_at_once(settings, message):
  agent = types.SimpleNamespace(**{**vars(AGENT), **settings})
  with pytest.raises(ValueError, match=message) as error:
    make(1, agent=agent)
  assert '\n' not in str(error.value)


def test_each_environment_is_a_new_one():
  walk = random_walk.RandomWalk()
  with pytest.raises(ValueError, match='returned the same environment again'):
    sequential_environments.SequentialEnvironments([walk, walk], AGENT, None)
