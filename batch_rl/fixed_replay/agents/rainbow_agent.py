"""C51 on a fixed replay."""

import gin
import tensorflow as tf
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.agents import loss_agent
from batch_rl.agents import replay_scheme as scheme_lib
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.multi_head import plain_networks


@gin.configurable
class FixedReplayRainbowAgent(
  fixed_replay_agent.FixedReplayAgentMixin,
  plain_networks.RainbowNetworks,
  rainbow_agent.RainbowAgent,
):
  """Offline C51 (Bellemare et al., 2017): one-step Rainbow, uniform replay.

  Takes the arguments of `RainbowAgent` and `FixedReplayAgentMixin`.

  Raises:
    ValueError: If `replay_scheme` is not 'uniform'.
  """

  def __init__(self, *args, replay_scheme='uniform', **kwargs):
    scheme_lib.check(replay_scheme)
    super().__init__(*args, replay_scheme=replay_scheme, **kwargs)

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns cross-entropies with the projected target distribution (Algorithm 1).

    The target is the distribution of r + gamma^n z_j, where z_j is the support, with
    the target network's probabilities of the action a' = argmax_a Q'(s', a). Projected
    onto the support (Eq. 7), it is compared with the distribution of (s, a).
    """
    next_outputs = self.target(batch.next_state)
    next_actions = tf.argmax(next_outputs.q_values, axis=1)
    next_probabilities = tf.gather(
      next_outputs.probabilities, next_actions, batch_dims=1
    )
    discounts = self.cumulative_gamma * (
      1.0 - tf.cast(batch.terminal, tf.float32)
    )
    targets = rainbow_agent.project_distribution(
      batch.reward[:, None] + discounts[:, None] * self._support,
      next_probabilities,
      self._support,
    )
    logits = tf.gather(
      self.online(batch.state).logits, batch.action, batch_dims=1
    )
    return tf.nn.softmax_cross_entropy_with_logits(
      labels=tf.stop_gradient(targets), logits=logits
    )
