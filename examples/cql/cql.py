"""CQL(H), conservative Q-learning, on QR-DQN (Kumar et al., 2020)."""

import gin
import tensorflow as tf

from batch_rl.fixed_replay.agents import quantile_agent


@gin.configurable
class CQLAgent(quantile_agent.FixedReplayQuantileAgent):
  """QR-DQN with a penalty on the values of actions that the data does not take.

  Args:
    *args: Arguments of `FixedReplayQuantileAgent`.
    cql_weight: Weight of the penalty, alpha in the paper.
    **kwargs: Arguments of `FixedReplayQuantileAgent`.
  """

  display_name = 'CQL'

  def __init__(self, *args, cql_weight=1.0, **kwargs):
    self._cql_weight = cql_weight
    super().__init__(*args, **kwargs)

  def loss(self, batch):
    """Returns L_QR-DQN + alpha (log sum_a exp Q(s, a) - Q(s, a_data)), Eq. 4."""
    q_values = self.online(batch.state).q_values
    taken = tf.gather(q_values, batch.action, batch_dims=1)
    penalty = tf.reduce_logsumexp(q_values, axis=1) - taken
    self.log_scalar('CQLPenalty', penalty)
    return super().loss(batch) + self._cql_weight * penalty
