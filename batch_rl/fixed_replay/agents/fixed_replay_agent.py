"""Base of the offline agents: a mixin that trains Dopamine agents on logged data."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.tf.agents.dqn import dqn_agent
from dopamine.tf.replay_memory import circular_replay_buffer
from tensorflow.python.framework import config as tf_config

from batch_rl.fixed_replay import mixed_precision, update_loop
from batch_rl.fixed_replay.agents import initial_weights
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.utils import files, gin_signatures


class FixedReplayAgentMixin:
  """Mixin that makes a Dopamine agent's replay memory a fixed replay.

  It precedes the agent among the base classes. The agent trains by `train_steps`,
  or by Dopamine's `begin_episode` and `step`, and adds nothing to its replay memory.
  `min_replay_history` has no effect, since the data is complete from the start.

  Args:
    sess: TensorFlow session; None creates one.
    num_actions: Number of actions.
    replay_data_dir: Directory of the shards (`<run>/replay_logs`); None for an
      agent that only acts.
    replay_suffix: Number of a single shard to use; None for all shards.
    init_checkpoint_dir: Directory of the initial weights: a run's `base_dir` or a
      folder of TensorFlow checkpoints. The newest checkpoint is used. None for
      random weights.
    updates_per_run: Maximum number of updates in one `session.run`; results do not
      depend on it. 1 runs each update on its own, as Dopamine does.
    jit_compile: Whether XLA compiles the update. Results then differ in the last
      digits, and REM draws other mixtures.
    mixed_precision: Whether networks compute in bfloat16 (see `mixed_precision`).
      Results differ; checkpoints have the same format.
    seed: Seed of the run, from which the seeds of the data and of all random choices
      are derived; None for an unseeded agent.
    seed_drawn: Whether the program drew the seed (see `FixedReplayBuffer`).
    **kwargs: Arguments of the agent.

  Attributes:
    seconds_waited: Time in seconds that updates have waited for data. It is not
      measured with one update per `session.run`, or with `deterministic_ops`.

  Raises:
    ValueError: If the data has more actions than the environment, or the
      checkpoint does not fit the networks.
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
    seed=None,
    seed_drawn=False,
    **kwargs,
  ):
    if updates_per_run != int(updates_per_run) or updates_per_run < 1:
      raise ValueError(
        f'updates_per_run={updates_per_run} is not an integer of at least 1.'
      )
    self._replay_data_dir = replay_data_dir
    self._replay_suffix = replay_suffix
    self._updates_per_run = int(updates_per_run)
    self._jit_compile = jit_compile
    self._mixed_precision = mixed_precision
    self._seed = seed
    self._seed_drawn = seed_drawn
    self.seconds_waited = 0.0
    kwargs['min_replay_history'] = 0
    if gin_signatures.next_accepts(self, FixedReplayAgentMixin, 'seed'):
      kwargs['seed'] = seed
    super().__init__(sess, num_actions, **kwargs)
    if jit_compile:
      _ = self._loop  # raises early if the update cannot be compiled
    self._build_acting()
    with self._sess.graph.as_default():
      weights = tf.compat.v1.trainable_variables()
      self._weights_are_finite = tf.reduce_all(
        [tf.reduce_all(tf.math.is_finite(weight)) for weight in weights]
      )
    if init_checkpoint_dir is not None:
      initial_weights.load(self._sess, init_checkpoint_dir)

  def train_steps(self, count: int) -> Iterator[float]:
    """Trains with an update every `update_period` agent steps.

    Up to `updates_per_run` updates are done before their first loss is yielded.

    Args:
      count: Number of agent steps.

    Yields:
      The loss of each update, float.

    Raises:
      FloatingPointError: If the loss is not finite.
      batch_rl.dataset.shards.shard_reader.DataError: If the data is damaged.
    """
    end = self.training_steps + count
    while self.training_steps < end:
      updates = self._updates_at_once(end - self.training_steps)
      if updates:
        yield from self._run_loop(updates)
      elif (loss := self._train_step()) is not None:
        yield loss

  def _updates_at_once(self, steps):
    """Returns the number of updates that the loop can run before a summary."""
    if self._loop is None or self.training_steps % self.update_period:
      return 0
    limit = min(self._updates_per_run, steps // self.update_period)
    if self.summary_writer is None:
      return limit
    for count in range(limit):
      if self._is_summary_due(self.training_steps + count * self.update_period):
        return count
    return limit

  def _is_summary_due(self, step):
    return (
      self.summary_writer is not None
      and step > 0
      and step % self.summary_writing_frequency == 0
    )

  def _run_loop(self, count):
    first = self.training_steps
    with self._one_line_errors():
      losses, waited = self._loop.run(self._sess, first, count)
    self.training_steps += len(losses) * self.update_period
    self.seconds_waited += waited
    for i, loss in enumerate(losses.tolist()):
      self._check_loss(loss, first + i * self.update_period)
      yield loss

  def _train_step(self):
    """Trains for one agent step; returns the loss if it has an update."""
    loss = None
    if self.training_steps % self.update_period == 0:
      fetches = [self._loss, self._train_op]
      if self._is_summary_due(self.training_steps):
        fetches.append(self._merged_summaries)
      with self._one_line_errors():
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
  def _one_line_errors(self):
    """Replaces TensorFlow's long reports of common errors by one line.

    Raises:
      batch_rl.dataset.shards.shard_reader.DataError: If the data is damaged.
      MemoryError: If the device runs out of memory.
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
          'WrappedFixedReplayBuffer.batch_size or the network smaller, or free '
          f'memory on the device. TensorFlow: {files.reason(error)}'
        ) from error
      raise

  def _check_loss(self, loss, step):
    if not np.isfinite(loss):
      raise FloatingPointError(
        f'The loss is {loss} at update {step // self.update_period}: training has '
        'diverged. Earlier checkpoints are kept.'
      )

  @functools.cached_property
  def _loop(self):
    """Loop of updates; None for one `session.run` per update."""
    if self._updates_per_run == 1 and not self._jit_compile:
      return None
    try:
      with self._sess.graph.as_default():
        return self._make_loop()
    except (ValueError, TypeError) as error:
      if self._jit_compile:
        raise ValueError(
          f'{type(self).__name__} does not support jit_compile: {error}. '
          'Set it to False.'
        ) from error
      logging.warning(
        '%s runs one update per session.run, which is slower: %s.',
        type(self).__name__,
        error,
      )
      return None

  def _make_loop(self):
    replay = self._replay
    if type(self)._train_step is not FixedReplayAgentMixin._train_step:
      raise ValueError('it overrides _train_step')
    return update_loop.UpdateLoop(
      train=self._train_op,
      loss=self._loss,
      sync=self._sync_qt_ops,
      batch=replay.batch,
      transition=replay.transition.values(),
      next_batch=replay.prefetcher.next if replay.prefetcher else list,
      ready=[replay.prefetcher.ready] if replay.prefetcher else [],
      step=getattr(self, 'step_tensor', None),
      update_period=self.update_period,
      target_update_period=self.target_update_period,
      jit_compile=self._jit_compile,
      # Clocks are not deterministic.
      timed=not tf_config.is_op_determinism_enabled(),
    )

  def _create_network(self, name):
    if not self._mixed_precision:
      return super()._create_network(name)
    return mixed_precision.build(
      functools.partial(super()._create_network, name)
    )

  def _build_acting(self):
    """Builds the greedy actions for states (n, stack_size, *observation_shape)."""
    self._states_ph = tf.compat.v1.placeholder(
      self.observation_dtype, (None, self.stack_size, *self.observation_shape)
    )
    axes = (0, *range(2, 2 + len(self.observation_shape)), 1)
    self._greedy_actions = self._build_greedy_actions(
      tf.transpose(self._states_ph, axes)
    )

  def _build_greedy_actions(self, states: tf.Tensor) -> tf.Tensor:
    """Returns greedy actions, int64 (n,).

    Subclasses that do not maximise `q_values` override it.

    Args:
      states: Stacks of frames, (n, *observation_shape, stack_size).
    """
    return tf.argmax(self.online_convnet(states).q_values, axis=1)

  @property
  def acts_on_batches(self) -> bool:
    """Whether batched action selection matches `_select_action`."""
    return type(self)._select_action is dqn_agent.DQNAgent._select_action

  def select_actions(
    self, states: np.ndarray, generators: Sequence[np.random.Generator]
  ) -> np.ndarray:
    """Returns epsilon-greedy actions for evaluation, int64 (n,).

    Args:
      states: Stacks of frames, oldest first, (n, stack_size, *observation_shape).
      generators: Generator of each state for the random actions, taken with
        probability `epsilon_eval`.
    """
    actions = self._sess.run(self._greedy_actions, {self._states_ph: states})
    for i, generator in enumerate(generators):
      explore = generator.random() <= self.epsilon_eval
      random_action = generator.integers(self.num_actions)
      if explore:
        actions[i] = random_action
    return actions

  @property
  def steps_per_run(self) -> int:
    """Maximum number of agent steps in one `session.run` of `train_steps`."""
    return self._updates_per_run * self.update_period

  def begin_iteration(self, iteration: int, updates: int = 0) -> None:
    """Draws the data of an iteration.

    Args:
      iteration: Number of the iteration.
      updates: Number of updates of the iteration that are already done.

    Raises:
      ValueError: If the data holds actions that the environment does not have.
    """
    self._replay.begin_iteration(iteration, updates)
    self._check_actions(self._replay.memory)

  def describe_data(self) -> dict[str, Any]:
    """Returns subset, subset hash, shards and number of trajectories of the data."""
    return self._replay.memory.describe()

  def _build_replay_buffer(self, use_staging):
    arguments = {
      'observation_shape': self.observation_shape,
      'stack_size': self.stack_size,
      'update_horizon': self.update_horizon,
      'observation_dtype': self.observation_dtype.as_numpy_dtype,
    }
    if self._replay_data_dir is None:
      return circular_replay_buffer.WrappedReplayBuffer(
        replay_capacity=self.stack_size + self.update_horizon,
        batch_size=1,
        **arguments,
      )
    replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
      data_dir=self._replay_data_dir,
      replay_suffix=self._replay_suffix,
      use_staging=use_staging,
      gamma=self.gamma,
      seed=self._seed,
      seed_drawn=self._seed_drawn,
      **arguments,
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
    """Saves the agent, as Dopamine does.

    Raises:
      FloatingPointError: If a weight is not finite, since the previous checkpoint
        is better.
    """
    if not self._sess.run(self._weights_are_finite):
      raise FloatingPointError(
        f'Weights are not finite after update '
        f'{self.training_steps // self.update_period}: training has diverged. '
        'Earlier checkpoints are kept.'
      )
    return super().bundle_and_checkpoint(checkpoint_dir, iteration_number)

  def _build_train_op(self):
    """Builds the update and keeps its loss, which Dopamine discards."""
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
    """Does nothing: the replay is fixed."""
