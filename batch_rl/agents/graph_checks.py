"""Checks of the graphs that a user's `loss` and `choose_actions` build."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

_RANDOM = re.compile(
  'Random|Multinomial|TruncatedNormal|Stateful(?!Part)|NonDeterministic|Rng|CandidateSampler'
)
_PYTHON = ('PyFunc', 'PyFuncStateless', 'EagerPyFunc')


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


def check_gradients(
  pairs: Iterable[tuple[Any, Any]], network: Any, agent: type
) -> None:
  """Checks that the loss depends on the online network.

  Args:
    pairs: Gradients and variables, as of an optimiser's `compute_gradients`.
    network: Online network.
    agent: Class of the agent.

  Raises:
    ValueError: If no weight of the network has a gradient.
  """
  weights = {id(weight) for weight in network.trainable_weights}
  if all(gradient is None for gradient, v in pairs if id(v) in weights):
    raise ValueError(
      f'{agent.__name__}.loss does not depend on the online network: compute it from '
      'self.online(batch.state), without tf.stop_gradient around all of it.'
    )


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
    ValueError: If it does, or calls Python without being allowed to.
  """
  for op in _operations(graph):
    if not calls_python and op in _PYTHON:
      raise ValueError(
        f'{method} calls a Python function ({op}), which may depend on more than the '
        'batch: use TensorFlow operations, batch.step and batch.seed.'
      )
    definition = op_def_registry.get(op)
    if definition and definition.is_stateful and _RANDOM.search(op):
      raise ValueError(
        f'{method}, or a network that it calls, draws random numbers by the stateful '
        f'operation {op}, so a resumed run would differ: use tf.random.stateless_* '
        f'with {seed}.'
      )


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
