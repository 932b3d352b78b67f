"""Implicit Q-learning on a fixed replay."""

import functools
from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import backups, heads, loss_agent, policies, value_agent
from batch_rl.fixed_replay.agents import fixed_replay_agent


class _StateValue(backups.Backup):
  """V(s'): the value network, in the place of the target network."""

  def next_returns(self, agent: Any, batch: loss_agent.Batch) -> heads.Returns:
    """Returns the values of the next states, (n, 1)."""
    outputs = agent.network_outputs('value', batch.next_state)
    return heads.Returns(outputs.q_values)


class _Policy(tf.keras.Model):
  """A plain Q-network, whose outputs are logits."""

  def __init__(self, network, num_actions, name):
    super().__init__(name=name)
    self._network = network(num_actions, name='network')

  def call(self, state):
    """Maps states, (n, ...), to logits, float32 (n, num_actions)."""
    return self._network(state).q_values


@gin.configurable
class FixedReplayIQLAgent(
  fixed_replay_agent.FixedReplayAgentMixin, value_agent.ValueAgent
):
  """Offline IQL for discrete actions, implicit Q-learning (Kostrikov et al., 2022).

  arXiv 2110.06169. Three networks of the same kind learn, with the target network Q',

  - Q(s, a), by the head's loss against r + gamma^n V(s') (Eq. 6, where the loss is the
    squared error; it is the Huber loss with the head `Scalar`);
  - V(s), by |tau - 1[u < 0]| u^2, where u = Q'(s, a) - V(s) (Eq. 5);
  - pi(a | s), by -w log pi(a | s), where w = min(exp(beta (Q'(s, a) - V(s))), 100)
    (Eq. 7).

  Without a target network, Q' is Q itself, without gradient.
  There is one Q-function; the paper takes the minimum of two. V tends to the largest Q'
  of the actions in the data as tau tends to 1. Acts by the likeliest action of pi.

  With `backup = @MonteCarlo()` and `expectile = 0.5` it is advantage-weighted regression
  with a learnt Q (Peng et al., 2019, arXiv 1910.00177).

  Args:
    *args: Arguments of `ValueAgent` and `DQNAgent`.
    expectile: tau, at least 0.5 and below 1.
    inverse_temperature: beta, at least 0; 0 clones the logged actions.
    **kwargs: Arguments of `ValueAgent`, `DQNAgent` and `FixedReplayAgentMixin`.

  Raises:
    ValueError: If a number is out of its range, or the network has several outputs an
      action.
  """

  backup = _StateValue()
  policy = policies.Named('policy')

  def __init__(
    self,
    *args: Any,
    expectile: float = 0.7,
    inverse_temperature: float = 3.0,
    **kwargs: Any,
  ):
    if not 0.5 <= expectile < 1:
      raise ValueError(
        f'expectile={expectile}: give a number from 0.5 to below 1.'
      )
    if not inverse_temperature >= 0:
      raise ValueError(
        f'inverse_temperature={inverse_temperature}: give a number of at least 0.'
      )
    self._expectile = expectile
    self._inverse_temperature = inverse_temperature
    super().__init__(*args, **kwargs)

  def _create_network(self, name):
    heads.check_plain(self.network, self)
    return super()._create_network(name)

  def build_networks(self) -> None:
    """Makes the networks of V and pi."""
    super().build_networks()
    self.add_network('value', functools.partial(self.network, 1))
    create = functools.partial(_Policy, self.network, self.num_actions)
    self.add_network('policy', create)

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns the sum of the three losses, float32 (n,)."""
    critic = self.target if self.uses_target else self.online
    q_values = tf.stop_gradient(critic(batch.state).q_values)
    taken = tf.gather(q_values, batch.action, batch_dims=1)
    values = self.network_outputs('value', batch.state).q_values[:, 0]
    logits = policies.logits(self, 'policy', batch.state)
    advantages = taken - values
    weights = tf.abs(self._expectile - tf.cast(advantages < 0, tf.float32))
    value_losses = weights * tf.square(advantages)
    scores = tf.exp(self._inverse_temperature * tf.stop_gradient(advantages))
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    policy_losses = tf.minimum(scores, 100.0) * cross_entropy(
      batch.action, logits
    )
    self._log_numbered('Value', value_losses)
    self._log_numbered('Policy', policy_losses)
    return super().loss(batch) + value_losses + policy_losses
