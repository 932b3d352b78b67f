"""A trained run, opened by its folder: its record, checkpoints and agent.

The data of the run are not needed, and may be gone.
"""

import contextlib
import math
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import gin
from absl import logging

from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.runs import (
  checkpoints,
  command_line,
  evaluations,
  gin_files,
  run_record,
)
from batch_rl.runs.bindings import any_agent, gin_internals
from batch_rl.utils import number_ranges, programs
from batch_rl.utils.user_code import function_records, user_modules


def read_record(base_dir: str) -> dict[str, Any]:
  """Returns the record of an offline run.

  Raises:
    ValueError: If there is none, or it is damaged or of an online run.
  """
  record = run_record.read(base_dir)
  if record is None:
    raise ValueError(
      f'{base_dir} has no {run_record.FILE_NAME}; is it the base_dir of a run of '
      'batch_rl.fixed_replay.train?'
    )
  if 'replay_dir' not in record:
    raise ValueError(f'{base_dir} is not a run of offline training.')
  required = 'agent', 'gin_config', 'create_agent', 'create_environment'
  return run_record.read(base_dir, required) or record


def intact_checkpoints(
  base_dir: str, chosen: str
) -> dict[int, checkpoints.Checkpoint]:
  """Returns the checkpoints that a user chose, `{iteration: checkpoint}`, verified.

  Args:
    base_dir: Run directory.
    chosen: Choice of checkpoints, as in `choose_checkpoints`.

  Raises:
    ValueError: If one is missing or damaged.
  """
  available = list_checkpoints(base_dir)
  numbers = choose_checkpoints(base_dir, available, chosen)
  problems = (available[number].problem() for number in numbers)
  if problem := next(filter(None, problems), None):
    intact = [str(n) for n, other in available.items() if not other.problem()]
    raise ValueError(
      f'{problem}; intact checkpoints: {",".join(intact) or "(none)"}.'
    )
  return {number: available[number] for number in numbers}


def list_checkpoints(base_dir: str) -> dict[int, checkpoints.Checkpoint]:
  """Returns the checkpoints at the ends of iterations, `{iteration: checkpoint}`.

  Raises:
    ValueError: If there are none.
  """
  found = {
    checkpoint.position.number: checkpoint
    for checkpoint in checkpoints.find(base_dir)
    if not checkpoint.position.steps
  }
  if not found:
    raise ValueError(
      f'{base_dir} has no checkpoints of whole iterations: is it the base_dir of a run?'
    )
  return found


def choose_checkpoints(
  base_dir: str, available: Collection[int], chosen: str
) -> list[int]:
  """Returns the iterations of the checkpoints that a user chose.

  Args:
    base_dir: Run directory.
    available: Iterations of all checkpoints.
    chosen: 'last', 'best', 'all', or iterations, e.g. '3,7-9'.

  Raises:
    ValueError: If a checkpoint is missing.
  """
  if chosen == 'all':
    return list(available)
  if chosen == 'last':
    numbers = [max(available)]
  elif chosen == 'best':
    numbers = [best_iteration(base_dir)]
  else:
    try:
      numbers = number_ranges.parse(chosen, '--checkpoints')
    except ValueError as error:
      raise ValueError(f"{error} Or choose 'last', 'best' or 'all'.") from None
  for number in numbers:
    if number not in available:
      raise ValueError(
        f'{base_dir} has no checkpoint of iteration {number}, only of '
        f'{", ".join(map(str, available))}: choose one of these, and keep more by '
        'Checkpoints.keep and Checkpoints.keep_every.'
      )
  return numbers


def best_iteration(base_dir: str) -> int:
  """Returns the iteration with the highest mean return in the run's evaluations.

  Raises:
    ValueError: If the run has no evaluations.
  """
  means = {
    iteration: mean
    for iteration, content in evaluations.read(base_dir).items()
    if (mean := content.get('mean_return')) is not None and math.isfinite(mean)
  }
  if not means:
    raise ValueError(
      f"{base_dir} has no evaluations that tell the best checkpoint: choose 'last'."
    )
  return max(means, key=lambda iteration: (means[iteration], iteration))


