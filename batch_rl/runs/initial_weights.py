"""Initial weights of an agent, from a checkpoint of any Dopamine version."""

import ast
import collections
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from batch_rl.agents import registry
from batch_rl.runs import checkpoints, games, run_record
from batch_rl.utils import files, number_ranges

# Settings without which weights have another meaning, or do not fit.
_COMPARED = (
  'gamma vmin vmax num_atoms num_networks network head dueling stack_size '
  'observation_shape sigma kappa'
).split()
_HEADS = 'Categorical', 'HLGauss', 'TwoHot', 'Quantiles', 'ImplicitQuantiles'


def needed(
  given: Any, record: dict[str, Any], agents: registry.Registry
) -> str | None:
  """Returns the directory of a run's initial weights, if it needs them.

  The record gets the name of their checkpoint, which the package's agents load.

  Args:
    given: The flags, or an object with attributes of their names. A run that is resumed
      has its own weights.
    record: Record of the run.
    agents: Agents by name.

  Raises:
    ValueError: If `--init_checkpoint_dir` is empty or has no checkpoint, or its weights
      mean something else in this run.
  """
  directory = given.init_checkpoint_dir
  if directory == '':
    raise ValueError(
      '--init_checkpoint_dir is empty: give the base_dir of a run, or leave it out.'
    )
  if directory is None or checkpoints.find(given.base_dir):
    return None
  record['init_checkpoint'] = latest_checkpoint(directory)
  _check_run(directory, record, agents.find(record['agent']))
  return directory


def _check_run(
  directory: str, record: Mapping[str, Any], agent_class: type
) -> None:
  """Checks that the weights of a run mean the same in another one.

  A folder of checkpoints without a record is not checked, nor is the agent if one of
  the two is a user's. `load` checks that the weights fit.

  Args:
    directory: Directory of the weights' run.
    record: Record of the run that starts from them.
    agent_class: Class of its agent, whose defaults hold for what is unbound.

  Raises:
    ValueError: If the runs have different games, agents, or values of a setting such
      as gamma.
  """
  theirs = run_record.read(_run_directory(directory)) or {}
  game = games.configured_game()
  played = game and games.canonical_name(game)
  games.check_game_of_run(directory, theirs, played)
  trained, agent = theirs.get('agent'), record['agent']
  anyway = 'or give one of its checkpoints/ckpt-<n>, which is not checked'
  is_users = '.' in agent or '.' in (trained or '.')
  if trained != agent and not is_users:
    fitting = agent
    if agent == 'multi_network_dqn':
      fitting += ', offline by configs/multi_network_rem.gin'
    raise ValueError(
      f'{directory} is a run of {trained}, whose weights are not those of {agent}: '
      f'leave out --init_checkpoint_dir, choose a run of {fitting}, {anyway}.'
    )
  taken = inspect.signature(agent_class).parameters.values()
  types = int, float, tuple  # Not objects, which gin writes as references.
  defaults = {p.name: p.default for p in taken if isinstance(p.default, types)}
  # Theirs may be of another kind, online or offline.
  before = _agent_settings(theirs, r'\w*Agent')
  before = (defaults if trained == agent else {}) | before
  own = '|'.join(base.__name__ for base in agent_class.__mro__)
  now = defaults | _agent_settings(record, own)
  for name in _COMPARED:
    if before.get(name, now.get(name)) != now.get(name, before.get(name)):
      raise ValueError(
        f'The run in {directory} has {name} = {before[name]}, this one {now[name]}: '
        f'add --gin_bindings="AnyAgent.{name} = {before[name]}", bind the parameter of '
        f'its head, {anyway}.'
      )


def _agent_settings(record: Mapping[str, Any], classes: str) -> dict[str, Any]:
  """Returns the recorded parameters of the agent and its head that are bound.

  Args:
    record: Record of a run.
    classes: Pattern of its agent's classes, besides that of the user.
  """
  settings = {}
  agent = str(record.get('agent')).rpartition('.')[2]
  owners = re.compile('|'.join((classes, re.escape(agent), *_HEADS)))
  unused = record.get('unused_bindings') or ()
  for name, text in run_record.bindings(record.get('gin_config') or '').items():
    *_, owner, parameter = re.split('[./]', name)
    if owners.fullmatch(owner) and name not in unused:
      try:
        settings[parameter] = ast.literal_eval(text)
      except (SyntaxError, ValueError):  # a reference, e.g. @MyNetwork
        settings[parameter] = re.sub(r'^@(\w+[./])+', '@', text)
  return settings


