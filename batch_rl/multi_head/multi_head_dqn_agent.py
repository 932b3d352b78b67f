"""DQN with many heads: Ensemble-DQN, Averaged Ensemble-DQN and REM."""

from collections.abc import Callable
from typing import Any

import gin
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.agents import loss_agent
from batch_rl.multi_head import atari_helpers, plain_networks

TRANSFORM_STRATEGIES = ('IDENTITY', 'AVERAGE', 'STOCHASTIC')


@gin.configurable
class MultiHeadDQNAgent(loss_agent.LossAgent, dqn_agent.DQNAgent):
  """A DQN whose network has several heads, each a Q-function.

  `transform_strategy` chooses the estimates and their targets (Agarwal et al.,
  2020). With online heads Q_k and target heads Q'_k:

  | strategy   | learns        | target: r + gamma^n ...     |
  | ---------- | ------------- | --------------------------- |
  | IDENTITY   | each Q_k      | max_a Q'_k(s', a)           |
  | AVERAGE    | each Q_k      | max_a mean_j Q'_j(s', a)    |
  | STOCHASTIC | sum_k w_k Q_k | max_a sum_k w_k Q'_k(s', a) |

  IDENTITY is Ensemble-DQN. AVERAGE is Averaged Ensemble-DQN: all heads share one
  target, the maximum of their mean, as in Averaged-DQN (Anschel et al., 2017).
  STOCHASTIC is REM, Random Ensemble Mixture: the weights w are drawn for each
  minibatch and shared by online and target heads.

  The loss is the Huber loss (delta 1), averaged over heads or mixtures and over the
  batch. The agent acts on the mean of the heads.
  """

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    num_heads: int = 200,
    transform_strategy: str = 'IDENTITY',
    num_convex_combinations: int = 1,
    network: Callable[..., tf.keras.Model] = atari_helpers.MultiHeadQNetwork,
    seed: int | None = None,
    **kwargs: Any,
  ):
    """Builds the agent's graph.

    Args:
      sess: TensorFlow session; None creates one.
      num_actions: Number of actions.
      num_heads: Number of heads.
      transform_strategy: One of 'IDENTITY', 'AVERAGE' and 'STOCHASTIC'.
      num_convex_combinations: Number of mixtures per minibatch; above 1 only with
        STOCHASTIC.
      network: Function `(num_actions, num_heads, name=...)` that builds a network,
        whose `call` returns a `MultiHeadNetworkType`; or a plain network, see
        `plain_networks`.
      seed: Seed of the run, from which the mixtures are drawn; None for an unseeded
        agent.
      **kwargs: Arguments of Dopamine's `DQNAgent`.

    Raises:
      ValueError: If `transform_strategy` is unknown, `num_heads` or
        `num_convex_combinations` is below 1, or `num_convex_combinations` is set
        for a strategy that ignores it.
    """
    if transform_strategy not in TRANSFORM_STRATEGIES:
      raise ValueError(
        f'transform_strategy={transform_strategy!r} is none of '
        f'{", ".join(TRANSFORM_STRATEGIES)}.'
      )
    if num_heads < 1:
      raise ValueError(f'num_heads={num_heads} must be at least 1.')
    if num_convex_combinations < 1:
      raise ValueError(
        f'num_convex_combinations={num_convex_combinations} must be at least 1.'
      )
    if num_convex_combinations != 1 and transform_strategy != 'STOCHASTIC':
      raise ValueError(
        f'num_convex_combinations={num_convex_combinations} has no effect '
        f'with transform_strategy={transform_strategy!r}, only with STOCHASTIC.'
      )
    self.num_heads = num_heads
    self.transform_strategy = transform_strategy
    self.num_convex_combinations = num_convex_combinations
    super().__init__(sess, num_actions, network=network, seed=seed, **kwargs)

  def _create_network(self, name: str, *args: Any) -> tf.keras.Model:
    kwargs = {}
    # Networks written for the 2020 API mix their heads, which the loss does here.
    signature = plain_networks.signature_of(self.network)
    if 'transform_strategy' in signature.parameters:
      args, kwargs = (), {'transform_strategy': 'IDENTITY'}
    network = self._network_with_heads(self.num_heads, *args)
    return network(self.num_actions, self.num_heads, *args, name=name, **kwargs)

  def _network_with_heads(self, *args: Any) -> Callable[..., tf.keras.Model]:
    """Returns `network`, with heads if it is a plain one."""
    return plain_networks.with_head(
      self.network, atari_helpers.MultiHead, *args
    )

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns the Huber losses of the estimates, averaged over heads or mixtures."""
    q_heads = atari_helpers.select_actions(
      self.online(batch.state).q_heads, batch.action
    )
    next_q_heads = self.target(batch.next_state).q_heads
    if self.transform_strategy == 'AVERAGE':
      next_q_heads = tf.reduce_mean(next_q_heads, axis=2, keepdims=True)
    elif self.transform_strategy == 'STOCHASTIC':
      mixtures = atari_helpers.random_stochastic_matrix(
        self.num_heads, self.num_convex_combinations, batch.seed
      )
      q_heads = mix_heads(q_heads, mixtures)
      next_q_heads = mix_heads(next_q_heads, mixtures)
    targets = atari_helpers.bellman_targets(
      tf.reduce_max(next_q_heads, axis=1),
      batch.reward,
      batch.terminal,
      self.cumulative_gamma,
    )
    return ensemble_loss(q_heads, targets)


def mix_heads(q_heads: tf.Tensor, mixtures: tf.Tensor) -> tf.Tensor:
  """Computes sum_k w_k Q_k for each column w of `mixtures`, as REM does.

  Args:
    q_heads: Q-values of the heads, float32 (..., num_heads).
    mixtures: Weights, float32 (num_heads, num_mixtures); columns sum to 1.

  Returns:
    The mixed Q-values, float32 (..., num_mixtures).
  """
  return tf.tensordot(q_heads, mixtures, axes=1)


def ensemble_loss(estimates: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
  """Computes the Huber loss (delta 1) of each transition, averaged over estimates.

  Args:
    estimates: Estimates of the actions taken, float32 (batch, num_estimates).
    targets: Targets, float32 (batch, num_estimates), or (batch, 1) if all estimates
      share one target.

  Returns:
    The losses, float32 (batch,).
  """
  losses = tf.compat.v1.losses.huber_loss(
    tf.broadcast_to(targets, tf.shape(estimates)),
    estimates,
    reduction=tf.compat.v1.losses.Reduction.NONE,
  )
  return tf.reduce_mean(losses, axis=1)