def load_functions(
  record: Mapping[str, Any],
  module_dirs: Sequence[str],
  gin_bindings: Sequence[str],
) -> tuple[Callable[..., Any], Callable[[], Any]]:
  """Loads the gin configuration of a run, and its functions.

  Args:
    record: Record of the run.
    module_dirs: Further folders of the user's modules.
    gin_bindings: gin bindings that override the run's configuration.

  Returns:
    The function `(session, environment) -> agent`, for an agent without data, and
    the function that creates the environment.

  Raises:
    ValueError: If a folder is missing, or the agent or a function cannot be imported.
  """
  command_line.add_module_dirs(module_dirs)
  for folder in (*(record.get('modules') or ()), os.getcwd()):
    user_modules.add_folder(folder)
  # TensorFlow takes seconds to import.
  from batch_rl.fixed_replay import run_experiment
  from batch_rl.fixed_replay.agents import fixed_replay_agent

  # All modules are imported first, so that gin knows their classes.
  create = function_records.load(record['create_agent'])
  create_environment = None
  # Another runner's binding is in the record as that function.
  setting = 'FixedReplayRunner.create_environment_fn'
  config, unused = record['gin_config'], record.get('unused_bindings') or ()
  if setting in unused:  # The runner was given that function instead.
    config = re.sub(rf'(?m)^.*\b{setting} = .*', '', config)
  if not re.search(rf'\b{setting}', config):
    create_environment = function_records.load(record['create_environment'])
  by_name = create.func is run_experiment.create_offline_agent
  if by_name:
    _check_main(record)
    REGISTRY.find(record['agent'])
  # A module of the user's may have parsed gin files, and locked gin.
  gin.clear_config()
  # Another version may have accepted values that the check refuses now.
  recorded = gin_files.read([], [config])
  statements = gin_files.apply(recorded, lock=False, check=False)
  given = gin_files.read([], gin_bindings)
  statements += gin_files.apply(given, lock=False)
  _warn_of_other_code(record.get('code') or {})
  if by_name:
    any_agent.bind(statements, REGISTRY, REGISTRY.find(record['agent']))
    gin.bind_parameter('create_offline_agent.agent_name', record['agent'])

  def create_agent(session, environment, **_):
    with fixed_replay_agent.without_data():
      return create(session, environment, summary_writer=None)

  bound = gin.get_bindings(run_experiment.FixedReplayRunner)
  return create_agent, bound.get('create_environment_fn', create_environment)


def _check_main(record: Mapping[str, Any]) -> None:
  """Checks that an agent of the main program can be imported without running that."""
  module, _, name = record['agent'].rpartition('.')
  code = record.get('code') or {}
  if module == '__main__' and not hasattr(sys.modules[module], name):
    raise ValueError(
      f'{name} was defined in a notebook, or in a program whose file name is no module '
      'name: evaluate it there by the run.evaluate() of batch_rl.train, or train a class of '
      'a module.'
    )
  if '__main__' in code and module not in {'', '__main__', *code}:
    if (path := user_modules.find(record['agent'])) and os.path.isfile(path):
      function_records.check_script(path)


def _warn_of_other_code(recorded: Mapping[str, str]) -> None:
  """Warns of modules that are not those with which a run was trained."""
  now = user_modules.loaded_code()
  for name, before in recorded.items():
    if name != '__main__' and now.get(name, before) != before:
      logging.warning(
        '%s is not the code of %s that the run was trained with (hash %s, now %s).',
        sys.modules[name].__file__,
        name,
        before,
        now[name],
      )


def restore(agent: Any, checkpoint: checkpoints.Checkpoint) -> None:
  """Restores the weights of an agent that only acts, and what it has saved besides.

  Raises:
    ValueError: If the checkpoint is damaged, is gone, or does not fit the agent.
    OSError: If a file cannot be read at the moment.
  """
  # TensorFlow takes seconds to import.
  import tensorflow as tf

  from batch_rl.agents import restored_weights

  if not tf.io.gfile.isdir(checkpoint.directory):
    raise programs.MistakeError(
      f'{checkpoint.directory} was removed meanwhile, as training does with old ones: '
      'run the command again.'
    )
  restored_weights.load(agent, checkpoint.weights)
  if replay := getattr(agent, '_replay', None):
    replay.load = lambda *_: None  # It has no data.
  number, bundle = checkpoint.position.number, checkpoint.read()['agent']
  if bundle is None:
    return
  if agent.unbundle(checkpoint.directory, number, bundle) is False:
    raise ValueError(
      f'{type(agent).__name__}.unbundle refuses the checkpoint {checkpoint.directory}.'
    )


@contextlib.contextmanager
def acting_agent(
  base_dir: str, checkpoint: checkpoints.Checkpoint
) -> Iterator[Any]:
  """Context in which a run's agent acts, with its own gin configuration and graph.

  The caller's configuration is back afterwards. No environment is made: the agent gets
  the number of actions.

  Args:
    base_dir: Run directory.
    checkpoint: Checkpoint of the weights.

  Yields:
    The agent; its session is closed afterwards.

  Raises:
    ValueError: If the agent cannot be built, or the checkpoint does not fit it.
  """
  # TensorFlow takes seconds to import.
  import tensorflow as tf

  from batch_rl.fixed_replay.agents import fixed_replay_agent

  record = read_record(base_dir)
  num_actions = (record.get('environment') or {}).get('num_actions')
  if num_actions is None:
    raise ValueError(
      f'{base_dir}/{run_record.FILE_NAME} has no number of actions: it is of an '
      'earlier version; add "num_actions" to its "environment".'
    )
  environment = types.SimpleNamespace(
    action_space=types.SimpleNamespace(n=num_actions)
  )
  with gin_internals.separate_config(), tf.Graph().as_default():
    create, _ = load_functions(record, (), ())
    agent: Any = create(None, environment)
    if not issubclass(type(agent), fixed_replay_agent.FixedReplayAgentMixin):
      raise ValueError(
        f'{base_dir} is a run of {type(agent).__name__}, which is not derived from '
        'FixedReplayAgentMixin: its policy cannot be read.'
      )
    agent.eval_mode = True
    with contextlib.closing(agent._sess):
      restore(agent, checkpoint)
      yield agent