def _run_directory(directory: str) -> str:
  run = directory.rstrip('/')
  return os.path.dirname(run) if os.path.basename(run) == 'checkpoints' else run


def load(session: tf.compat.v1.Session, directory: str) -> None:
  """Loads online and target weights from a run's newest checkpoint.

  Args:
    session: Session whose networks get the weights.
    directory: Directory of the checkpoint, as in `latest_checkpoint`.

  Raises:
    ValueError: If there is no checkpoint, or a variable is missing in it or has
      another shape.
  """
  path = latest_checkpoint(directory)
  saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
  with session.graph.as_default():
    variables = tf.compat.v1.trainable_variables()
    names = [variable.op.name for variable in variables]
    scopes = {name.split('/')[0] for name in names}
    # Networks may have others, e.g. statistics. Slots of the optimiser stay.
    variables += [
      variable
      for variable in tf.compat.v1.global_variables()
      if variable.op.name in {*saved} - {*names}
      and variable.op.name.split('/')[0] in scopes
      and variable.op.name.rpartition('/')[0] not in names
    ]
    names = [variable.op.name for variable in variables]
    misfits: list[str] = []
    for saved_names in (names, _older_names(names, saved)):
      misfits = [
        variable.op.name
        for variable, name in zip(variables, saved_names, strict=True)
        if saved.get(name) != variable.shape.as_list()
      ]
      if not misfits:
        by_name = dict(zip(saved_names, variables, strict=True))
        tf.compat.v1.train.Saver(by_name).restore(session, path)
        return
  raise ValueError(
    f'{path} does not fit the networks: {len(misfits)} of {len(variables)} '
    f'variables are missing or have another shape, the first {misfits[0]}. Choose '
    'a checkpoint of the same agent and game.'
  )


def _older_names(names: list[str], saved: Iterable[str]) -> list[str]:
  """Returns the names of variables in a checkpoint of older networks.

  Their layers have other names in the same order: Dopamine 1 and 2 built networks by
  tf.contrib.slim, and Keras numbers unnamed layers through the graph.

  Args:
    names: Current names of the variables, e.g. `Online/Conv/kernel`.
    saved: Names in the checkpoint.
  """
  biases = {'kernel': 'bias', 'weights': 'biases'}
  theirs = collections.defaultdict(list)
  for name in sorted(saved, key=number_ranges.natural_key):
    layer, _, end = name.rpartition('/')
    if end in biases:
      theirs[name.split('/')[0]].append((layer, end))
  older = {}
  for layer in [name.removesuffix('/kernel') for name in names]:
    rest = theirs[layer.split('/')[0]]
    if f'{layer}/kernel' in names and rest:
      old_layer, end = rest.pop(0)
      older[f'{layer}/kernel'] = f'{old_layer}/{end}'
      older[f'{layer}/bias'] = f'{old_layer}/{biases[end]}'
  return [older.get(name, name) for name in names]


def latest_checkpoint(directory: str) -> str:
  """Returns the newest TensorFlow checkpoint of a run.

  Args:
    directory: A run's base_dir, its `checkpoints` folder, or any folder with
      `tf_ckpt-*` files.

  Returns:
    The prefix of the checkpoint's files, e.g.
    `<directory>/checkpoints/ckpt-199/tf_ckpt-199`.

  Raises:
    ValueError: If there is no checkpoint.
  """
  for checkpoint in reversed(checkpoints.find(_run_directory(directory))):
    if problem := checkpoint.problem():
      logging.warning('%s.', problem)
    elif tf.io.gfile.exists(checkpoint.weights + '.index'):
      return checkpoint.weights
  # Dopamine's own layout.
  numbered = []
  for folder in (directory, os.path.join(directory, 'checkpoints')):
    for path in tf.io.gfile.glob(os.path.join(folder, 'tf_ckpt-*.index')):
      if number := re.search(r'tf_ckpt-(\d+)\.index$', path):
        numbered.append((int(number[1]), path.removesuffix('.index')))
  if not numbered:
    is_prefix = tf.io.gfile.exists(f'{directory}.index')
    if not is_prefix:
      files.list_directory(directory)  # names one that is not there
    remedy = ': give the folder of this file' * is_prefix
    raise ValueError(
      f'No TensorFlow checkpoint (tf_ckpt-*) in {directory}{remedy}.'
    )
  return max(numbered)[1]
