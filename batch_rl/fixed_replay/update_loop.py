"""Several updates of an agent in one `session.run`.

An agent builds the operations of one update. `UpdateLoop` copies them unchanged into
the body of a loop in the graph, and replaces the batch by the next batch. It therefore
works with most agents, and results are bitwise identical.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# TensorFlow 1 control flow and placeholders cannot be copied into the body of a loop.
_UNSUITABLE = frozenset({
  'Enter', 'Exit', 'LoopCond', 'Merge', 'NextIteration', 'Placeholder', 'Switch'
})  # fmt: skip


class UpdateLoop:
  """Loop of updates that synchronises the target network at its exact steps.

  Args:
    train: Fetches of a `session.run` that does one update.
    loss: Loss of the update, float32 ().
    sync: Fetches of a `session.run` that synchronises the target network.
    batch: Tensors of the batch that the update depends on; empty if the update
      draws its own batch.
    transition: Tensors of the batch as the agent uses it. Python calls that compute
      them are repeated in the loop. Others are refused, since they may depend on
      state outside the graph.
    next_batch: Function that returns tensors of the next batch. It is fetched, and
      sent to the update's device, while the previous update computes.
    ready: Operations to run before `next_batch`.
    step: Tensor of the agent step in the update, int64 (); None if it has none.
    update_period: Number of agent steps from one update to the next.
    target_update_period: Number of agent steps from one synchronisation to the
      next.
    jit_compile: Whether XLA compiles the update.
    timed: Whether to measure the time that updates wait for batches.

  Raises:
    ValueError: If the update cannot be repeated in the graph.
  """

  def __init__(
    self,
    train: Any,
    loss: tf.Tensor,
    sync: Any,
    batch: Sequence[tf.Tensor],
    transition: Iterable[tf.Tensor],
    next_batch: Callable[[], Sequence[tf.Tensor]],
    ready: Sequence[tf.Operation],
    step: tf.Tensor | None,
    update_period: int,
    target_update_period: int,
    jit_compile: bool = False,
    timed: bool = True,
  ):
    steps = [] if step is None else [step]
    self._update = _Copy([*tf.nest.flatten(train), loss], [*batch, *steps])
    self._sync = _Copy(tf.nest.flatten(sync), [])
    calls = _python_calls(self._update.operations)
    sampling, _ = _ancestors(transition, set())
    if jit_compile and calls or calls - _python_calls(sampling):
      raise ValueError('it calls Python')
    self._next_batch = next_batch
    self._device = loss.device
    self._has_step = step is not None
    self._now = tf.timestamp if timed else lambda: tf.zeros((), tf.float64)
    self._update_period = update_period
    self._target_update_period = target_update_period
    self._apply = tf.function(
      self._update_once, autograph=False, jit_compile=jit_compile or None
    )
    self._first_step = tf.compat.v1.placeholder(tf.int64, ())
    self._count = tf.compat.v1.placeholder(tf.int32, ())
    with tf.control_dependencies(ready):
      self._results = tf.function(self._updates, autograph=False)(
        self._first_step, self._count
      )

  def run(
    self, session: tf.compat.v1.Session, first_step: int, count: int
  ) -> tuple[np.ndarray, float]:
    """Runs updates, and stops after the first loss that is not finite.

    Args:
      session: Session of the agent.
      first_step: Agent step of the first update.
      count: Number of updates, at least 1.

    Returns:
      The loss of each update, float32 (at most count,), and the time in seconds
      that the updates waited for batches.
    """
    losses, done, waited = session.run(
      self._results,
      {self._first_step: first_step, self._count: count},
    )
    return losses[:done], float(waited)

  def _updates(self, first_step: tf.Tensor, count: tf.Tensor) -> Any:
    start = self._now()
    with tf.control_dependencies([start]):
      batch = self._take_batch()
    with tf.control_dependencies(batch):
      end = self._now()
    losses = tf.TensorArray(tf.float32, count)
    initial = tf.constant(0), losses, tf.constant(True), end - start, batch

    def body(i, losses, _, waited, batch):
      step = first_step + tf.cast(i, tf.int64) * self._update_period
      loss = self._apply(batch, step)
      # Fetched during the update. After the last update the next batch is left to the
      # next run.
      following = []
      if batch:
        with tf.device(self._device):
          following = tf.cond(i + 1 < count, self._take_batch, lambda: batch)
      with tf.control_dependencies([loss]):
        synchronised = tf.cond(
          self._is_due(step), self._synchronise, lambda: tf.constant(False)
        )
      with tf.control_dependencies([synchronised]):
        losses = losses.write(i, loss)
        start = self._now()
      with tf.control_dependencies([start, *following]):
        waited += self._now() - start
      return i + 1, losses, tf.math.is_finite(loss), waited, following

    done, losses, _, waited, _ = tf.while_loop(
      lambda i, _, is_finite, *others: is_finite & (i < count),
      body,
      initial,
      parallel_iterations=1,
    )
    return losses.stack(), done, waited

  def _take_batch(self):
    batch = self._next_batch()
    # Otherwise the batch stays on its own device, and the update waits for a copy.
    with tf.device(self._device):
      return [tf.identity(tensor) for tensor in batch]

  def _update_once(self, batch, step):
    steps = [step] if self._has_step else []
    *train, loss = self._update([*batch, *steps])
    with tf.control_dependencies(_operations(train)):
      return tf.identity(loss)

  def _is_due(self, step):
    """Whether to synchronise the target network before the next update."""
    last = step + self._update_period - 1
    return last - last % self._target_update_period >= step

  def _synchronise(self):
    with tf.control_dependencies(_operations(self._sync([]))):
      return tf.constant(True)


class _Copy:
  """Part of the current graph that can be copied into functions.

  Args:
    targets: Operations, tensors or variables to compute.
    inputs: Tensors to replace in the copies.

  Attributes:
    operations: Operations to copy.

  Raises:
    ValueError: If an operation cannot be copied.
  """

  def __init__(self, targets: Iterable[Any], inputs: Sequence[tf.Tensor]):
    graph = tf.compat.v1.get_default_graph()
    elements = [graph.as_graph_element(target) for target in targets]
    replaced = {tensor.name for tensor in inputs}
    self.operations, self._variables = _ancestors(elements, replaced)
    used = {tensor.name for op in self.operations for tensor in op.inputs}
    self._inputs = [t.name if t.name in used else None for t in inputs]
    self._names = [element.name for element in elements]
    if wrong := {op.type for op in self.operations} & _UNSUITABLE:
      raise ValueError(f'it has operations of type {min(wrong)}')
    if any(t.dtype._is_ref_dtype for op in self.operations for t in op.outputs):
      raise ValueError('it has variables that are not resource variables')
    graph_def = graph.as_graph_def()
    self._graph_def = tf.compat.v1.GraphDef(
      versions=graph_def.versions, library=graph_def.library
    )
    names = {op.name for op in self.operations}
    for node in graph_def.node:
      if node.name in names:
        copy = self._graph_def.node.add()
        copy.CopyFrom(node)
        # Colocation may name an operation that is not copied; devices are explicit.
        copy.attr.pop('_class', None)

  def __call__(self, values: Sequence[tf.Tensor]) -> list[Any]:
    """Copies the operations into the current function.

    Args:
      values: Replacements of the inputs, in order.

    Returns:
      The copies of the targets.
    """
    function = tf.compat.v1.get_default_graph()
    replacements = {
      name: value
      for name, value in zip(self._inputs, values, strict=True)
      if name is not None
    }
    replacements |= {tensor.name: tensor for tensor in self._variables}
    return tf.import_graph_def(
      self._graph_def,
      {name: function.capture(value) for name, value in replacements.items()},
      self._names,
      name='copy',
    )


def _ancestors(
  elements: Iterable[tf.Operation | tf.Tensor], replaced: set[str]
) -> tuple[list[tf.Operation], list[tf.Tensor]]:
  """Returns operations that compute the elements, and variables that they use."""
  pending = _operations(elements)
  visited: dict[str, tf.Operation] = {}
  variables: dict[str, tf.Tensor] = {}
  while pending:
    op = pending.pop()
    if op.name in visited:
      continue
    if op.type == 'VarHandleOp':
      variables[op.name] = op.outputs[0]
      continue
    visited[op.name] = op
    pending += [t.op for t in op.inputs if t.name not in replaced]
    pending += op.control_inputs
  return list(visited.values()), list(variables.values())


def _python_calls(operations: Iterable[tf.Operation]) -> set[str]:
  return {op.name for op in operations if op.type in ('PyFunc', 'EagerPyFunc')}


def _operations(
  elements: Iterable[tf.Operation | tf.Tensor],
) -> list[tf.Operation]:
  return [e if isinstance(e, tf.Operation) else e.op for e in elements]
