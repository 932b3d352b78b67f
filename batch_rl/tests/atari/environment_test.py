"""Environments: the paper's protocol, through Dopamine."""

import json

import gin
import gymnasium
import numpy as np
import pytest
from dopamine.discrete_domains import atari_lib

from batch_rl.atari import environment
from batch_rl.tests.atari import roms_test
from batch_rl.utils import safe_pickle


@pytest.fixture(autouse=True)
def only_roms_of_ale_py():
  """Uses the ROMs of ale-py, which every machine has."""
  gin.bind_parameter('batch_rl.atari.make_atari.rom_set', 'current')


def play(env, num_steps):
  """Plays at random; returns observations, rewards and ends of episodes."""
  history = [(env.reset().tobytes(), 0.0, False)]
  random = np.random.default_rng(0)
  for action in random.integers(env.action_space.n, size=num_steps):
    observation, reward, done, _ = env.step(action)
    history.append((observation.tobytes(), reward, done))
    if done:
      history.append((env.reset().tobytes(), 0.0, False))
  return history


def test_plays_like_the_environment_of_gymnasium(monkeypatch):
  gin.bind_parameter('make_atari.seed', 7)
  ours = atari_lib.create_atari_environment('Seaquest')
  monkeypatch.setattr(atari_lib, 'gym', gymnasium)
  theirs = atari_lib.create_atari_environment('Seaquest')
  assert environment.describe(ours) and not environment.describe(theirs)
  theirs.environment.reset(seed=7)
  assert play(ours, 300) == play(theirs, 300)


def test_protocol():
  env = atari_lib.create_atari_environment('Breakout')
  expected = dict(game='Breakout', rom_set='current', num_actions=4)
  expected |= dict(rom_md5='f34f08e5eb96e500e851a80be3277a56', engine='ale-py')
  expected |= dict(engine_version='0.12.1', repeat_action_probability=0.25)
  expected |= dict(max_num_frames_per_episode=108_000, frame_skip=4)
  assert environment.describe(env) == expected | {'rom_same_in_both_sets': True}
  observation = env.reset()
  assert observation.shape == env.observation_space.shape == (84, 84, 1)
  assert observation.dtype == np.uint8
  assert env.action_space.n == 4
  ale = env.environment.unwrapped.ale
  env.step(0)
  assert ale.getEpisodeFrameNumber() == 4
  while ale.lives() == 5:
    assert not env.step(1)[2]  # Fire, then let the ball drop.
  assert not env.game_over


def test_other_settings_and_environments():
  create = atari_lib.create_atari_environment
  continuous = create('Pong', continuous_action_threshold=0.5)
  assert continuous.action_space.shape == (3,)  # that of Gymnasium
  env = create('Pong', sticky_actions=False)
  assert environment.describe(env)['repeat_action_probability'] == 0.0
  with pytest.raises(ValueError, match='repeat_action_probability'):
    gin.bind_parameter('make_atari.repeat_action_probability', 0.0)
  raw = environment.make_atari('Pong', repeat_action_probability=0.1)
  observation, _ = raw.reset()
  assert observation.shape == (210, 160)
  assert raw.observation_space.contains(raw.step(0)[0])
  described = environment.describe(raw)
  assert described['repeat_action_probability'] == 0.1
  assert described['frame_skip'] == 1
  assert json.loads(json.dumps(described)) == described
  other = gymnasium.make('CartPole-v1')
  assert environment.describe(other) == {}
  assert environment.make_resumable(other) is other


def test_seed_and_frame_cap():
  def episodes(seed):
    gin.bind_parameter('make_atari.max_num_frames_per_episode', 400)
    gin.bind_parameter('make_atari.seed', seed)
    env = atari_lib.create_atari_environment('Seaquest')
    return [play(env, 100) for _ in range(2)]

  first, second = episodes(1)
  assert [done for _, _, done in first].index(True) == 100  # by the cap
  assert [first, second] == episodes(1)
  assert first not in (second, episodes(2)[0], episodes(None)[0])


@roms_test.needs_atari_py
def test_legacy_rom_that_ale_py_does_not_ship(monkeypatch):
  monkeypatch.delenv('BATCH_RL_LEGACY_ROMS', raising=False)
  histories = []
  for rom_set in ('legacy', 'current'):
    gin.bind_parameter('make_atari.rom_set', rom_set)
    env = atari_lib.create_atari_environment('Amidar', sticky_actions=False)
    assert environment.describe(env)['rom_set'] == rom_set
    histories.append(play(env, 100))
  assert histories[0] != histories[1]


def test_an_episode_continues_in_another_environment():
  def start(seed):
    env = environment.make_resumable(
      atari_lib.create_atari_environment('Breakout', sticky_actions=True)
    )
    env.environment.reset(seed=seed)
    env.reset()
    return env

  def run(env, actions):
    seen = []
    for action in actions:
      screen, *rest = env.step(action)
      seen.append((screen.tobytes(), *rest[:2], env.game_over, env.lives))
      if env.game_over:
        env.reset()
    return seen

  first, other = start(1), start(2)
  actions = np.random.default_rng(3).integers(first.action_space.n, size=537)
  seen, states = [], {}
  for steps, until in ((0, 1), (1, 237), (237, 537)):
    states[steps] = safe_pickle.dumps(first.state())
    seen += run(first, actions[steps:until])
  for steps, state in states.items():
    run(other, actions[-50:])
    other.restore(safe_pickle.loads(state))
    following = slice(steps, steps + 300)
    assert run(other, actions[following]) == seen[following]
