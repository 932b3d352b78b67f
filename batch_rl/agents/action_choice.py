"""An agent's `choose_actions` as operations of a graph."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from batch_rl.agents import graph_checks


class ActionChoice:
  """Actions for any number of states.

  The action in a state does not depend on the other states: a policy that draws random
  numbers draws them for each state, by a seed of its own.

  Args:
    choose_actions: Method of an agent, see `LossAgent.choose_actions`.
    outputs: Outputs of the agent's network, for any number of states.
    name: Name of the method, for messages.

  Attributes:
    draws: Whether the choice depends on the seed.

  Raises:
    ValueError: If the method returns something else than an integer for each state,
      draws stateful random numbers, or uses other tensors than the outputs.
  """

  def __init__(
    self, choose_actions: Callable[..., tf.Tensor], outputs: Any, name: str
  ):
    specs = tf.nest.map_structure(
      lambda tensor: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype),
      outputs,
    )
    function = tf.function(choose_actions, autograph=False)
    self._function = function.get_concrete_function(
      specs, tf.TensorSpec((2,), tf.int64)
    )
    graph = self._function.graph
    graph_checks.check_reproducible(graph, name, 'its seed', calls_python=True)
    graph_checks.check_captures(
      graph,
      name,
      'compute actions from the outputs. The network may return more than q_values.',
    )
    actions = self._function.structured_outputs
    if (
      not tf.is_tensor(actions)
      or not actions.dtype.is_integer
      or (actions.shape.rank is not None and actions.shape.as_list() != [None])
    ):
      raise ValueError(
        f'{name} returned {actions}; expected an integer tensor of shape (n,), an '
        'action for each of n states.'
      )
    seed = graph.inputs[len(tf.nest.flatten(specs))]
    self.draws = bool(seed.consumers())

  def __call__(self, outputs: Any, seeds: tf.Tensor) -> tf.Tensor:
    """Returns actions, int64 (n,).

    Args:
      outputs: Outputs of the network for n states.
      seeds: Seeds of the states, int64 (n, 2); unused if the choice does not draw.
    """
    if not self.draws:
      actions = self._function(outputs, tf.zeros(2, tf.int64))
      return tf.cast(actions, tf.int64)

    def choose(row):
      one, seed = row
      one = tf.nest.map_structure(lambda tensor: tensor[None], one)
      return tf.cast(self._function(one, seed)[0], tf.int64)

    return tf.map_fn(choose, (outputs, seeds), fn_output_signature=tf.int64)
