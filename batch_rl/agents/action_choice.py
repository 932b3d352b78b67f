"""An agent's `choose_actions` as operations of a graph."""

from typing import Any

import tensorflow as tf

from batch_rl.agents import graph_checks


class ActionChoice:
  """Actions for any number of states.

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
    specs = tf.nest.map_structure(
      lambda tensor: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype),
      outputs,
    )

    def trace():
      function = tf.function(agent.choose_actions, autograph=False)
      return function.get_concrete_function(
        specs, tf.TensorSpec((2,), tf.int64)
      )

    self._function = trace()
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
    before = agent.eval_mode, agent.training_steps
    agent.eval_mode, agent.training_steps = not before[0], before[1] + 10**9
    try:
      again = trace()
    finally:
      agent.eval_mode, agent.training_steps = before
    if not graph_checks.are_same(graph, again.graph):
      raise ValueError(
        f'{name} is traced once, but depends on eval_mode, training_steps or random '
        'numbers of Python: let actions depend on outputs and seed only.'
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
