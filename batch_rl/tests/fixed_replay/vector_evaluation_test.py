"""Episodes in many environments equal those in one."""

import dataclasses
import types

import gin
import gymnasium
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from ale_py import vector_env
from dopamine.discrete_domains import atari_lib
from hypothesis import strategies as st

from batch_rl.atari import environment, roms
from batch_rl.fixed_replay import vector_evaluation
from batch_rl.runs import evaluations
from batch_rl.tests import random_walk
from batch_rl.tests.atari import roms_test


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
    return np.stack([np.arange(self.num_envs), self.episode, self.step_], 1)

  def step(self, actions):
    rewards = np.where(self.resetting, 0, actions)
    self.episode += self.resetting
    self.step_ = np.where(self.resetting, 0, self.step_ + 1)
    numbers = zip(self.lengths, self.episode, strict=True)
    ends = self.step_ == [own[min(i, len(own) - 1)] for own, i in numbers]
    self.resetting, odd = ends, self.episode % 2 == 1
    return self.states(), rewards, ends & odd, ends & ~odd, {}


@hypothesis.given(
  lengths=st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=5
  ),
  num_steps=st.integers(1, 120),
)
def test_each_environment_plays_episodes_for_its_share(lengths, num_steps):
  environments = ScriptedEnvironments(lengths)
  steps = []

  def act(states, generators):
    assert len(generators) == len(states)
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
      returns = rewards.sum(), np.clip(rewards, -1, 1).sum()
      expected.append(evaluations.Episode(i, length, *returns))
      taken, episode = taken + length, episode + 1
  assert episodes == expected
  # Incomplete episodes are dropped, but their steps are counted.
  assert sum(steps) >= sum(episode.length for episode in episodes)


def test_an_evaluation_can_be_repeated_by_later_versions():
  """The seeds are fixed, and do not depend on the number of environments."""
  draws = []

  def act(states, generators):
    draws.append([int(g.integers(1000)) for g in generators])
    return np.zeros(len(states), int)

  for count in (1, 3):
    environments = ScriptedEnvironments([[1]] * count)
    vector_evaluation.play_episodes(environments, act, count, 7)
    seeds = [1041839916, 1969781632, 2092892605]
    assert environments.seed.tolist() == seeds[:count]
  assert draws == [[305], [305, 681, 396]]


def agent_of(shape=(84, 84), stack_size=4, dtype=tf.uint8):
  return types.SimpleNamespace(
    stack_size=stack_size, observation_shape=shape, observation_dtype=dtype
  )


WALK_AGENT = agent_of(random_walk.SHAPE, 2, tf.float64)


def at_random(num_actions, states_seen):
  """Returns a function that acts with the generator of each emulator."""

  def act(states, generators):
    assert len(states) == len(generators)
    states_seen.append(states)
    return np.array([g.integers(num_actions) for g in generators])

  return act


@pytest.mark.parametrize(
  ('game', 'rom_set', 'max_frames', 'max_steps', 'stack_size'),
  [
    ('Breakout', 'current', 108_000, None, 4),
    ('SpaceInvaders', 'current', 402, 27_000, 4),  # cut within an agent step
    ('Pong', 'current', 402, 60, 2),
    pytest.param(
      *('Amidar', 'legacy', 402, None, 4), marks=roms_test.needs_atari_py
    ),
  ],
)
def test_emulators_play_alike(game, rom_set, max_frames, max_steps, stack_size):
  gin.bind_parameter('make_atari.rom_set', rom_set)
  gin.bind_parameter('make_atari.max_num_frames_per_episode', max_frames)
  agent = agent_of(stack_size=stack_size)
  single = atari_lib.create_atari_environment(game)
  played = []
  rom = single.environment.unwrapped.rom
  cap = min(max_frames, 4 * (max_steps or 27_000))
  ways = {'max_num_frames_per_episode': cap, 'stack_num': stack_size}
  for environments in (
    vector_evaluation.make_environments(single, 1, max_steps, agent),
    environment.make_vector_environment(rom, 1, **ways),
  ):
    states = []
    episodes = vector_evaluation.play_episodes(
      environments, at_random(single.action_space.n, states), 250, seed=5
    )
    played.append((episodes, np.concatenate(states)))
  assert played[0][0] == played[1][0]
  np.testing.assert_array_equal(played[0][1], played[1][1])


class Recurrent(types.SimpleNamespace):
  """A user's agent that keeps a state in an episode."""

  def begin_episode(self, observation):
    self.state = observation

  begin_episode.__module__ = 'own_agent'


