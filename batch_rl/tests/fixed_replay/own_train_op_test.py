"""Offline agents with a train op of their own, as Dopamine's, and their summaries."""

import numpy as np
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay.agents import dqn_agent as offline_dqn_agent
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.tests import cartpole


class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
  """Dopamine's DQN as it is, without `loss`."""


def test_summaries_take_no_batches(shared_agents, log_dir, tmp_path):
  """A summary alone would draw a batch, and move the updates to the next ones."""
  agent = cartpole.build_offline_agent(
    'dqn',
    log_dir,
    Agent,
    summary_writer=str(tmp_path),
    summary_writing_frequency=8,
    **cartpole.SHARED_SETTINGS,
  )
  list(agent.train_steps(30))
  without = shared_agents('dqn')  # learns the same, and tells its losses
  losses = list(without.train_steps(30))
  expected = cartpole.values(without)
  for name, array in cartpole.values(agent).items():
    np.testing.assert_array_equal(array, expected[name], err_msg=name)

  agent.summary_writer.flush()
  [path] = tmp_path.iterdir()
  summaries = {
    event.step: value.simple_value
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
    if value.tag == 'Losses/HuberLoss'
  }
  assert list(summaries) == [8, 16, 24]
  # Those of the same batches.
  np.testing.assert_allclose(
    list(summaries.values()), [losses[2], losses[4], losses[6]], rtol=1e-6
  )


def test_a_loss_has_the_columns_that_an_agent_needs(log_dir):
  class ToGo(offline_dqn_agent.FixedReplayDQNAgent):
    needs = ('return_to_go', 'timestep')

    def loss(self, batch):
      self.log_scalar('ToGo', batch.return_to_go)
      self.found = batch.return_to_go, batch.timestep
      return super().loss(batch)

  agent = cartpole.build_offline_agent(
    'dqn', log_dir, ToGo, **cartpole.SHARED_SETTINGS
  )
  found = [(array.dtype, array.shape.rank) for array in agent.found]
  assert found == [(tf.float32, 1), (tf.int64, 1)]
  list(agent.train_steps(8))
