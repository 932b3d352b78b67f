"""Discrete BCQ, batch-constrained Q-learning (Fujimoto et al., 2019, arXiv 1910.01708)."""

import collections
import functools

import gin
import tensorflow as tf

from batch_rl.fixed_replay.agents import dqn_agent

Outputs = collections.namedtuple('Outputs', 'q_values logits')


class BCQNetwork(tf.keras.Model):  # any Q-network, with twice as many outputs
  def __init__(self, network, num_actions, name):
    super().__init__(name=name)
    self._network = network(2 * num_actions, name='network')

  def call(self, state):
    return Outputs(*tf.split(self._network(state).q_values, 2, axis=1))


@gin.configurable
class BCQAgent(dqn_agent.FixedReplayDQNAgent):
  """Double DQN with a policy G, learnt from the data, that rules out unlikely actions.

  Args:
    threshold: Least probability of an action, divided by that of the likeliest one.
    *args, **kwargs: Arguments of `FixedReplayDQNAgent`.
  """

  def __init__(self, *args, threshold=0.3, **kwargs):
    if not 0 <= threshold <= 1:
      raise ValueError(f'threshold={threshold} is not in [0, 1].')
    self._threshold = float(threshold)
    super().__init__(*args, **kwargs)

  def _build_networks(self):
    self.network = functools.partial(BCQNetwork, self.network)
    super()._build_networks()

  def choose_actions(self, outputs, seed):
    """Returns argmax_a Q(s, a), where G(a|s) >= threshold * max_b G(b|s)."""
    gap = tf.reduce_max(outputs.logits, 1, keepdims=True) - outputs.logits
    is_likely = gap <= -tf.math.log(self._threshold)
    return tf.argmax(tf.where(is_likely, outputs.q_values, -float('inf')), 1)

  def loss(self, batch):
    """Returns Huber(target - Q(s, a)) - log G(a|s) + 0.01 mean_b logit_b^2."""
    values, logits = self.online(batch.state)
    values = tf.gather(values, batch.action, batch_dims=1)
    log_g = tf.gather(tf.nn.log_softmax(logits), batch.action, batch_dims=1)
    best = self.choose_actions(self.online(batch.next_state), batch.seed)
    next_values = self.target(batch.next_state).q_values
    next_values = tf.gather(next_values, best, batch_dims=1)
    goes_on = 1 - tf.cast(batch.terminal, tf.float32)
    targets = batch.reward + self.cumulative_gamma * goes_on * next_values
    huber = tf.compat.v1.losses.huber_loss(targets, values, reduction='none')
    return huber - log_g + 0.01 * tf.reduce_mean(logits**2, axis=1)
