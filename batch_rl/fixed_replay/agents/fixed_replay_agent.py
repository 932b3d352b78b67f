"""What makes a Dopamine agent an offline agent."""

import collections
import contextlib
import functools
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.tf.agents.dqn import dqn_agent
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.fixed_replay import mixed_precision, update_loop
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.runs import checkpoints
from batch_rl.utils import files, seeding


class FixedReplayAgentMixin:
  """Put before a Dopamine agent, it makes the agent's data a fixed replay.

  The agent trains by `train_steps`, or by Dopamine's `begin_episode` and `step`,
  and adds nothing to its replay memory. `min_replay_history` does not apply: the
  history is all there is.

  Args:
    sess: `tf.compat.v1.Session`, or None for the agent to make its own.
    num_actions: number of actions.
    replay_data_dir: the directory of the shards (`<run>/replay_logs`); None for an
      agent that only acts.
    replay_suffix: the one shard to use; None for all.
    init_checkpoint_dir: a run's `base_dir`, or a folder of TensorFlow checkpoints,
      whose newest weights this agent starts from.
    updates_per_run: updates in a `session.run`, at most; the results are the
      same. 1 for a `session.run` each, as in Dopamine.
    jit_compile: whether XLA compiles the update. Results differ in the last
      digits, and REM's mixtures are others.
    mixed_precision: whether networks compute in bfloat16 (see `mixed_precision`).
      Results differ; checkpoints are the same.
    **kwargs: as the agent's.

  Attributes:
    seconds_waited: seconds that updates have waited for data, as far as it is
      known: not of those with a `session.run` each, nor with `deterministic_ops`.

  Raises:
    ValueError: if the data has more actions than the environment, or the
      checkpoint is not of these networks.
  """

  def __init__(
    self,
    sess,
    num_actions,
    replay_data_dir,
    replay_suffix=None,
    init_checkpoint_dir=None,
    updates_per_run=50,
    jit_compile=False,
    mixed_precision=False,
    **kwargs,
  ):
    if updates_per_run != int(updates_per_run) or updates_per_run < 1:
      raise ValueError(
        f'updates_per_run={updates_per_run} is not a number from 1 on.'
      )
    self._replay_data_dir = replay_data_dir
    self._replay_suffix = replay_suffix
    self._updates_per_run = int(updates_per_run)
    self._jit_compile = jit_compile
    self._mixed_precision = mixed_precision
    self.seconds_waited = 0.0
    super().__init__(sess, num_actions, **{**kwargs, 'min_replay_history': 0})
    if jit_compile:
      _ = self._loop  # or say now why it cannot be
    self._build_acting()
    with self._sess.graph.as_default():
      weights = tf.compat.v1.trainable_variables()
      self._weights_are_finite = tf.reduce_all(
        [tf.reduce_all(tf.math.is_finite(weight)) for weight in weights]
      )
    if init_checkpoint_dir is not None:
      self._load_weights(init_checkpoint_dir)

  def train_steps(self, count: int) -> Iterator[float]:
    """Trains; an update every `update_period` steps, as if acting.

    Up to `updates_per_run` updates are done before the loss of the first of them
    is yielded.

    Args:
      count: agent steps.

    Yields:
      The loss of each update, float.

    Raises:
      FloatingPointError: if the loss is not a number.
      batch_rl.dataset.packer.DataError: if the data turns out damaged.
    """
    end = self.training_steps + count
    while self.training_steps < end:
      updates = self._updates_at_once(end - self.training_steps)
      if updates:
        yield from self._run_loop(updates)
      elif (loss := self._train_step()) is not None:
        yield loss

  def _updates_at_once(self, steps):
    """How many updates the loop can do next; none of them writes a summary."""
    if self._loop is None or self.training_steps % self.update_period:
      return 0
    most = min(self._updates_per_run, steps // self.update_period)
    if self.summary_writer is None:
      return most
    for count in range(most):
      if self._is_summary_due(self.training_steps + count * self.update_period):
        return count
    return most

  def _is_summary_due(self, step):
    return (
      self.summary_writer is not None
      and step > 0
      and step % self.summary_writing_frequency == 0
    )

  def _run_loop(self, count):
    first = self.training_steps
    with self._explained():
      losses, waited = self._loop.run(self._sess, first, count)
    self.training_steps += len(losses) * self.update_period
    self.seconds_waited += waited
    for i, loss in enumerate(losses.tolist()):
      self._check_loss(loss, first + i * self.update_period)
      yield loss

  def _train_step(self):
    """One agent step's worth of training; returns the loss of an update."""
    loss = None
    if self.training_steps % self.update_period == 0:
      fetches = [self._loss, self._train_op]
      if self._is_summary_due(self.training_steps):
        fetches.append(self._merged_summaries)
      with self._explained():
        loss, _, *summary = self._sess.run(fetches)
      loss = float(loss)
      self._check_loss(loss, self.training_steps)
      if summary:
        self.summary_writer.add_summary(summary[0], self.training_steps)
    if self.training_steps % self.target_update_period == 0:
      self._sess.run(self._sync_qt_ops)
    self.training_steps += 1
    return loss

  @contextlib.contextmanager
  def _explained(self):
    """Says in a line what TensorFlow's report hides.

    Raises:
      batch_rl.dataset.packer.DataError: if it is the data's fault.
      MemoryError: if the device has too little of it.
    """
    try:
      yield
    except tf.errors.OpError as error:
      self._replay.memory.raise_error()
      if isinstance(error, tf.errors.ResourceExhaustedError):
        network = getattr(self.network, '__name__', self.network)
        raise MemoryError(
          f'Out of memory in an update of {network} with batches of '
          f'{self._replay.transition["action"].shape[0]}: make '
          'WrappedFixedReplayBuffer.batch_size or the network smaller, or leave '
          f'more memory. TensorFlow: {files.reason(error)}'
        ) from error
      raise

  def _check_loss(self, loss, step):
    if not np.isfinite(loss):
      raise FloatingPointError(
        f'The loss is {loss} at update {step // self.update_period}: training has '
        'diverged. The checkpoints before it are kept.'
      )

  @functools.cached_property
  def _loop(self):
    """A loop of updates; None if each is to have, or needs, its own run."""
    if self._updates_per_run == 1 and not self._jit_compile:
      return None
    try:
      with self._sess.graph.as_default():
        return self._make_loop()
    except (ValueError, TypeError) as error:
      if self._jit_compile:
        raise ValueError(
          f'{type(self).__name__} cannot have jit_compile: {error}.'
        ) from error
      logging.warning(
        '%s cannot have several updates in a session.run: %s.',
        type(self).__name__,
        error,
      )
      return None

  def _make_loop(self):
    replay = self._replay
    if type(self)._train_step is not FixedReplayAgentMixin._train_step:
      raise ValueError('it has a _train_step of its own')
    return update_loop.UpdateLoop(
      self._train_op,
      self._loss,
      self._sync_qt_ops,
      replay.batch,
      replay.transition.values(),
      replay.feed.next if replay.feed else list,
      [replay.feed.ready] if replay.feed else [],
      getattr(self, 'step_tensor', None),
      self.update_period,
      self.target_update_period,
      self._jit_compile,
      # Clocks are not deterministic.
      timed=not seeding.has_deterministic_ops(),
    )

  def _create_network(self, name):
    if not self._mixed_precision:
      return super()._create_network(name)
    return mixed_precision.build(
      functools.partial(super()._create_network, name)
    )

  def _build_acting(self):
    """The greedy actions for any number of states, frames before channels."""
    self._states_ph = tf.compat.v1.placeholder(
      self.observation_dtype, (None, self.stack_size, *self.observation_shape)
    )
    axes = (0, *range(2, 2 + len(self.observation_shape)), 1)
    self._greedy_actions = self._build_greedy_actions(
      tf.transpose(self._states_ph, axes)
    )

  def _build_greedy_actions(self, states: tf.Tensor) -> tf.Tensor:
    """Actions, int64 (n,), for states (n, *observation_shape, stack_size).

    For agents whose greedy action is another than that of the mean Q-values.
    """
    return tf.argmax(self.online_convnet(states).q_values, axis=1)

  @property
  def acts_on_batches(self) -> bool:
    """Whether `select_actions` acts as the agent does; not if it has a way."""
    return type(self)._select_action is dqn_agent.DQNAgent._select_action

  def select_actions(
    self, states: np.ndarray, random: np.random.Generator
  ) -> np.ndarray:
    """Acts for evaluation: at random with probability `epsilon_eval`, or greedily.

    Args:
      states: (n, stack_size, *observation_shape), the oldest frame first.
      random: makes the random choices.

    Returns:
      int64 (n,).
    """
    actions = self._sess.run(self._greedy_actions, {self._states_ph: states})
    explore = random.random(len(states)) <= self.epsilon_eval
    others = random.integers(self.num_actions, size=len(states))
    return np.where(explore, others, actions)

  @property
  def steps_per_run(self) -> int:
    """Agent steps that `train_steps` does at once, at most."""
    return self._updates_per_run * self.update_period

  def begin_iteration(self, iteration: int, updates: int = 0) -> None:
    """Draws the data of an iteration.

    Args:
      iteration: its number.
      updates: that it has had already, each with one batch.

    Raises:
      ValueError: if it holds actions that the environment does not have.
    """
    self._replay.begin_iteration(iteration, updates)
    self._check_actions(self._replay.memory)

  def describe_data(self) -> dict[str, Any]:
    """What the agent trains on: subset, its hash, shards, trajectories."""
    return self._replay.memory.describe()

  def _build_replay_buffer(self, use_staging):
    if self._replay_data_dir is None:
      return circular_replay_buffer.WrappedReplayBuffer(
        self.observation_shape,
        self.stack_size,
        replay_capacity=self.stack_size + self.update_horizon,
        batch_size=1,
        update_horizon=self.update_horizon,
        observation_dtype=self.observation_dtype.as_numpy_dtype,
      )
    replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
      data_dir=self._replay_data_dir,
      replay_suffix=self._replay_suffix,
      observation_shape=self.observation_shape,
      stack_size=self.stack_size,
      use_staging=use_staging,
      update_horizon=self.update_horizon,
      gamma=self.gamma,
      observation_dtype=self.observation_dtype.as_numpy_dtype,
    )
    self._check_actions(replay.memory)
    return replay

  def _check_actions(self, memory):
    for action in memory.action_range():
      if not 0 <= action < self.num_actions:
        raise ValueError(
          f'{self._replay_data_dir} holds action {action}, but the environment '
          f'has {self.num_actions} actions: is it the same game?'
        )

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict[str, Any] | None:
    """Saves as the agent does.

    Raises:
      FloatingPointError: if weights are not numbers: the checkpoint before is
        better.
    """
    if not self._sess.run(self._weights_are_finite):
      raise FloatingPointError(
        f'Weights are not finite after update '
        f'{self.training_steps // self.update_period}: training has diverged. '
        'The checkpoints before it are kept.'
      )
    return super().bundle_and_checkpoint(checkpoint_dir, iteration_number)

  def _build_train_op(self):
    """Also keeps the loss, which Dopamine's agents hand to the optimiser only."""
    optimizer = self.optimizer
    minimize = optimizer.minimize

    def keep_and_minimize(loss, *args, **kwargs):
      self._loss = loss
      return minimize(loss, *args, **kwargs)

    optimizer.minimize = keep_and_minimize
    try:
      return super()._build_train_op()
    finally:
      del optimizer.minimize

  def _store_transition(self, *args, **kwargs):
    """The replay is fixed: what the agent sees is not added to it."""

  def _load_weights(self, directory):
    """Loads online and target weights from the newest checkpoint."""
    path = latest_checkpoint(directory)
    reader = tf.train.load_checkpoint(path)
    saved = reader.get_variable_to_shape_map()
    wanted = tf.compat.v1.trainable_variables()
    names = [variable.op.name for variable in wanted]
    wrong: list[str] = []
    for named in _names_in_checkpoints(names, saved):
      wrong = [
        variable.op.name
        for variable, name in zip(wanted, named, strict=True)
        if saved.get(name) != variable.shape.as_list()
      ]
      if not wrong:
        variables = dict(zip(named, wanted, strict=True))
        tf.compat.v1.train.Saver(variables).restore(self._sess, path)
        return
    raise ValueError(
      f'{path} is not of these networks: {len(wrong)} of {len(wanted)} '
      f'variables are missing or have another shape, the first {wrong[0]}.'
    )


