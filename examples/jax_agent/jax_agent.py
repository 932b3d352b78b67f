"""Dopamine's DQN in JAX, offline. To train: python jax_agent.py data/Pong/1."""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import sys

from dopamine.jax.agents.dqn import dqn_agent

from batch_rl.dataset import find_runs
from batch_rl.fixed_replay import FixedReplayBuffer


class OfflineJaxDQNAgent(dqn_agent.JaxDQNAgent):
  """DQN on a fixed replay."""

  def __init__(self, num_actions, replay, **kwargs):
    self._fixed_replay = replay
    super().__init__(num_actions, min_replay_history=0, **kwargs)

  def _build_replay_buffer(self):
    return self._fixed_replay

  def _store_transition(self, *args, episode_end=False, **kwargs):
    """Ignores new transitions: the replay is fixed."""


if __name__ == '__main__':
  data_dir = find_runs(sys.argv[1])[0].data_dir
  replay = FixedReplayBuffer(data_dir, None, (84, 84), 4, 1_000_000, 32)
  agent = OfflineJaxDQNAgent(6, replay)  # Pong has six actions.
  for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000):
    agent._train_step()  # an agent step; an update every 4
