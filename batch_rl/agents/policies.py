"""Policies: an action for each state, from the outputs of the agent's networks.

Random actions of epsilon-greedy acting come on top.
"""

from typing import Any, NamedTuple

import gin
import tensorflow as tf


class Policy:
  """Base of the policies; acts on the outputs of the online network."""

  def outputs(self, agent: Any, states: tf.Tensor) -> Any:
    """Returns what the policy reads, tensors (n, ...), for n states."""
    return agent.online(states)

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,).

    Args:
      outputs: Result of `outputs`.
      seed: Seed for `tf.random.stateless_*`, int64 (2,).
    """
    raise NotImplementedError


def logits(agent: Any, network: str, states: tf.Tensor) -> tf.Tensor:
  """Returns the logits of the actions, float32 (n, num_actions).

  Args:
    agent: A `LossAgent`.
    network: Name of the agent's network whose outputs have `logits`, or are them.
    states: States, (n, ...).

  Raises:
    ValueError: If the network has no such outputs.
  """
  outputs = agent.network_outputs(network, states)
  result = getattr(outputs, 'logits', outputs)
  expected = [None, agent.num_actions]
  if not tf.is_tensor(result) or not result.shape.is_compatible_with(expected):
    raise ValueError(
      f'The network {network!r} of {type(agent).__name__} is no policy: its outputs '
      f'have no logits (n, {agent.num_actions}).'
    )
  return result


def sample(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns actions sampled from softmax(logits), integers (n,)."""
  # argmax(logits + Gumbel noise), since XLA lacks `stateless_categorical`.
  noise = tf.random.stateless_uniform(
    tf.shape(logits), seed, dtype=logits.dtype
  )
  return tf.argmax(logits - tf.math.log(-tf.math.log(noise)), axis=1)


@gin.configurable
class Greedy(Policy):
  """argmax_a Q(s, a)."""

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    del seed
    return tf.argmax(outputs.q_values, axis=1)


@gin.configurable
class Softmax(Policy):
  """A sample of softmax(Q(s, .) / temperature).

  Args:
    temperature: Temperature, in units of the return.

  Raises:
    ValueError: If the temperature is not above 0.
  """

  def __init__(self, temperature: float = 1.0):
    if not temperature > 0:
      raise ValueError(f'temperature={temperature} must be above 0.')
    self._temperature = temperature

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    return sample(outputs.q_values / self._temperature, seed)


class _Joint(NamedTuple):
  q_values: tf.Tensor
  logits: tf.Tensor


@gin.configurable
class Constrained(Policy):
  """argmax_a Q(s, a) over actions with G(a | s) >= threshold * max_b G(b | s).

  Discrete BCQ (Fujimoto et al., 2019, arXiv 1910.01708).

  Args:
    threshold: Least probability of an action, divided by that of the likeliest one.
    network: Name of the agent's network with the logits of G, see `terms.Imitation`.

  Raises:
    ValueError: If the threshold is not in [0, 1].
  """

  def __init__(self, threshold: float = 0.3, network: str = 'behaviour'):
    if not 0 <= threshold <= 1:
      raise ValueError(f'threshold={threshold} is not in [0, 1].')
    self._threshold, self._network = float(threshold), network

  def outputs(self, agent: Any, states: tf.Tensor) -> Any:
    """Returns Q-values and logits, (n, num_actions) each."""
    return _Joint(
      agent.online(states).q_values, logits(agent, self._network, states)
    )

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    del seed
    gap = tf.reduce_max(outputs.logits, 1, keepdims=True) - outputs.logits
    is_likely = gap <= -tf.math.log(self._threshold)
    return tf.argmax(tf.where(is_likely, outputs.q_values, -float('inf')), 1)


@gin.configurable
class Named(Policy):
  """The likeliest action, or a sample, of another network than the online one.

  Args:
    network: Name of the agent's network whose outputs have `logits`, or are them.
    samples: Whether to sample softmax(logits).
  """

  def __init__(self, network: str, samples: bool = False):
    self._network, self._samples = network, samples

  def outputs(self, agent: Any, states: tf.Tensor) -> Any:
    """Returns the logits, (n, num_actions)."""
    return logits(agent, self._network, states)

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    if self._samples:
      return sample(outputs, seed)
    return tf.argmax(outputs, axis=1)