def _names_in_checkpoints(
  names: list[str], saved: Iterable[str]
) -> Iterator[list[str]]:
  """What variables are called in checkpoints of all ages; ours come last.

  Args:
    names: of variables here, e.g. `Online/Conv/kernel`.
    saved: names in the checkpoint.
  """
  # Dopamine 1 and 2, whose networks were built by tf.contrib.slim.
  ends = {'kernel': 'weights', 'bias': 'biases'}
  yield [
    f'{layer}/{ends.get(end, end)}'
    for layer, end in (name.rsplit('/', 1) for name in names)
  ]
  # Keras layers without names are numbered through the graph, in order.
  by_scope = collections.defaultdict(list)
  for name in saved:
    if match := re.fullmatch(r'(\w+)/(conv2d|dense)_?(\d*)/kernel', name):
      scope, kind, number = match.groups()
      by_scope[scope].append((kind, int(number or 0), name[: -len('/kernel')]))
  numbered: dict[str, str] = {}
  for scope, layers in by_scope.items():
    ours = dict.fromkeys(
      name.rsplit('/', 1)[0] for name in names if name.startswith(f'{scope}/')
    )
    numbered |= zip(ours, (path for _, _, path in sorted(layers)), strict=False)
  yield [
    f'{numbered.get(layer, layer)}/{end}'
    for layer, end in (name.rsplit('/', 1) for name in names)
  ]
  yield names


