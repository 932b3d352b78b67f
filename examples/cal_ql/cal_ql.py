"""Cal-QL, calibrated conservative Q-learning, on QR-DQN (Nakamoto et al., 2023)."""

import gin
import tensorflow as tf

from batch_rl.fixed_replay import FixedReplayQuantileAgent


@gin.configurable
class CalQLAgent(FixedReplayQuantileAgent):
  """CQL that does not push values below the returns that the data has reached.

  Args:
    *args: Arguments of `FixedReplayQuantileAgent`.
    penalty_weight: Weight of the penalty, alpha in the paper.
    **kwargs: Arguments of `FixedReplayQuantileAgent`.
  """

  display_name = 'Cal-QL'
  needs = ('return_to_go',)  # a column of `batch`

  def __init__(self, *args, penalty_weight=1.0, **kwargs):
    self._penalty_weight = penalty_weight
    super().__init__(*args, **kwargs)

  def loss(self, batch):
    """Returns L_QR-DQN + alpha (log sum_a exp max(Q(s, a), R) - Q(s, a_data))."""
    q_values = self.online(batch.state).q_values
    taken = tf.gather(q_values, batch.action, batch_dims=1)
    calibrated = tf.maximum(q_values, batch.return_to_go[:, None])
    penalty = tf.reduce_logsumexp(calibrated, axis=1) - taken
    self.log_scalar('Penalty', penalty)
    return super().loss(batch) + self._penalty_weight * penalty
