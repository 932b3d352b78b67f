"""Games of MinAtar: the same episodes as in `minatar`, and exact resumption."""

import importlib
import importlib.metadata
import importlib.util
import pickle
import sys

import gin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.minatar import environment, games
from batch_rl.runs import environments
from batch_rl.utils import safe_pickle

every_game = pytest.mark.parametrize('game', games.GAMES)


def play(env, actions):
  """Plays on, with a new episode after each end; returns all that an agent sees."""
  seen = []
  for action in actions:
    observation, reward, terminal, _ = env.step(int(action))
    seen.append((observation.tolist(), reward, terminal, env.game_over))
    if terminal:
      seen.append(env.reset().tolist())
  return seen


def random_actions(count, seed=0):
  return np.random.default_rng(seed).integers(6, size=count)


@every_game
def test_episodes_are_those_of_minatar(game, monkeypatch):
  # It would import seaborn, for seconds, to draw.
  for name in ('seaborn', 'matplotlib.pyplot'):
    monkeypatch.setitem(sys.modules, name, None)
  minatar = importlib.import_module('minatar.environment')
  other = minatar.Environment(games.module_name(game))
  other.seed(3)
  other.reset()
  env = environment.MinAtarEnvironment(game)
  first = env.reset(3)
  assert env.action_space.n == 6 and first.dtype == np.uint8
  assert first.shape == games.observation_shape(game)
  np.testing.assert_array_equal(first, other.state())
  for action in random_actions(400):
    observation, reward, terminal, _ = env.step(action)
    assert env.observation_space.contains(observation)
    assert (reward, terminal) == other.act(action)
    np.testing.assert_array_equal(observation, other.state())
    if terminal:
      other.reset()
      np.testing.assert_array_equal(env.reset(), other.state())
  with pytest.raises(ValueError, match='no action -1'):
    env.step(-1)


@every_game
@settings(max_examples=3)
@given(seed=st.integers(0, 2**31 - 1), steps=st.integers(0, 300))
def test_a_state_is_plain_data_and_resumes_to_the_bit(game, seed, steps):
  env = environment.MinAtarEnvironment(game)
  env.reset(seed)
  play(env, random_actions(steps, seed))
  state = safe_pickle.loads(pickle.dumps(env.state()))
  following = random_actions(200, seed + 1)
  expected = play(env, following)
  resumed = environment.MinAtarEnvironment(game)
  for _ in range(2):  # a state stays as it was
    resumed.restore(state)
    assert resumed.game_over is False
    assert play(resumed, following) == expected


def test_actions_stick_with_their_probability():
  """The paddle moves to the right, or sticks to nothing, at the first step."""

  def paddle(env, seed, actions):
    env.reset(seed)
    return [int(env.step(action)[0][9, :, 0].argmax()) for action in actions]

  env = environment.MinAtarEnvironment('Breakout')
  stuck = [paddle(env, seed, [3]) == [4] for seed in range(3000)]
  # Four standard errors.
  assert np.mean(stuck) == pytest.approx(0.1, abs=0.022)
  for probability, positions in ((0, [5, 4]), (1, [4, 4])):
    env = environment.MinAtarEnvironment('Breakout', probability)
    assert paddle(env, 0, [3, 1]) == positions


@pytest.mark.parametrize('ramping', [True, False])
def test_without_ramping_a_game_stays_as_fast(ramping):
  env = environment.MinAtarEnvironment('Asterix', 0, ramping)
  env.reset(0)
  env._game.spawn_timer = 10**6  # no enemies
  for _ in range(300):
    env.step(0)
  assert (env._game.spawn_speed < 10) == ramping


@pytest.mark.parametrize(
  'name', ['space_invaders', 'MinAtar/SpaceInvaders', 'minatar-spaceinvaders']
)
def test_the_record_of_a_run(name):
  version = importlib.metadata.version('minatar')
  expected = dict(game='MinAtar-SpaceInvaders', frame_skip=1, num_actions=6)
  expected |= dict(engine='minatar', engine_version=version)
  expected |= dict(repeat_action_probability=0.25, difficulty_ramping=True)
  env = environment.MinAtarEnvironment(name, 0.25)
  assert environments.describe(env) == expected


def test_images_have_a_colour_for_each_plane():
  env = environment.MinAtarEnvironment('Breakout')
  env.reset(0)
  image = environments.screen(env)
  assert image.shape == (120, 120, 3)
  cells = image[6::12, 6::12]
  colors = {tuple(cell) for cell in cells.reshape(-1, 3).tolist()}
  assert len(colors) == 4  # background, paddle, bricks, ball on its trail
  assert not cells[0].any() and cells[1:4].all(axis=-1).all()


def test_mistakes_are_one_line(monkeypatch):
  with pytest.raises(ValueError, match="'Pong'.*MinAtar-"):
    environment.MinAtarEnvironment('Pong')
  with pytest.raises(ValueError, match='bind MinAtarEnvironment.game_name'):
    environment.minatar_observation_shape()
  gin.bind_parameter('MinAtarEnvironment.game_name', 'MinAtar/Seaquest')
  assert environment.minatar_observation_shape() == (10, 10, 10)
  environment._load.cache_clear()
  monkeypatch.setattr(importlib.util, 'find_spec', lambda _: None)
  with pytest.raises(ValueError, match=r"pip install 'batch_rl\[minatar\]'"):
    environment.MinAtarEnvironment('Breakout')
