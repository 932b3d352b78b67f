"""Policies: an action for each state, from the outputs of the agent's networks.

Epsilon-greedy exploration is added to the policy.
"""

from typing import Any, NamedTuple

import gin
import tensorflow as tf

from batch_rl.agents import graph_checks

__all__ = ['Constrained', 'Greedy', 'Named', 'Policy', 'Softmax', 'logits']


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
    raise NotImplementedError(f'{type(self).__name__} has no method __call__.')

  def probabilities(self, outputs: Any) -> tf.Tensor | None:
    """Returns the probabilities of the actions of a policy that samples.

    If a subclass overrides `__call__` alone, they count as unknown.

    Args:
      outputs: Result of `outputs`.

    Returns:
      float32 (n, num_actions); None if they are unknown.
    """


def logits(agent: Any, network: str, states: tf.Tensor) -> tf.Tensor:
  """Returns the logits of the actions, float32 (n, num_actions).

  Args:
    agent: A `LossAgent`.
    network: Name of the agent's network whose outputs are the logits, or have them as
      `logits`.
    states: States, (n, ...).

  Raises:
    ValueError: If the network has no such outputs.
  """
  outputs = agent.network_outputs(network, states)
  result = getattr(outputs, 'logits', outputs)
  expected = [None, agent.num_actions]
  if not tf.is_tensor(result) or not result.shape.is_compatible_with(expected):
    raise ValueError(
      f'The network {network!r} of {type(agent).__name__} is not a policy: its '
      f'outputs have no logits (n, {agent.num_actions}).'
    )
  return result


