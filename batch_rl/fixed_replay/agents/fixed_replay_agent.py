"""What makes a Dopamine agent an offline agent."""

import collections
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer


class FixedReplayAgentMixin:
  """Put before a Dopamine agent, it makes the agent's data a fixed replay.

  The agent trains by `train_steps`, or by Dopamine's `begin_episode` and `step`,
  and adds nothing to its replay memory. `min_replay_history` does not apply: the
  history is all there is.

  Args:
    sess: `tf.compat.v1.Session`, or None for the agent to make its own.
    num_actions: number of actions.
    replay_data_dir: the directory of the shards (`<run>/replay_logs`).
    replay_suffix: the one shard to use; None for all.
    init_checkpoint_dir: a run's `base_dir`, or a folder of TensorFlow checkpoints,
      whose newest weights this agent starts from.
    **kwargs: as the agent's.

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
    **kwargs,
  ):
    self._replay_data_dir = replay_data_dir
    self._replay_suffix = replay_suffix
    super().__init__(sess, num_actions, **{**kwargs, 'min_replay_history': 0})
    if init_checkpoint_dir is not None:
      self._load_weights(init_checkpoint_dir)

  def train_steps(self, count: int) -> Iterator[float]:
    """Trains; an update every `update_period` steps, as if acting.

    Args:
      count: agent steps.

    Yields:
      The loss of each update, float.

    Raises:
      FloatingPointError: if the loss is not a number.
      batch_rl.dataset.packer.DataError: if the data turns out damaged.
    """
    for _ in range(count):
      loss = self._train_step()
      if loss is not None:
        yield loss

  def _train_step(self):
    """One agent step's worth of training; returns the loss of an update."""
    loss = None
    if self.training_steps % self.update_period == 0:
      try:
        _, loss = self._sess.run((self._train_op, self._loss))
      except tf.errors.OpError:
        # What the data has to say is hidden in TensorFlow's report.
        self._replay.memory.raise_error()
        raise
      loss = float(loss)
      if not np.isfinite(loss):
        raise FloatingPointError(
          f'The loss is {loss} at update '
          f'{self.training_steps // self.update_period}.'
        )
      if (
        self.summary_writer is not None
        and self.training_steps > 0
        and self.training_steps % self.summary_writing_frequency == 0
      ):
        summary = self._sess.run(self._merged_summaries)
        self.summary_writer.add_summary(summary, self.training_steps)
    if self.training_steps % self.target_update_period == 0:
      self._sess.run(self._sync_qt_ops)
    self.training_steps += 1
    return loss

  def begin_iteration(self, iteration: int) -> None:
    """Draws the data of an iteration.

    Raises:
      ValueError: if it holds actions that the environment does not have.
    """
    self._replay.begin_iteration(iteration)
    self._check_actions(self._replay.memory)

  def describe_data(self) -> dict[str, Any]:
    """What the agent trains on: subset, its hash, shards, trajectories."""
    return self._replay.memory.describe()

  def _build_replay_buffer(self, use_staging):
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
  """The newest TensorFlow checkpoint in a folder or its `checkpoints` folder.

  Returns:
    Its prefix, e.g. `<directory>/checkpoints/tf_ckpt-199`.

  Raises:
    ValueError: if there is none.
  """
  found = []
  for folder in (directory, os.path.join(directory, 'checkpoints')):
    for path in tf.io.gfile.glob(os.path.join(folder, 'tf_ckpt-*.index')):
      number = re.search(r'tf_ckpt-(\d+)\.index$', path)
      if number:
        found.append((int(number[1]), path.removesuffix('.index')))
  if not found:
    raise ValueError(f'No TensorFlow checkpoint (tf_ckpt-*) in {directory}.')
  return max(found)[1]