def test_methods_that_are_not_called_are_named(caplog):
  vector_evaluation.name_ignored_methods(Recurrent)
  [message] = [r.getMessage() for r in caplog.records]
  assert 'do not call begin_episode of Recurrent' in message


def make_emulators(count):
  gin.bind_parameter('make_atari.rom_set', 'current')
  single = atari_lib.create_atari_environment('SpaceInvaders')
  return vector_evaluation.make_environments(single, count, 60, agent_of())


def make_walks(count):
  return vector_evaluation.make_environments(
    random_walk.RandomWalk(), count, None, WALK_AGENT, random_walk.RandomWalk
  )


@pytest.mark.parametrize(
  ('make', 'num_actions'), [(make_emulators, 6), (make_walks, 3)]
)
def test_seeds_decide_the_episodes_and_numbers_do_not(make, num_actions):
  together, act = make(2), at_random(num_actions, [])
  first, other, again = (
    vector_evaluation.play_episodes(together, act, 240, seed)
    for seed in (1, 2, 1)
  )
  assert first == again != other
  assert {episode.environment for episode in first} == {0, 1}
  if make is make_emulators:
    assert [episode.length for episode in first] == [60] * 4  # truncated
  alone = vector_evaluation.play_episodes(make(1), act, 120, 1)
  assert alone == [e for e in first if e.environment == 0]


def test_emulators_have_the_rom_of_the_first():
  single = atari_lib.create_atari_environment('Pong')
  emulator = single.environment.unwrapped
  path = roms.find_rom('Breakout', 'current').path
  emulator.rom = dataclasses.replace(emulator.rom, path=path)
  emulators = vector_evaluation.make_environments(single, 2, None, agent_of())
  assert emulators.single_action_space.n == 4
  assert not isinstance(vector_env.roms, types.SimpleNamespace)  # restored


MAKE_PONG = atari_lib.create_atari_environment


def make_wrapped_pong():
  # Anything around the emulator could change the game.
  wrapped = gymnasium.Wrapper(environment.make_atari('Pong'))
  return atari_lib.AtariPreprocessing(wrapped)


@pytest.mark.parametrize(
  ('make', 'agent', 'ends_at_lost_lives', 'in_threads'),
  [
    (MAKE_PONG, agent_of(), False, True),
    (MAKE_PONG, agent_of((84, 84, 1)), False, False),
    (MAKE_PONG, agent_of(), True, False),
    (make_wrapped_pong, agent_of(), False, False),
    (random_walk.RandomWalk, WALK_AGENT, False, False),
  ],
)
def test_where_threads_step(
  make, agent, ends_at_lost_lives, in_threads, caplog
):
  gin.bind_parameter('create_atari_environment.game_name', 'Pong')
  setting = 'AtariPreprocessing.terminal_on_life_loss'
  gin.bind_parameter(setting, ends_at_lost_lives)
  single = make()
  environments = vector_evaluation.make_environments(
    single, 2, 27_000, agent, make
  )
  assert environments.num_envs == 2
  assert isinstance(environments, vector_env.AtariVectorEnv) == in_threads
  number = vector_evaluation.default_environments(single, agent, 10**6)
  assert (number > 1) == in_threads
  few = vector_evaluation.default_environments(single, agent, 29_999)
  assert few == (2 if in_threads else 1)
  warned = 'one emulator after another' in caplog.text
  assert warned == (make is MAKE_PONG and not in_threads)


def test_evaluations_are_written_and_later_ones_put_aside(tmp_path):
  episodes = [
    evaluations.Episode(0, 10, 1.0, 1.0),
    evaluations.Episode(1, 11, 4.0, 1.0),
  ]
  for iteration, played in enumerate([[], episodes, [], []]):
    evaluations.write(str(tmp_path), iteration, played, 2)
  evaluations.write(str(tmp_path), 3, [], 1, 'evaluate-3')
  evaluations.put_aside(str(tmp_path), 2)
  found = evaluations.read(str(tmp_path))
  assert list(found) == [0, 1]
  assert found[1]['iteration'] == 1 and found[1]['environments'] == 2
  assert [found[i]['mean_return'] for i in (0, 1)] == [None, 2.5]
  assert [evaluations.Episode(**e) for e in found[1]['episodes']] == episodes
  left = {path.name for path in (tmp_path / 'evaluations').iterdir()}
  before = {f'{name}.json.before' for name in ('2', '3', 'evaluate-3')}
  assert left == {'0.json', '1.json', *before}