def sample(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns actions sampled from softmax(logits), integers (n,)."""
  # argmax(logits + Gumbel noise), since XLA lacks `stateless_categorical`.
  shape, dtype = tf.shape(logits), logits.dtype
  noise = tf.random.stateless_uniform(shape, seed, dtype=dtype)
  return tf.argmax(logits - tf.math.log(-tf.math.log(noise)), axis=1)


@gin.configurable
class Greedy(Policy):
  """argmax_a Q(s, a)."""

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    return tf.argmax(outputs.q_values, axis=1)


@gin.configurable
class Softmax(Policy):
  """A sample of softmax(Q(s, .) / temperature).

  Args:
    temperature: Temperature, in units of the return.

  Raises:
    ValueError: If `temperature` is not above 0.
  """

  def __init__(self, temperature: float = 1.0):
    if not temperature > 0:
      raise ValueError(f'temperature={temperature}: give a number above 0.')
    self._temperature = temperature

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    return sample(outputs.q_values / self._temperature, seed)

  def probabilities(self, outputs: Any) -> tf.Tensor:
    """Returns softmax(Q(s, .) / temperature), float32 (n, num_actions)."""
    return tf.nn.softmax(outputs.q_values / self._temperature)


class _Joint(NamedTuple):
  q_values: tf.Tensor
  logits: tf.Tensor


@gin.configurable
class Constrained(Policy):
  """argmax_a Q(s, a) over actions with G(a | s) >= threshold * max_b G(b | s).

  Discrete BCQ (Fujimoto et al., 2019, arXiv 1910.01708).

  Args:
    threshold: Minimum probability of an action, relative to the likeliest action.
    network: Name of the agent's network with the logits of G, see `terms.Imitation`.

  Raises:
    ValueError: If `threshold` is not in [0, 1].
  """

  def __init__(self, threshold: float = 0.3, network: str = 'behaviour'):
    self._threshold, self._network = float(threshold), network
    if not 0 <= self._threshold <= 1:
      raise ValueError(f'Constrained.threshold={threshold} is not in [0, 1].')

  def outputs(self, agent: Any, states: tf.Tensor) -> Any:
    """Returns Q-values and logits, (n, num_actions) each."""
    return _Joint(
      agent.online(states).q_values, logits(agent, self._network, states)
    )

  def __call__(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns actions, integers (n,)."""
    gap = tf.reduce_max(outputs.logits, 1, keepdims=True) - outputs.logits
    is_likely = gap <= -tf.math.log(self._threshold)
    return tf.argmax(tf.where(is_likely, outputs.q_values, -float('inf')), 1)


@gin.configurable
class Named(Policy):
  """The likeliest action, or a sample, of another network than the online one.

  Args:
    network: Name of the agent's network whose outputs are the logits, or have them as
      `logits`.
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

  def probabilities(self, outputs: Any) -> tf.Tensor:
    """Returns softmax(logits), float32 (n, num_actions)."""
    return tf.nn.softmax(outputs)


class ActionChoice:
  """An agent's `choose_actions` as operations of a graph, for any number of states.

  The action in a state does not depend on the other states: a policy that draws random
  numbers draws them for each state, by a seed of its own.

  Args:
    agent: A `LossAgent`.
    outputs: Result of its `acting_outputs`, for any number of states.

  Attributes:
    draws: Whether the choice depends on the seed.

  Raises:
    ValueError: If `choose_actions` returns something else than an integer for each
      state, draws stateful random numbers, uses other tensors than the outputs, or
      depends on values of Python that change later.
  """

  def __init__(self, agent: Any, outputs: Any):
    name = f'{type(agent).__name__}.choose_actions'
    for value in tf.nest.flatten(outputs):
      if not tf.is_tensor(value) or not value.shape.rank:
        raise ValueError(
          f'{type(agent).__name__}.acting_outputs has {graph_checks.describe(value)}; '
          'expected tensors (n, ...) for n states: override it to leave others out.'
        )
    specs = tf.nest.map_structure(
      lambda tensor: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype),
      outputs,
    )
    seed = tf.TensorSpec((2,), tf.int64)

    def trace():
      function = tf.function(agent.choose_actions, autograph=False)
      return function.get_concrete_function(specs, seed)

    self._function = trace()
    graph = self._function.graph
    graph_checks.check_function(
      graph,
      name,
      'its seed',
      'compute actions from the outputs. The network may return more than q_values.',
      calls_python=True,
    )
    actions = self._function.structured_outputs
    if (
      not tf.is_tensor(actions)
      or not actions.dtype.is_integer
      or (actions.shape.rank is not None and actions.shape.as_list() != [None])
    ):
      raise ValueError(
        f'{name} returned {graph_checks.describe(actions)}; expected an integer tensor '
        'of shape (n,), an action for each of n states.'
      )
    before = agent.eval_mode, agent.training_steps
    agent.eval_mode, agent.training_steps = not before[0], before[1] + 10**9
    try:
      again = trace()
    finally:
      agent.eval_mode, agent.training_steps = before
    if graph_checks.operations(graph) != graph_checks.operations(again.graph):
      raise ValueError(
        f'{name} is traced once, but depends on eval_mode, training_steps or random '
        'numbers of Python: let actions depend on outputs and seed only.'
      )
    self.draws = bool(graph.inputs[len(tf.nest.flatten(specs))].consumers())
    self._check_policy(agent, trace)

  def _check_policy(self, agent, trace):
    """Refuses a policy of the agent that `choose_actions` does not use."""
    given = vars(agent).get('policy')
    if given is None or type(given).outputs is not Policy.outputs:
      return
    if graph_checks.is_ignored(agent, 'policy', trace):
      raise ValueError(
        f'{type(agent).__name__}.policy has no effect, since its choose_actions does not '
        'call super(): remove the setting.'
      )

  def __call__(self, outputs: Any, seeds: tf.Tensor) -> tf.Tensor:
    """Returns actions, int64 (n,).

    Args:
      outputs: Outputs of the network for n states.
      seeds: Seeds of the states, int64 (n, 2); unused if the choice does not draw.
    """
    if not self.draws:
      return tf.cast(self._function(outputs, tf.zeros(2, tf.int64)), tf.int64)

    def choose(row):
      one, seed = row
      one = tf.nest.map_structure(lambda tensor: tensor[None], one)
      return tf.cast(self._function(one, seed)[0], tf.int64)

    return tf.map_fn(choose, (outputs, seeds), fn_output_signature=tf.int64)
