"""Dopamine's JAX agents train on a fixed replay: the README's example."""

import batch_rl  # noqa: F401  isort: skip  (before Dopamine)

import jax
import numpy as np
import pytest
from dopamine.jax.agents.dqn import dqn_agent
from dopamine.labs.offline_rl import fixed_replay

from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer

DATA_DIR = 'data/Pong/1/replay_logs'


class OfflineJaxDQNAgent(dqn_agent.JaxDQNAgent):
  """Dopamine's DQN in JAX, on a fixed replay."""

  def __init__(self, num_actions, replay, **kwargs):
    self._fixed_replay = replay
    super().__init__(num_actions, min_replay_history=0, **kwargs)

  def _build_replay_buffer(self):
    return self._fixed_replay

  def _store_transition(self, *args, episode_end=False, **kwargs):
    """What the agent sees is not added to the replay."""


def dopamines():
  return fixed_replay.JaxFixedReplayBuffer(
    data_dir=DATA_DIR,
    observation_shape=(84, 84),
    stack_size=4,
    replay_capacity=10_000,
    batch_size=32,
    num_buffers_to_load=2,
    replay_file_end_index=3,
  )


def ours():
  return fixed_replay_buffer.FixedReplayBuffer(
    DATA_DIR, None, (84, 84), 4, 10_000, 32, replay_file_end_index=3, seed=1
  )


@pytest.mark.parametrize('make', [dopamines, ours])
def test_an_offline_agent_trains_on_it(make, tmp_path):
  replay = make()
  agent = OfflineJaxDQNAgent(6, replay, seed=1)
  before = jax.tree_util.tree_map(np.array, agent.online_params)
  count = int(replay.add_count)
  for _ in range(9):  # three updates, and the first of a fourth period
    agent._train_step()
  changes = jax.tree_util.tree_map(
    lambda a, b: float(np.abs(a - b).max()), before, agent.online_params
  )
  for change in jax.tree_util.tree_leaves(changes):
    assert 0 < change < 0.1
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
  assert replay.add_count == count
  bundle = agent.bundle_and_checkpoint(str(tmp_path), 0)
  other = OfflineJaxDQNAgent(6, replay, seed=2)
  assert other.unbundle(str(tmp_path), 0, bundle)
  for a, b in zip(
    jax.tree_util.tree_leaves(agent.online_params),
    jax.tree_util.tree_leaves(other.online_params),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


def test_dopamines_buffer_is_used_as_it_is_written():
  replay = dopamines()
  assert replay.replay_capacity == 10_000
  assert len(replay._replay_buffers) == 3  # five, of those that there are
  replay.reload_data()
  assert len(replay._replay_buffers) == 2
  elements, metadata = replay.sample(with_sample_metadata=True)
  [again, *_] = replay.sample_transition_batch(
    batch_size=1, indices=[metadata.keys[7]]
  )
  np.testing.assert_array_equal(again[0], elements.state[7])
  only = replay.sample(5)
  assert only.next_state.shape == (5, 84, 84, 4)
