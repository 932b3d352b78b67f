"""Dopamine's JAX agents train on a fixed replay: the documentation's example."""

import dataclasses
import os

import gin
import numpy as np
import pytest

from batch_rl.tests import interchange_runs, old_code_test, shards


@pytest.fixture(scope='module')
def lib():
  """The module of the agents and buffers, imported by the first test only."""
  from batch_rl.tests.fixed_replay import jax_agents

  return jax_agents


@pytest.fixture(scope='module')
def agents(lib):
  """Two agents without data; JAX compiles the update of each once."""
  return [
    lib.OfflineJaxDQNAgent(6, None, seed=seed, network=lib.TinyNetwork)
    for seed in (1, 2)
  ]


@pytest.fixture(scope='module')
def logs(tmp_path_factory):
  directory = tmp_path_factory.mktemp('sample')
  episodes = interchange_runs.make_episodes(*[60] * 7)
  return interchange_runs.write_run(directory, episodes)


@pytest.mark.parametrize(
  ('kind', 'ways'),
  [
    ('dopamines', {'num_buffers_to_load': 2, 'replay_file_end_index': 3}),
    ('ours', {'replay_file_end_index': 1, 'seed': 1}),
  ],
)
def test_offline_agents_train(lib, logs, agents, kind, ways, tmp_path, caplog):
  import jax

  ways = {'observation_shape': (84, 84), 'batch_size': 32, **ways}
  ways |= {'class_': lib.BUFFERS[kind], 'replay_capacity': 100}
  replay = old_code_test.load(logs, **ways)
  for agent in agents:
    agent._replay, agent.training_steps = replay, 0
  agent, other = agents
  before = list(map(np.array, jax.tree.leaves(agent.online_params)))
  count = int(replay.add_count)
  for _ in range(9):  # three updates, and the first of a fourth period
    agent._train_step()
  after = jax.tree.leaves(agent.online_params)
  for one, two in zip(before, after, strict=True):
    assert 0 < np.abs(one - two).max() < 0.1  # also finite
  frame = np.zeros((84, 84, 1), np.uint8)
  assert agent.begin_episode(frame) in range(6)
  assert agent.step(1.0, frame) in range(6)
  agent.end_episode(1.0)
  # The agent inspects the signature.
  assert 'have episode_end' not in caplog.text
  assert replay.add_count == count
  bundle = agent.bundle_and_checkpoint(str(tmp_path), 0)
  assert os.listdir(tmp_path) == []  # without the data
  assert other.unbundle(str(tmp_path), 0, bundle)
  restored = list(map(np.array, jax.tree.leaves(other.online_params)))
  np.testing.assert_equal(restored, list(map(np.array, after)))
  assert other.training_steps == agent.training_steps == 11
  other._train_step()
  other._train_step()  # the fourth update


@pytest.mark.parametrize('kind', ['dopamines', 'ours'])
def test_batches_are_like_those_of_dopamines_jax_memory(lib, tmp_path, kind):
  import jax

  shards.write_run(tmp_path, [30, 25, 40, 11, 60, 33], 50)
  gin.bind_parameter('FixedReplayBuffer.seed', 0)
  replay = old_code_test.load(tmp_path, class_=lib.BUFFERS[kind], batch_size=16)
  ours, metadata = replay.sample(with_sample_metadata=True)
  theirs, their_metadata = lib.dopamines_sample()
  assert type(ours) is type(theirs)
  assert type(metadata) is type(their_metadata)
  for field in dataclasses.fields(theirs):
    one, other = getattr(ours, field.name), getattr(theirs, field.name)
    assert one.shape == other.shape, field.name
    # Jitted functions convert 64 bits to 32.
    one, other = jax.numpy.asarray(one), jax.numpy.asarray(other)
    assert one.dtype == other.dtype, field.name
  assert replay.sample(3).state.shape == (3, 2, 2, 4)
  # Keys are indices.
  *first, _, _, terminal, index = replay.sample_transition_batch(
    batch_size=16, indices=metadata.keys
  )
  found = ours.state, ours.action, ours.reward, ours.next_state
  found += ours.is_terminal, ours.episode_end, metadata.keys
  np.testing.assert_equal(found, (*first, terminal, terminal, index))
