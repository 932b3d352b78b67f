"""Checks of the graphs that a user's network, `loss` and `choose_actions` build."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

_RANDOM = re.compile(
  'Random|Multinomial|TruncatedNormal|Stateful(?!Part)|NonDeterministic|Rng|CandidateSampler'
)

# Operations that call a Python function.
PYTHON = 'PyFunc', 'PyFuncStateless', 'EagerPyFunc'


class NetworkError(ValueError):
  """A user's network is not as its agent needs it."""

  # AutoGraph, which converts `call`, would add lines about its own code.
  ag_pass_through = True


@tf.autograph.experimental.do_not_convert
def check_outputs(
  network: Any, outputs: Any, expected: Mapping[str, tuple[int, ...]]
) -> None:
  """Checks that a network returns what its agent reads.

  Args:
    network: Network of the agent.
    outputs: Result of its `call`.
    expected: Shape of each field, without the axis of the states.

  Raises:
    NetworkError: If the network is not a Keras model; or a field is missing, is not
      float32, or has another shape.
  """
  name = type(network).__name__
  if not isinstance(network, tf.keras.layers.Layer):
    raise NetworkError(
      f'The network {name} is not of a Keras class: derive it from tf.keras.Model.'
    )
  for field, shape in expected.items():
    value = field_of(outputs, field)
    is_float = tf.is_tensor(value) and value.dtype == tf.float32
    if is_float and value.shape[1:] == shape:
      continue
    got = describe(outputs) if value is None else f'{field}, {describe(value)}'
    sizes = ', '.join(map(str, ('n', *shape)))
    raise NetworkError(
      f'{name}.call returned {got}; expected a named tuple with {field}, float32 '
      f'({sizes}).'
    )


def check_tracked(copy: tf.keras.Model, before: Iterable[tf.Variable]) -> None:
  """Checks that Keras finds all weights that the first call of a target copy has made.

  Args:
    copy: The target copy.
    before: Trainable variables before the call.

  Raises:
    NetworkError: If it does not find one, which would never be synchronised.
  """
  found = {weight.name for weight in (*before, *copy.weights)}
  for weight in tf.compat.v1.trainable_variables():
    if weight.name not in found:
      raise NetworkError(
        f'Keras does not find the weights {weight.name} of {type(copy).__name__}, so '
        'they would never be synchronised with the online network: make each layer '
        'an attribute of a Keras model or layer.'
      )


def field_of(outputs: Any, name: str) -> Any:
  """Returns an output of a network by its name, or that of 2020; None without it."""
  old = 'logits' if name == 'quantile_values' else name
  return getattr(outputs, name, getattr(outputs, old, None))


def describe(value: Any) -> str:
  """Returns the dtype and shape of a tensor, or the type of another value."""
  if tf.is_tensor(value):
    return f'{value.dtype.name} {value.shape}'
  return type(value).__name__


def check_losses(losses: Any, actions: tf.Tensor, method: str) -> None:
  """Checks that a loss, or a term of it, has one float32 for each transition.

  Args:
    losses: Result of the method.
    actions: Actions of the batch, (n,).
    method: Name of the method, for the message.

  Raises:
    ValueError: If it does not.
  """
  if (
    not tf.is_tensor(losses)
    or losses.dtype != tf.float32
    or losses.shape.rank != 1
    or not losses.shape.is_compatible_with(actions.shape)
  ):
    raise ValueError(
      f'{method} returned {describe(losses)}; expected a tensor, float32 '
      f'{actions.shape}, a loss for each transition.'
    )


def check_optimizer(optimizer: Any, agent: type) -> None:
  """Checks that an optimiser works as the update needs it.

  Args:
    optimizer: Optimiser of the agent.
    agent: Class of the agent.

  Raises:
    ValueError: If it is not one of `tf.compat.v1.train`, or overrides `minimize`; or
      its learning rate is a tensor, e.g. the result of `tf.train.exponential_decay`, or
      a schedule of Keras.
  """
  if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
    kind = type(optimizer)
    raise ValueError(
      f'The optimiser of {agent.__name__} is {kind.__name__} of {kind.__module__}: '
      'take one of tf.compat.v1.train, e.g. @tf.train.AdamOptimizer().'
    )
  if type(optimizer).minimize is not tf.compat.v1.train.Optimizer.minimize:
    raise ValueError(
      f'The optimiser {type(optimizer).__name__} of {agent.__name__} overrides '
      'minimize, which is not called: override compute_gradients or apply_gradients.'
    )
  rates = [vars(optimizer).get(key) for key in ('_lr', '_learning_rate')]
  schedule = tf.keras.optimizers.schedules.LearningRateSchedule
  for kind, reason in (
    (tf.Tensor, 'a tensor, which would stay as it is'),
    (schedule, 'a schedule of Keras, which is not given the step'),
  ):
    if any(isinstance(rate, kind) for rate in rates):
      raise ValueError(
        f'The learning rate of {agent.__name__} is {reason}: take a number, or a '
        "function without arguments that reads the agent's training_steps."
      )


