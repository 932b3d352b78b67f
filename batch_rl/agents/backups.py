"""Backups: the Bellman target of (s, a), from the next state s'.

Each gives r + gamma^n Z', where Z' is a distribution or several estimates of the return
from s' on, as the agent's head has them; 0 if the episode ends. Most read the target
network. No gradient flows through them.
"""

from typing import Any

import gin
import tensorflow as tf

from batch_rl.agents import graph_checks, heads, policies

__all__ = [
  'Backup', 'Double', 'LoggedAction', 'Max', 'MonteCarlo', 'Munchausen', 'Policy',
  'next_outputs',
]  # fmt: skip


class Backup:
  """Base of the backups.

  Attributes:
    needs: Columns of the data that the backup reads, see `LossAgent.needs`.
    uses_target: Whether it reads the target network.
  """

  needs: tuple[str, ...] = ()
  uses_target = True

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Predicts the returns from the next states on, (n, k)."""
    raise NotImplementedError(f'{type(self).__name__} has no next_returns.')

  def rewards(self, agent: Any, batch: Any) -> tf.Tensor:
    """Returns the rewards before the next states, float32 (n,)."""
    return batch.reward

  def __call__(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the targets r + gamma^n (1 - terminal) Z', (n, k).

    Args:
      agent: A `ValueAgent`.
      batch: Batch of the update.
    """
    returns = self.next_returns(agent, batch)
    check_returns(returns, f'{type(self).__name__}.next_returns')
    values, probabilities = returns
    rewards = self.rewards(agent, batch)[:, None]
    follows = 1.0 - tf.cast(batch.terminal, tf.float32)
    discounts = (agent.cumulative_gamma * follows)[:, None]
    targets = heads.Returns(rewards + discounts * values, probabilities)
    return targets.without_gradient()


def check_returns(returns: Any, method: str) -> None:
  """Raises a ValueError unless a method returned returns of states, (n, k)."""
  values = returns.values if isinstance(returns, heads.Returns) else returns
  if values is returns or values.shape.rank not in (None, 2):
    raise ValueError(
      f'{method} returned {graph_checks.describe(values)}; expected heads.Returns of '
      'values (n, k): with one value a state, heads.Returns(values[:, None]).'
    )


@gin.configurable
class Max(Backup):
  """Z'(s', argmax_a Q'(s', a)): the target network's greedy action."""

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the target network's returns of its greedy actions."""
    outputs, returns = next_outputs(agent, batch)
    return returns.of_actions(agent.head.greedy(returns, outputs))


@gin.configurable
class Double(Backup):
  """Z'(s', a'): the action that the agent itself would take.

  With a greedy policy it is double Q-learning (van Hasselt et al., 2016), with a
  constrained one the target of BCQ (Fujimoto et al., 2019).
  """

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the target network's returns of the agent's actions."""
    actions = agent.choose_actions(
      agent.acting_outputs(batch.next_state), batch.seed_for('next action')
    )
    return next_outputs(agent, batch)[1].of_actions(actions)


@gin.configurable
class LoggedAction(Backup):
  """Z'(s', a'_data): the next logged action.

  It evaluates the behaviour policy, which made the data, without a maximum over actions
  (behaviour value estimation, Gulcehre et al., 2021).
  """

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the target network's returns of the logged actions."""
    return next_outputs(agent, batch)[1].of_actions(batch.next_action)


@gin.configurable
class MonteCarlo(Backup):
  """The discounted return of the logged trajectory from (s, a) on, without bootstrap.

  If the log stops before the episode does, later rewards count as zero.
  """

  needs = ('return_to_go',)
  uses_target = False

  def __call__(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the returns to go, (n, 1)."""
    return heads.Returns(batch.return_to_go[:, None])


@gin.configurable
class Policy(Backup):
  """sum_a pi(a | s') Z'(s', a): the policy pi of a named network.

  Args:
    network: Name of the agent's network whose outputs are the logits of pi, or have
      them as `logits`.
  """

  def __init__(self, network: str):
    self._network = network

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the target network's returns under the policy."""
    logits = policies.logits(agent, self._network, batch.next_state)
    probabilities = tf.nn.softmax(logits)
    return agent.head.under(probabilities, next_outputs(agent, batch)[1])


@gin.configurable
class Munchausen(Backup):
  """Munchausen-DQN's soft target (Vieillard et al., 2020, arXiv 2007.14430).

  r + alpha [tau log pi(a | s)] + gamma^n sum_a' pi(a' | s') (Z'(s', a') - tau log
  pi(a' | s')), with pi = softmax(Q' / tau) and the term in brackets clipped to
  [clip, 0]. With n-step returns, only the first action has the term in brackets.

  Args:
    alpha: Weight of the log-policy of the logged action.
    tau: Temperature of the policy, in units of the return.
    clip: Least value of the scaled log-policy, at most 0.

  Raises:
    ValueError: If `tau` is not above 0, or `clip` is above 0.
  """

  def __init__(self, alpha: float = 0.9, tau: float = 0.03, clip: float = -1.0):
    if not tau > 0:
      raise ValueError(f'tau={tau}: give a number above 0.')
    if not clip <= 0:
      raise ValueError(f'clip={clip}: give a number of at most 0.')
    self._alpha, self._tau, self._clip = alpha, tau, clip

  def _log_policy(self, q_values):
    """Returns tau log pi, float32 (n, num_actions)."""
    return self._tau * tf.nn.log_softmax(q_values / self._tau)

  def rewards(self, agent: Any, batch: Any) -> tf.Tensor:
    """Returns the rewards plus the scaled log-policy."""
    scaled = self._log_policy(agent.target(batch.state).q_values)
    taken = heads.select_actions(scaled[:, :, None], batch.action)[:, 0]
    return batch.reward + self._alpha * tf.clip_by_value(taken, self._clip, 0)

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the returns under pi, with its entropy.

    Samples and quantiles are averaged over the actions level by level, as in the
    paper's Munchausen-IQN.
    """
    outputs, returns = next_outputs(agent, batch)
    scaled = self._log_policy(outputs.q_values)[:, :, None]
    policy = tf.nn.softmax(outputs.q_values / self._tau)
    softened = returns._replace(values=returns.values - scaled)
    if returns.probabilities is None:
      return heads.average(policy, softened)
    return agent.head.under(policy, softened)


def next_outputs(agent: Any, batch: Any) -> tuple[Any, heads.Returns]:
  """Returns the target network's outputs and returns in the next states."""
  seed = batch.seed_for('target')
  outputs = agent.head.outputs(agent.target, batch.next_state, seed)
  return outputs, agent.head.target_returns(outputs, batch)
