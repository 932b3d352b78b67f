"""Behavioural cloning on a fixed replay."""

import gin
import tensorflow as tf

from batch_rl.agents import heads, loss_agent, value_agent
from batch_rl.fixed_replay.agents import fixed_replay_agent


@gin.configurable
class FixedReplayBCAgent(
  fixed_replay_agent.FixedReplayAgentMixin, value_agent.ValueAgent
):
  """Behavioural cloning: supervised learning of the logged actions.

  Learns a policy pi(a | s) = softmax(f(s, .))_a by the cross-entropy -log pi(a | s),
  where f(s, a) is what DQN's network returns as `q_values`. Acts by the likeliest
  action, or with `policy = @Softmax()` by a sample.

  It has neither head nor backup nor terms, and refuses those of gin.

  Takes the arguments of `ValueAgent`, `DQNAgent` and `FixedReplayAgentMixin`.
  """

  estimates_returns = False
  uses_target = False

  def own_head(self) -> heads.Scalar:
    """Returns the head of plain networks."""
    return heads.Scalar()

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns -log pi(a | s), float32 (n,)."""
    logits = self.online(batch.state).q_values
    likeliest = tf.argmax(logits, axis=1, output_type=tf.int32)
    self._log_numbered('Accuracy', tf.equal(likeliest, batch.action))
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.action, logits)