def is_ignored(agent: Any, part: str, trace: Callable[[], Any]) -> bool:
  """Returns whether a function of an agent can be traced without a part of the agent.

  Args:
    agent: The agent.
    part: Name of its attribute, None meanwhile.
    trace: Function that traces.
  """
  before = getattr(agent, part)
  vars(agent)[part] = None
  try:
    trace()
  except (TypeError, AttributeError):
    return False
  finally:
    vars(agent)[part] = before
  return True


def check_gradients(
  pairs: Iterable[tuple[Any, Any]], networks: Mapping[str, Any], agent: type
) -> None:
  """Checks that the loss depends on weights, and warns of networks without any.

  Args:
    pairs: Gradients and variables, as from an optimiser's `compute_gradients`.
    networks: Networks of the agent by name, without target copies.
    agent: Class of the agent.

  Raises:
    ValueError: If no weight has a gradient.
  """
  trained = {weight.name for gradient, weight in pairs if gradient is not None}
  if not trained:
    raise ValueError(
      f'{agent.__name__}.loss does not depend on any trained weight: compute it from '
      'self.online(batch.state), without tf.stop_gradient around all of it.'
    )
  for name, network in networks.items():
    weights = {w.name for w in getattr(network, 'trainable_weights', ())}
    if weights and weights.isdisjoint(trained):
      logging.warning(
        '%s.loss does not depend on the network %r, which stays as it is.',
        agent.__name__,
        name,
      )


def assigns(graph: tf.Graph) -> bool:
  """Returns whether a graph, or a function in it, changes a variable."""
  changes = 'Assign', 'ResourceScatter', 'ScatterUpdate', 'ScatterAdd'
  return any(node.op.startswith(changes) for node in _nodes(graph))


def check_function(
  graph: tf.Graph,
  method: str,
  seed: str,
  remedy: str,
  calls_python: bool = False,
) -> None:
  """Checks that a method depends on its arguments, weights and constants only.

  It draws random numbers by stateless operations only. Other tensors, e.g. of Dopamine's
  own batch, are computed once for many updates.

  Args:
    graph: Graph of the method.
    method: Name of the method, for the message.
    seed: Name of its seed, for the message.
    remedy: End of the message about another tensor.
    calls_python: Whether the method may call Python functions.

  Raises:
    ValueError: If it depends on more, or writes a summary, or calls Python although
      `calls_python` is False.
  """
  for op in dict.fromkeys(node.op for node in _nodes(graph)):
    if not calls_python and op in PYTHON:
      raise ValueError(
        f'{method} calls a Python function ({op}), which may depend on more than the '
        'batch: use TensorFlow operations, batch.step and batch.seed.'
      )
    if op.endswith('Summary'):
      raise ValueError(
        f'{method} writes a summary ({op}), which would be lost: use '
        'self.log_scalar(name, value).'
      )
    if _RANDOM.search(op) and graph.op_def_for_type(op).is_stateful:
      raise ValueError(
        f'{method}, or its network, draws random numbers by the stateful operation '
        f'{op}, so a resumed run would differ: use tf.random.stateless_* with {seed}.'
      )
  for tensor, _ in graph.captures:
    tensor = _outside(tensor)
    if tensor.dtype != tf.resource and any(
      op.type == 'Placeholder' or op.op_def.is_stateful
      for op in _ancestors(tensor)
    ):
      raise ValueError(
        f'{method} uses the tensor {tensor.name} from outside of it: {remedy}'
      )


def stateful_draw(tensors: Any) -> str | None:
  """Returns the type of a stateful random operation on which tensors depend, if any.

  Args:
    tensors: Tensors, maybe nested.
  """
  for op in (op for t in tf.nest.flatten(tensors) for op in _ancestors(t)):
    if _RANDOM.search(op.type) and op.op_def.is_stateful:
      return op.type
  return None


def operations(graph: tf.Graph) -> list[tuple[str, Any]]:
  """Returns the operations of a graph and their constants, for a comparison."""
  return [(node.op, node.attr['value']) for node in _nodes(graph)]


def _outside(tensor: tf.Tensor) -> tf.Tensor:
  """Returns a tensor as the outermost graph has it."""
  for outside, inside in getattr(tensor.graph, 'captures', ()):
    if inside is tensor:
      return _outside(outside)
  return tensor


def _ancestors(tensor: tf.Tensor) -> Iterator[tf.Operation]:
  """Yields the operations on which a tensor depends, and its own."""
  left = [tensor.op]
  seen = set()
  while left:
    op = left.pop()
    if op not in seen:
      seen.add(op)
      yield op
      left += [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def _nodes(graph: tf.Graph) -> list[Any]:
  """Returns the operations of a graph and of its functions, as `NodeDef`s."""
  definition = graph.as_graph_def()
  functions = definition.library.function
  return [*definition.node, *(n for f in functions for n in f.node_def)]
