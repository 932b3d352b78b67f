"""Dopamine's JAX agents train on a fixed replay: the README's example."""

import dataclasses
import functools
import os

import gin
import numpy as np
import pytest

from batch_rl.tests import interchange_runs, ring_logs, shards


@pytest.fixture(scope='module')
def lib():
  """The module of the agents and buffers, imported by the first test only."""
  from batch_rl.tests.fixed_replay import jax_agents

  return jax_agents


@pytest.fixture(params=['dopamines', 'ours'])
def kind(request, lib):
  """A class of buffers."""
  return lib.BUFFERS[request.param]


@pytest.fixture(scope='module')
def agents(lib):
  """Two agents without data; JAX compiles the update of each once."""
  return [
    lib.OfflineJaxDQNAgent(6, None, seed=seed, network=lib.TinyNetwork)
    for seed in (1, 2)
  ]


@pytest.fixture(scope='module')
def sample(lib, tmp_path_factory):
  """Returns a function that loads a run with frames of the sample once."""
  directory = tmp_path_factory.mktemp('sample')
  episodes = interchange_runs.make_episodes(*[60] * 7)
  logs = str(interchange_runs.write_run(directory, episodes))
  return functools.cache(lambda make: getattr(lib, make)(logs))


@pytest.mark.parametrize('make', ['dopamines', 'ours'])
def test_an_offline_agent_trains_on_it(sample, agents, make, tmp_path, caplog):
  import jax

  replay = sample(make)
  for agent in agents:
    agent._replay, agent.training_steps = replay, 0
  agent, other = agents
  before = jax.tree_util.tree_map(np.array, agent.online_params)
  count = int(replay.add_count)
  for _ in range(9):  # three updates, and the first of a fourth period
    agent._train_step()
  changes = jax.tree_util.tree_map(
    lambda a, b: float(np.abs(a - b).max()), before, agent.online_params
  )
  for change in jax.tree_util.tree_leaves(changes):
    assert 0 < change < 0.1  # also finite
  batch = agent.replay_elements
  assert batch['state'].shape == (32, 84, 84, 4)
  assert batch['state'].dtype == np.uint8
  assert batch['terminal'].shape == batch['reward'].shape == (32,)
  # Consecutive frames: the next state's first three are the state's last.
  going_on = ~batch['terminal']
  np.testing.assert_array_equal(
    batch['state'][going_on][..., 1:], batch['next_state'][going_on][..., :-1]
  )

  frame = np.zeros((84, 84, 1), np.uint8)
  assert agent.begin_episode(frame) in range(6)
  assert agent.step(1.0, frame) in range(6)
  agent.end_episode(1.0)
  assert (
    'have episode_end' not in caplog.text
  )  # The agent inspects the signature.
  assert replay.add_count == count
  bundle = agent.bundle_and_checkpoint(str(tmp_path), 0)
  assert os.listdir(tmp_path) == []  # without the data
  assert other.unbundle(str(tmp_path), 0, bundle)
  for a, b in zip(
    jax.tree_util.tree_leaves(agent.online_params),
    jax.tree_util.tree_leaves(other.online_params),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)
  assert other.training_steps == agent.training_steps == 11
  other._train_step()
  other._train_step()  # the fourth update


def test_dopamines_buffer_works_unchanged(sample):
  replay = sample('dopamines')
  assert replay.replay_capacity == 100
  assert len(replay._replay_buffers) == 3  # Five are requested.
  replay.reload_data()
  assert len(replay._replay_buffers) == 2
  elements, metadata = replay.sample(with_sample_metadata=True)
  [again, *_] = replay.sample_transition_batch(
    batch_size=1, indices=[metadata.keys[7]]
  )
  np.testing.assert_array_equal(again[0], elements.state[7])
  only = replay.sample(5)
  assert only.next_state.shape == (5, 84, 84, 4)
  replay.save('/nowhere', 0)
  replay.load('/nowhere', 0)
  assert replay.add_count == len(replay.valid_indices()) > 100


# --- batches like those of Dopamine's JAX replay memory -----------------------

CAPACITY = 50


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """The directory of a small run, and its episodes."""
  directory = tmp_path_factory.mktemp('small')
  episodes = shards.make_episodes([30, 25, 40, 11, 60, 33])
  rows = shards.with_padding(episodes, 4)
  ring_logs.write_run(directory, rows, CAPACITY)
  return str(directory), episodes


def small_buffer(kind, data_dir, **kwargs):
  gin.bind_parameter('FixedReplayBuffer.seed', 0)
  return kind(
    data_dir=data_dir,
    replay_suffix=None,
    observation_shape=(2, 2),
    stack_size=4,
    batch_size=16,
    **{'replay_capacity': CAPACITY, **kwargs},
  )


def test_batches_have_the_types_of_dopamines(lib, small, kind):
  import jax

  ours, metadata = small_buffer(kind, small[0]).sample(
    with_sample_metadata=True
  )
  theirs, their_metadata = lib.dopamines_sample()
  assert type(ours) is type(theirs)
  assert type(metadata) is type(their_metadata)
  for field in dataclasses.fields(theirs):
    one, other = getattr(ours, field.name), getattr(theirs, field.name)
    assert one.shape == other.shape, field.name
    # Jitted functions convert 64 bits to 32.
    one, other = jax.numpy.asarray(one), jax.numpy.asarray(other)
    assert one.dtype == other.dtype, field.name


def test_keys_are_indices(small, kind):
  replay = small_buffer(kind, small[0])
  batch, metadata = replay.sample(with_sample_metadata=True)
  assert batch.state.shape == (16, 2, 2, 4)
  assert replay.sample(3).state.shape == (3, 2, 2, 4)
  for i, key in enumerate(metadata.keys):
    state, action, reward, next_state, _, _, terminal, index = (
      array[0]
      for array in replay.sample_transition_batch(batch_size=1, indices=[key])
    )
    np.testing.assert_array_equal(batch.state[i], state)
    np.testing.assert_array_equal(batch.next_state[i], next_state)
    assert (batch.action[i], batch.reward[i]) == (action, reward)
    assert batch.is_terminal[i] == batch.episode_end[i] == terminal
    assert index == key
