"""DQN on a fixed replay."""

import gin
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.agents import loss_agent
from batch_rl.fixed_replay.agents import fixed_replay_agent


@gin.configurable
class FixedReplayDQNAgent(
  fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent
):
  """Offline DQN (Mnih et al., 2015).

  Takes the arguments of `DQNAgent` and `FixedReplayAgentMixin`.
  """

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns the Huber losses (delta 1) of the temporal-difference errors.

    The error is r + gamma^n max_a' Q'(s', a') - Q(s, a), with the target network Q';
    the second term is 0 if the episode ends.
    """
    next_values = tf.reduce_max(self.target(batch.next_state).q_values, axis=1)
    discounts = self.cumulative_gamma * (
      1.0 - tf.cast(batch.terminal, tf.float32)
    )
    targets = tf.stop_gradient(batch.reward + discounts * next_values)
    actions = tf.one_hot(batch.action, self.num_actions)
    values = tf.reduce_sum(self.online(batch.state).q_values * actions, axis=1)
    return tf.compat.v1.losses.huber_loss(
      targets, values, reduction=tf.compat.v1.losses.Reduction.NONE
    )
