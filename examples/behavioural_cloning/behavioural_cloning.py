"""Behavioural cloning: supervised learning of the logged actions."""

import gin
import tensorflow as tf

from batch_rl.fixed_replay.agents import dqn_agent


@gin.configurable
class BehaviouralCloningAgent(dqn_agent.FixedReplayDQNAgent):
  """Policy softmax(f(s, .)), where f is DQN's network.

  Args:
    *args: Arguments of `FixedReplayDQNAgent`.
    samples: Whether to act by a sample of the policy, rather than its likeliest action.
    **kwargs: Arguments of `FixedReplayDQNAgent`.
  """

  display_name = 'BC'
  estimates_returns = False  # `q_values` are logits

  def __init__(self, *args, samples=False, **kwargs):
    self._samples = samples
    super().__init__(*args, **kwargs)

  def loss(self, batch):
    """Returns the negative log-likelihood of the action, -log softmax(f(s, .))_a."""
    logits = self.online(batch.state).q_values
    likeliest = tf.argmax(logits, axis=1, output_type=tf.int32)
    self.log_scalar('Accuracy', likeliest == batch.action)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.action, logits)

  def choose_actions(self, outputs, seed):
    """Returns an action for each state."""
    if self._samples:
      return tf.random.stateless_categorical(outputs.q_values, 1, seed)[:, 0]
    return super().choose_actions(outputs, seed)