def latest_checkpoint(directory: str) -> str:
  """The newest TensorFlow checkpoint of a run, or in a folder.

  Args:
    directory: a run's base_dir, its `checkpoints`, or a folder with `tf_ckpt-*`.

  Returns:
    Its prefix, e.g. `<directory>/checkpoints/ckpt-199/tf_ckpt-199`.

  Raises:
    ValueError: if there is none.
  """
  path = directory.rstrip('/')
  inside = os.path.basename(path) == 'checkpoints'
  run = os.path.dirname(path) if inside else path
  for checkpoint in reversed(checkpoints.find(run)):
    if not tf.io.gfile.exists(checkpoint.weights + '.index'):
      continue
    try:
      checkpoint.read()
    except ValueError as error:
      logging.warning('%s', error)
      continue
    return checkpoint.weights
  found = []
  for folder in (directory, os.path.join(directory, 'checkpoints')):
    for path in tf.io.gfile.glob(os.path.join(folder, 'tf_ckpt-*.index')):
      number = re.search(r'tf_ckpt-(\d+)\.index$', path)
      if number:
        found.append((int(number[1]), path.removesuffix('.index')))
  if not found:
    raise ValueError(f'No TensorFlow checkpoint (tf_ckpt-*) in {directory}.')
  return max(found)[1]
