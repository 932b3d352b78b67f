"""Checks of the graphs that a user's network, `loss` and `choose_actions` build."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.framework import op_def_registry

_RANDOM = re.compile(
  'Random|Multinomial|TruncatedNormal|Stateful(?!Part)|NonDeterministic|Rng|CandidateSampler'
)
_PYTHON = ('PyFunc', 'PyFuncStateless', 'EagerPyFunc')
_READS = (
  'ReadVariableOp',
  'ResourceGather',
  'ResourceGatherNd',
  'VariableShape',
)


def check_network(network: Any) -> None:
  """Checks that a network is a Keras model.

  Raises:
    ValueError: If it is not.
  """
  if not isinstance(network, tf.keras.layers.Layer):
    raise ValueError(
      f'The network {type(network).__name__} is not of a Keras class: derive it from '
      'tf.keras.Model.'
    )


def check_outputs(outputs: Any, num_actions: int, network: Any) -> None:
  """Checks that a network returns a value of each action.

  Args:
    outputs: Result of the network's `call`.
    num_actions: Number of actions.
    network: Network, or what is in its place.

  Raises:
    ValueError: If its result has no `q_values`, floats (n, num_actions).
  """
  name = type(network).__name__
  expected = f'a named tuple with q_values, float32 (n, {num_actions})'
  q_values = getattr(outputs, 'q_values', None)
  if q_values is None:
    found = 'a tensor' if tf.is_tensor(outputs) else type(outputs).__name__
  elif not tf.is_tensor(q_values):
    found = f'q_values of type {type(q_values).__name__}'
  elif q_values.dtype.is_floating and q_values.shape[1:] == [num_actions]:
    return
  else:
    found = f'q_values, {q_values.dtype.name} {_text(q_values.shape)}'
  raise ValueError(f'{name}.call returned {found}; expected {expected}.')


def check_losses(losses: Any, actions: tf.Tensor, agent: type) -> None:
  """Checks that a loss has one float32 for each transition.

  Args:
    losses: Result of the agent's `loss`.
    actions: Actions of the batch, (n,).
    agent: Class of the agent.

  Raises:
    ValueError: If it does not.
  """
  expected = f'float32 {_text(actions.shape)}, a loss for each transition'
  if not tf.is_tensor(losses):
    raise ValueError(
      f'{agent.__name__}.loss returned {losses!r}; expected a tensor, {expected}.'
    )
  if losses.dtype != tf.float32 or losses.shape.rank != 1:
    found = f'{losses.dtype.name} {_text(losses.shape)}'
  elif not losses.shape.is_compatible_with(actions.shape):
    found = f'float32 {_text(losses.shape)}'
  else:
    return
  raise ValueError(
    f'{agent.__name__}.loss returned {found}; expected {expected}.'
  )


def check_optimizer(optimizer: Any, agent: type) -> None:
  """Checks that an optimiser works as the update needs it.

  Args:
    optimizer: Optimiser of the agent.
    agent: Class of the agent.

  Raises:
    ValueError: If it is not one of `tf.compat.v1.train`, overrides `minimize`, or its
      learning rate is a tensor.
  """
  base = tf.compat.v1.train.Optimizer
  name = type(optimizer).__name__
  if not isinstance(optimizer, base):
    raise ValueError(
      f'The optimizer of {agent.__name__} is {name} of {type(optimizer).__module__}: '
      'take one of tf.compat.v1.train, e.g. @tf.train.AdamOptimizer().'
    )
  if type(optimizer).minimize is not base.minimize:
    raise ValueError(
      f'The optimizer {name} of {agent.__name__} overrides minimize, which is not '
      'called: override compute_gradients or apply_gradients.'
    )
  check_learning_rate(optimizer, agent)


def check_learning_rate(optimizer: Any, agent: type) -> None:
  """Checks that a learning rate can change, if it is meant to.

  Args:
    optimizer: Optimiser of the agent.
    agent: Class of the agent.

  Raises:
    ValueError: If it is a tensor, such as that of `tf.train.exponential_decay`.
  """
  names = ('_lr', '_learning_rate')
  if any(isinstance(getattr(optimizer, n, 0), tf.Tensor) for n in names):
    raise ValueError(
      f'The learning rate of {agent.__name__} is a tensor, which would stay as it is: '
      'take a number, or a function without arguments that reads the '
      "agent's training_steps."
    )


def check_gradients(
  pairs: Iterable[tuple[Any, Any]], networks: Mapping[str, Any], agent: type
) -> None:
  """Checks that the loss depends on the weights of a network.

  Args:
    pairs: Gradients and variables, as from an optimiser's `compute_gradients`.
    networks: Networks of the agent by name.
    agent: Class of the agent.

  Raises:
    ValueError: If no weight of them has a gradient.
  """
  weights = {
    weight.name
    for network in networks.values()
    for weight in network.trainable_weights
  }
  if all(gradient is None for gradient, v in pairs if v.name in weights):
    raise ValueError(
      f'{agent.__name__}.loss does not depend on the online network: compute it from '
      'self.online(batch.state), without tf.stop_gradient around all of it.'
    )


def are_same(left: tf.Graph, right: tf.Graph) -> bool:
  """Returns whether two graphs have the same operations and constants."""

  def describe(graph):
    definition = graph.as_graph_def()
    functions = definition.library.function
    nodes = [*definition.node, *(n for f in functions for n in f.node_def)]
    return [
      (
        node.op,
        node.attr['value'].SerializeToString() if node.op == 'Const' else b'',
      )
      for node in nodes
    ]

  return describe(left) == describe(right)


def check_reproducible(
  graph: tf.Graph, method: str, seed: str, calls_python: bool = False
) -> None:
  """Checks that a graph draws no random numbers but stateless ones.

  Args:
    graph: Graph of the method.
    method: Name of the method, for the message.
    seed: Name of its seed, for the message.
    calls_python: Whether the method may call Python functions.

  Raises:
    ValueError: If the graph draws others, or writes a summary, or calls Python
      although `calls_python` is False.
  """
  for op in _operations(graph):
    if not calls_python and op in _PYTHON:
      raise ValueError(
        f'{method} calls a Python function ({op}), which may depend on more than the '
        'batch: use TensorFlow operations, batch.step and batch.seed.'
      )
    if op.endswith('Summary'):
      raise ValueError(
        f'{method} writes a summary ({op}), which would be lost: use '
        'self.log_scalar(name, value).'
      )
    if _draws(op):
      raise ValueError(
        f'{method}, or a network that it calls, draws random numbers by the stateful '
        f'operation {op}, so a resumed run would differ: use tf.random.stateless_* '
        f'with {seed}.'
      )


def check_acting(outputs: Any, agent: type) -> None:
  """Checks that a network draws no random numbers when it acts.

  Args:
    outputs: Outputs of the network.
    agent: Class of the agent.

  Raises:
    ValueError: If it does.
  """
  if op := _random_operation(outputs):
    raise ValueError(
      f'The online network of {agent.__name__} draws random numbers by the stateful '
      f'operation {op} when it acts, so an evaluation could not be repeated: draw only '
      'if `call` is given a seed, and give it in `loss`.'
    )


def warn_if_random(results: Any, agent: type, verb: str) -> None:
  """Warns of results that cannot be repeated.

  Args:
    results: Tensors and operations.
    agent: Class of the agent.
    verb: Verb for what the agent does, for the warning.
  """
  if op := _random_operation(results):
    logging.warning(
      '%s draws random numbers by the stateful operation %s when it %s: results cannot '
      'be repeated, and a resumed run differs from an uninterrupted one.',
      agent.__name__,
      op,
      verb,
    )


def check_captures(graph: tf.Graph, method: str, remedy: str) -> None:
  """Checks that a graph takes weights and constants from outside, nothing else.

  Other tensors, e.g. of Dopamine's own batch, are computed once for many updates.

  Args:
    graph: Graph of the method.
    method: Name of the method, for the message.
    remedy: End of the message.

  Raises:
    ValueError: If it takes another tensor.
  """
  for tensor, _ in graph.captures:
    tensor = _outside(tensor)
    if tensor.dtype == tf.resource:
      continue
    for op in _ancestors(tensor):
      definition = op_def_registry.get(op.type)
      if op.type == 'Placeholder' or (definition and definition.is_stateful):
        raise ValueError(
          f'{method} uses the tensor {tensor.name} from outside of it: {remedy}'
        )


def written(graph: tf.Graph) -> set[str]:
  """Returns the names of the variables that a function's graph may write."""
  captured = {id(inside): outside for outside, inside in graph.captures}
  return {
    _outside(captured.get(id(tensor), tensor)).op.name
    for op in graph.get_operations()
    if op.type not in _READS
    for tensor in op.inputs
    if tensor.dtype == tf.resource
  }


