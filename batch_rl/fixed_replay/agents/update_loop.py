"""Several updates of an agent in one `session.run`."""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from batch_rl import dopamine_compat
from batch_rl.fixed_replay.replay_memory import device_frames

_HOST = '/cpu:0'
_LOOP_OPERATIONS = (
  'Enter', 'Merge', 'Switch', 'Identity', 'NextIteration', 'Exit'
)  # fmt: skip


class UpdateLoop:
  """Loop of updates that synchronises the target network at its exact steps.

  The loop's control does not depend on results of the updates, so the host can send
  an accelerator the next updates while it computes.

  Args:
    agent: Agent that is trained, on the current device. It decides the periods, and
      whether XLA compiles the update. Its `training_steps` is the step of `one_update`.
    update: Function `(batch, step) -> scalars` that builds an update in the current
      graph, from the tensors of a batch and the agent step, int64 (); it returns
      the scalars to keep, float32 (k,). It is traced once.
    synchronise: Function of the agent step, int64 (), that builds the operations that
      synchronise the target network in the current graph.
    next_batch: Function that builds the tensors of the next batch. They are fetched,
      and sent to the device, while the previous update computes.
    ready: Operations to run before `next_batch`.

  Attributes:
    one_update: Operation that does the update of the current agent step. As Dopamine's
      `_train_op`, it leaves the target network to `_sync_qt_ops`.
  """

  def __init__(
    self,
    agent: Any,
    update: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor],
    synchronise: Callable[[tf.Tensor], Any],
    next_batch: Callable[[], Sequence[tf.Tensor]],
    ready: Sequence[tf.Operation],
  ):
    self._synchronise = tf.function(synchronise, autograph=False)
    self._next_batch = next_batch
    self._device = tf.zeros(()).device
    self._is_on_host = device_frames.is_host(self._device)
    self._update_period = agent.update_period
    self._target_update_period = agent.target_update_period
    # Clocks are not deterministic.
    timed = not dopamine_compat.is_deterministic()
    self._now = tf.timestamp if timed else lambda: tf.zeros((), tf.float64)
    if agent._jit_compile:
      update = tf.function(update, autograph=False, jit_compile=True)
    # XLA functions do not capture variables inside a loop, so a plain one wraps them.
    self._update = tf.function(update, autograph=False)
    # Weak: otherwise the graph would keep the agent and its data in memory.
    weak = weakref.proxy(agent)

    def current_step():  # with a dimension; see `LossAgent._replay_batch`
      return np.array([weak.training_steps])

    placeholder = tf.compat.v1.placeholder_with_default
    with tf.device('/cpu:*'):  # Python functions run on the CPU
      step = tf.numpy_function(current_step, [], tf.int64)
      self._synchronises = placeholder(np.int64(0), ())  # 1 in `run`
    self._first_step = placeholder(tf.reshape(step, ()), ())
    self._end = placeholder(self._first_step + 1, ())
    with tf.compat.v1.device(_with_input), tf.control_dependencies(ready):
      self._results = self._updates(self._first_step, self._end)
      self.one_update = tf.group(*self._results)

  def run(
    self, session: tf.compat.v1.Session, first_step: int, count: int
  ) -> tuple[np.ndarray, float]:
    """Trains for agent steps.

    Args:
      session: Session of the agent.
      first_step: First agent step, which has an update.
      count: Number of agent steps, at least 1.

    Returns:
      The scalars of each update, float32 (updates, k), and the time in seconds that
      the updates waited for batches, or for frames to be loaded on the device. If the
      device is an accelerator, that is an upper bound: the time without a batch ready,
      whether or not it was busy.
    """
    feed = {
      self._first_step: first_step,
      self._end: first_step + count,
      self._synchronises: 1,
    }
    scalars, waited = session.run(self._results, feed)
    return scalars, float(waited)

  def _updates(self, first_step: tf.Tensor, end: tf.Tensor) -> Any:
    count = (end - first_step + self._update_period - 1) // self._update_period
    count = tf.cast(count, tf.int32)
    with tf.control_dependencies(None):
      start = self._now()  # before the data is ready
    with tf.control_dependencies([start]):
      arrays = self._next_batch()
    with tf.control_dependencies(arrays):  # Batches are fetched in order.
      initial = tf.constant(0), self._now() - start, self._send(arrays)
    with tf.device(self._device):
      scalars = tf.TensorArray(tf.float32, count)

    def body(i, waited, batch, scalars):
      step = first_step + tf.cast(i, tf.int64) * self._update_period
      # The update follows the synchronisation of the previous iteration.
      with tf.device(self._device), tf.control_dependencies([scalars.flow]):
        result = self._update(batch, step)
      # Fetched during the update. After the last update the next batch is left to the
      # next run.
      arrays = tf.cond(
        i + 1 < count,
        self._next_batch,
        lambda: [tf.zeros(t.shape, t.dtype) for t in batch],
      )
      with tf.control_dependencies([result] if self._is_on_host else [i]):
        start = self._now()
      with tf.control_dependencies([start, *arrays]):
        following = i + 1, waited + self._now() - start, self._send(arrays)
      last = tf.minimum(step + self._update_period, end) - 1
      period = self._target_update_period
      # Synchronisations from this update to the next, or to the end.
      due = (last // period - (step - 1) // period) * self._synchronises
      for number in range(-(-self._update_period // period)):
        result = tf.cond(
          due > number,
          functools.partial(self._synchronise_after, result, step),
          functools.partial(tf.identity, result),
        )
      with tf.device(self._device):
        scalars = scalars.write(i, result)
      return *following, scalars

    _, waited, _, scalars = tf.compat.v1.while_loop(
      lambda i, *_: i < count, body, (*initial, scalars), parallel_iterations=1
    )
    with tf.device(self._device):
      return scalars.stack(), waited

  def _send(self, arrays):
    """Sends a batch to the device; otherwise the update would wait for a copy."""
    with tf.device(self._device):
      return [tf.identity(array) for array in arrays]

  def _synchronise_after(self, result, step):
    with (
      tf.device(self._device),
      tf.control_dependencies([tf.identity(result)]),
      tf.control_dependencies([self._synchronise(step)]),
    ):
      return tf.identity(result)


def _with_input(op: tf.Operation) -> str:
  """Returns the device of an operation: a loop variable's own, otherwise the host."""
  if not op.device and op.type in _LOOP_OPERATIONS:
    return op.inputs[0].device
  return op.device or _HOST
