"""Terms: weighted losses that an agent adds to the loss of its head.

In gin, `FixedReplayDQNAgent.terms = [@CQL(), @DR3()]`.
"""

from typing import Any

import gin
import tensorflow as tf

__all__ = ['CQL', 'DR3', 'Imitation', 'Term']


class Term:
  """Base of the terms.

  Args:
    weight: Factor of the term in the loss.

  Attributes:
    needs: Columns of the data that the term reads, see `LossAgent.needs`.
  """

  needs: tuple[str, ...] = ()
  weight = 1.0

  def __init__(self, weight: float = 1.0):
    self.weight = weight

  def build_networks(self, agent: Any) -> None:
    """Makes the networks of the term, by `agent.add_network`; none by default."""

  def __call__(self, agent: Any, batch: Any) -> tf.Tensor:
    """Returns the term of each transition, without its weight, float32 (n,).

    Args:
      agent: A `ValueAgent`.
      batch: Batch of the update.
    """
    raise NotImplementedError(f'{type(self).__name__} has no method __call__.')


@gin.configurable
class CQL(Term):
  """log sum_a exp Q(s, a) - Q(s, a_data): conservative Q-learning, CQL(H).

  Kumar et al., 2020 (arXiv 2006.04779), Eq. 4; the weight is alpha in the paper.
  """

  def __call__(self, agent: Any, batch: Any) -> tf.Tensor:
    """Returns the term of each transition, float32 (n,)."""
    q_values = agent.online(batch.state).q_values
    taken = tf.gather(q_values, batch.action, batch_dims=1)
    return tf.reduce_logsumexp(q_values, axis=1) - taken


@gin.configurable
class DR3(Term):
  """|phi(s) . phi(s')|, with the features phi of the online network's last layer.

  Kumar et al., 2021 (arXiv 2112.04716), in the form of Dopamine's lab: the paper has no
  absolute value, which matters for features below 0 only. It penalises similar
  features of consecutive states.

  Args:
    weight: Factor of the term, c_0 in the paper.
  """

  def __init__(self, weight: float = 0.03):
    super().__init__(weight)

  def __call__(self, agent: Any, batch: Any) -> tf.Tensor:
    """Returns the term of each transition, float32 (n,)."""
    features = agent.features(batch.state), agent.features(batch.next_state)
    return tf.abs(tf.reduce_sum(features[0] * features[1], axis=1))


@gin.configurable
class Imitation(Term):
  """-log G(a_data | s) + 0.01 mean_a logit_a^2: a policy G, learnt from the data.

  The generator of discrete BCQ (Fujimoto et al., 2019, arXiv 1910.01708): G shares the
  torso of the online network, and has a hidden layer of its own, as wide as its
  `features`. `policies.Constrained` reads it.

  Args:
    weight: Factor of the term.
    network: Name that G gets among the agent's networks.
  """

  def __init__(self, weight: float = 1.0, network: str = 'behaviour'):
    super().__init__(weight)
    self._network = network

  def build_networks(self, agent: Any) -> None:
    """Makes the network of G."""
    units = agent.features(agent.state_ph).shape[1]

    def create(name: str) -> tf.keras.Model:
      hidden = tf.keras.layers.Dense(units, activation='relu', name='hidden')
      logits = tf.keras.layers.Dense(agent.num_actions, name='logits')
      return tf.keras.Sequential([hidden, logits], name=name)

    agent.add_network(self._network, create, on_torso=True)

  def __call__(self, agent: Any, batch: Any) -> tf.Tensor:
    """Returns the term of each transition, float32 (n,)."""
    logits = agent.network_outputs(self._network, batch.state)
    log_g = tf.gather(tf.nn.log_softmax(logits), batch.action, batch_dims=1)
    return 0.01 * tf.reduce_mean(logits**2, axis=1) - log_g