def warn_of_constants(written_names: set[str]) -> None:
  """Warns of variables that training does not change.

  Args:
    written_names: Names of the variables that it writes.
  """
  names = [v.op.name for v in tf.compat.v1.global_variables()]
  if constant := [name for name in names if name not in written_names]:
    logging.warning(
      '%s never change: the loss does not depend on them, and _build_sync_op does not '
      'assign them.',
      ', '.join(constant),
    )


def _outside(tensor: tf.Tensor) -> tf.Tensor:
  """Returns a tensor as the outermost graph has it."""
  for outside, inside in getattr(tensor.graph, 'captures', ()):
    if inside is tensor:
      return _outside(outside)
  return tensor


def _ancestors(results: Any) -> Iterator[tf.Operation]:
  """Yields the operations on which tensors and operations depend, and their own."""
  left = [getattr(result, 'op', result) for result in tf.nest.flatten(results)]
  seen = set()
  while left:
    op = left.pop()
    if op not in seen:
      seen.add(op)
      yield op
      left += [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def _random_operation(results: Any) -> str | None:
  """Returns the type of a stateful random operation that results depend on, if any."""
  return next((op.type for op in _ancestors(results) if _draws(op.type)), None)


def _draws(op: str) -> bool:
  """Returns whether operations of a type draw stateful random numbers."""
  definition = op_def_registry.get(op)
  return bool(definition and definition.is_stateful and _RANDOM.search(op))


def _operations(graph: tf.Graph) -> Iterator[str]:
  """Yields the types of the graph's operations, those of its functions included."""
  definition = graph.as_graph_def()
  for node in definition.node:
    yield node.op
  for function in definition.library.function:
    for node in function.node_def:
      yield node.op


def _text(shape: tf.TensorShape) -> str:
  return (
    'of unknown shape' if shape.rank is None else str(tuple(shape.as_list()))
  )
