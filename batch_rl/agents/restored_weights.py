"""Weights of an agent from a checkpoint of its run."""

from typing import Any

import tensorflow as tf

from batch_rl.utils import files, programs


def load(agent: Any, path: str) -> None:
  """Loads all variables of an agent that only acts.

  Args:
    agent: Agent without data, of the run's class and settings.
    path: Prefix of the TensorFlow checkpoint.

  Raises:
    MistakeError: If the checkpoint is damaged, or has other variables or shapes than
      the agent's networks.
  """
  try:
    remedy = 'remove bindings that change its networks, or restore their code'
    check(agent, path, remedy)
    agent._saver.restore(agent._sess, path)
  except tf.errors.OpError as error:
    raise programs.MistakeError(
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
    MistakeError: If it has others.
    tf.errors.OpError: If it cannot be read.
  """
  reader = tf.compat.v1.train.NewCheckpointReader(path)
  saved = reader.get_variable_to_shape_map()
  shapes = {
    variable.op.name: variable.shape.as_list()
    for variable in agent._saver._var_list  # those that checkpoints have
    if isinstance(variable, tf.Variable)
  }
  problems = [
    f'the agent has a variable {name} of shape {shape}, the checkpoint has '
    f'{saved.get(name, "none")}'
    for name, shape in shapes.items()
    if saved.get(name) != shape
  ]
  scopes = {name.split('/')[0] for name in shapes}
  problems += [
    f'the checkpoint has a variable {name}, the agent has none'
    for name in sorted(saved.keys() - shapes)
    # Variables of the optimiser, e.g. Online/Dense/kernel/Adam, are not needed.
    if name.split('/')[0] in scopes and name.rpartition('/')[0] not in saved
  ]
  if problems:
    raise programs.MistakeError(
      f'{path} does not fit the agent: {problems[0]}; {remedy}.'
    )
