"""The contract of environments, and how Dopamine's own fulfil it."""

import types
from unittest import mock

import gin
import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains import atari_lib, gym_lib

from batch_rl.runs import environments
from batch_rl.tests import random_walk
from batch_rl.utils.programs import MistakeError


def make_atari():
  gin.bind_parameter('make_atari.rom_set', 'current')
  return atari_lib.create_atari_environment('Pong')


def without(name, **others):
  """Returns an environment that lacks an attribute."""
  names = {'action_space', 'reset', 'step', 'game_over'} - {name}
  walk = random_walk.RandomWalk()
  walk.reset()
  kept = {name: getattr(walk, name) for name in names}
  return types.SimpleNamespace(**kept | others)


@pytest.mark.parametrize(
  ('environment', 'message'),
  [
    (without('action_space'), 'SimpleNamespace .*action_space'),
    (without('step'), 'no step'),
    (without('game_over'), 'game_over'),
    (without('', game_over=lambda: False), 'a method game_over'),
    (without('', reset=lambda: None), 'SimpleNamespace .*seed'),
    (random_walk.RandomWalk(0), 'RandomWalk .*action_space'),
    (gymnasium.make('CartPole-v1'), 'game_over.*GymPreprocessing'),
  ],
)
def test_what_is_missing_is_named_in_one_line(environment, message):
  with pytest.raises(ValueError, match=message) as error:
    environments.check(environment)
  assert '\n' not in str(error.value)


def test_an_observation_of_gymnasium_is_named():
  env = gymnasium.make('CartPole-v1')
  with pytest.raises(ValueError, match=r'.*reset\(\) returns a tuple'):
    environments.check_observation(env, env.reset(), agent=None)
  with pytest.raises(MistakeError, match='step returns 5 values'):
    environments.step(env, 0)
  env = mock.Mock(spec=['step'], step=lambda action: None)
  with pytest.raises(MistakeError, match='step returns None; expected'):
    environments.step(env, 0)


@pytest.mark.parametrize('shape', [(4, 10, 10), (401,), (10, 40), (10, 10)])
def test_the_axes_of_observations_are_those_of_the_agent(shape):
  agent = mock.Mock(observation_shape=(10, 10, 4), observation_dtype=tf.uint8)
  for wide in (10, 10, 4), (1, 10, 10, 4), (10, 10, 4, 1), (400,):
    environments.check_observation(None, np.zeros(wide, np.uint8), agent)
  with pytest.raises(ValueError, match='agent has observation_shape'):
    environments.check_observation(None, np.zeros(shape, np.uint8), agent)


@pytest.mark.parametrize('reward', [None, np.nan, np.inf, np.ones(1)])
def test_a_reward_that_is_no_finite_number_is_named(reward):
  env = mock.Mock(spec=['step'], step=lambda action: (0, reward, False, None))
  with pytest.raises(MistakeError, match='step returns the reward .*finite'):
    environments.step(env, 0)


def play(environment, observation):
  """Takes ten agent steps at random; returns all that the agent sees."""
  random = np.random.default_rng(0)
  history = [observation]
  for _ in range(10):
    action = int(random.integers(environment.action_space.n))
    observation, reward, terminal, _ = environment.step(action)
    history += [observation, reward, terminal]
    if environment.game_over:
      history.append(environments.reset(environment))
  return [np.asarray(entry).tolist() for entry in history]


@pytest.mark.parametrize(
  ('make', 'game'),
  [
    (random_walk.RandomWalk, 'RandomWalk'),
    (lambda: gym_lib.create_gym_environment('CartPole', 'v1'), 'CartPole-v1'),
    (make_atari, 'Pong'),
  ],
)
def test_a_seed_decides_the_episodes(make, game):
  environment, other = make(), make()
  environments.check(environment)

  def started(environment, seed):
    return play(environment, environments.reset(environment, seed))

  def seeded(environment, seed):
    environments.seed(environment, seed)
    return play(environment, environment.reset())

  assert environments.describe(environment)['game'] == game
  first = started(environment, 1)
  assert started(other, 1) == started(environment, 1) == first
  assert seeded(other, 1) == seeded(environment, 1)
  # Their first frames are the same.
  if make is not make_atari:
    assert first != started(environment, 2)
    assert seeded(environment, 1) != seeded(environment, 2)
    # Without a seed, the random numbers go on.
    assert first != play(environment, environments.reset(environment))


def test_a_description_is_as_json_reads_it():
  own = without('', describe=lambda: {'own': ({1: 2},)})
  assert environments.describe(own)['own'] == [{'1': 2}]


@pytest.mark.parametrize(
  'own', [{'frame_skip': 1.5}, {'m': np.int8(1)}, {'game': None}]
)
def test_a_description_that_a_record_cannot_hold_is_refused(own):
  with pytest.raises(ValueError, match=r'Namespace.describe\(\) does not'):
    environments.describe(without('', describe=lambda: own))


def test_images():
  atari = make_atari()
  atari.reset()
  assert environments.screen(atari).shape == (210, 160, 3)
  drawn = random_walk.DrawnWalk()
  drawn.reset()
  assert environments.screen(drawn).shape == (16, 24, 3)
  inner = gymnasium.make('CartPole-v1', render_mode='rgb_array').unwrapped
  inner.render = lambda: np.zeros((4, 5, 3), np.uint8)  # without pygame
  gym = gym_lib.GymPreprocessing(inner)
  assert environments.screen(gym).shape == (4, 5, 3)
  inner.render = lambda: None
  for environment in gym, random_walk.RandomWalk():
    with pytest.raises(ValueError, match='gives no images for a video'):
      environments.screen(environment)
