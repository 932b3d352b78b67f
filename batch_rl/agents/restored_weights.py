"""Weights of an agent from a checkpoint of its run."""

from typing import Any

import tensorflow as tf

from batch_rl.utils import files


def load(agent: Any, path: str) -> None:
  """Loads all variables of an agent that only acts.

  Args:
    agent: Agent without data, of the run's class and settings.
    path: Prefix of the TensorFlow checkpoint.

  Raises:
    ValueError: If the checkpoint is damaged, or has other variables or shapes than
      the agent's networks.
  """
  try:
    check(agent, path, 'remove the gin bindings that change its networks')
    agent._saver.restore(agent._sess, path)
  except tf.errors.OpError as error:
    raise ValueError(
      f'{path} cannot be read: {files.reason(error)}.'
    ) from error


def check(agent: Any, path: str, remedy: str) -> None:
  """Checks that a checkpoint has the variables of an agent, in their shapes.

  Args:
    agent: Agent with a `Saver`. TensorFlow would give some of its variables the shapes
      of the checkpoint.
    path: Prefix of the TensorFlow checkpoint.
    remedy: End of the message.

  Raises:
    ValueError: If it has others.
    tf.errors.OpError: If it cannot be read.
  """
  saved = tf.compat.v1.train.NewCheckpointReader(
    path
  ).get_variable_to_shape_map()
  if problem := _misfit(agent, saved):
    raise ValueError(f'{path} does not fit the agent: {problem}; {remedy}.')


def _misfit(agent, saved):
  """Returns the first difference between checkpoint and agent in words, or None."""
  shapes = {
    variable.op.name: variable.shape.as_list()
    for variable in agent._saver._var_list  # those that checkpoints have
    if isinstance(variable, tf.Variable)
  }
  for name, shape in shapes.items():
    if name not in saved:
      return f'the agent has a variable {name}, the checkpoint has none'
    if saved[name] != shape:
      return f'{name} has shape {tuple(shape)}, in the checkpoint {tuple(saved[name])}'
  scopes = {name.split('/')[0] for name in shapes}
  for name in sorted(saved):
    # Variables of the optimiser, e.g. Online/Dense/kernel/Adam, are not needed.
    of_optimizer = name.rpartition('/')[0] in saved
    if name not in shapes and name.split('/')[0] in scopes and not of_optimizer:
      return f'the checkpoint has a variable {name}, the agent has none'
  return None
