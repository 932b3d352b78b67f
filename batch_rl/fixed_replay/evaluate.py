r"""Evaluates checkpoints of an offline run, without its data.

  python -um batch_rl.fixed_replay.evaluate --base_dir=/tmp/rem \
    --checkpoints=best --video=best.mp4
"""

import math
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
from absl import flags, logging

from batch_rl.dataset.checks import videos
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.runs import (
  checkpoints,
  command_line,
  evaluations,
  gin_files,
  run_record,
)
from batch_rl.runs.bindings import any_agent
from batch_rl.utils import files
from batch_rl.utils.user_code import (
  function_records,
  gin_signatures,
  user_modules,
)

FLAGS = flags.FLAGS
# Functions of a run that does not record them.
_CREATE_AGENT = {
  'name': 'batch_rl.fixed_replay.run_experiment:create_offline_agent',
  'kwargs': {'replay_data_dir': None},
}
_CREATE_ENVIRONMENT = {
  'name': 'dopamine.discrete_domains.atari_lib:create_atari_environment'
}


def define_flags() -> None:
  """Defines the flags; not at import, since `train` defines some of them too."""
  flags.DEFINE_string('base_dir', None, 'Directory of the run.')
  flags.DEFINE_string(
    'checkpoints',
    'last',
    "'last', 'best' (by the run's own evaluations), 'all', or iterations, e.g. 3,7.",
  )
  flags.DEFINE_integer(
    'evaluation_steps',
    None,
    "Minimum number of agent steps for each checkpoint; default: the run's.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    'environments',
    None,
    "Number of environments, at least 1; default: the run's.",
    lower_bound=1,
  )
  flags.DEFINE_integer('seed', 0, 'Seed of the episodes.')
  flags.DEFINE_string(
    'video',
    None,
    'File name (.mp4 or .gif) for a video of an episode of the last checkpoint.',
  )
  flags.DEFINE_multi_string(
    'module_dirs', [], 'Folders of your own modules, if they have moved.'
  )
  flags.DEFINE_multi_string(
    'gin_bindings', [], "gin bindings that override the run's configuration."
  )


def list_checkpoints(base_dir: str) -> dict[int, checkpoints.Checkpoint]:
  """Returns the checkpoints at the ends of iterations, `{iteration: checkpoint}`.

  Raises:
    ValueError: If there are none.
  """
  found = {
    checkpoint.position.number: checkpoint
    for checkpoint in checkpoints.find(base_dir)
    if not checkpoint.position.steps
    and not (
      checkpoint.by_dopamine and not files.exists(checkpoint.weights + '.index')
    )
  }
  if not found:
    raise ValueError(
      f'{base_dir} has no checkpoints; is it the base_dir of a run?'
    )
  return found


def choose_checkpoints(
  base_dir: str, chosen: str
) -> dict[int, checkpoints.Checkpoint]:
  """Returns the checkpoints that a user chose, `{iteration: checkpoint}`.

  Args:
    base_dir: Run directory.
    chosen: 'last', 'best', 'all', or comma-separated iterations.

  Raises:
    ValueError: If a checkpoint is missing.
  """
  available = list_checkpoints(base_dir)
  listed = ', '.join(map(str, available))
  if chosen == 'all':
    return available
  if chosen == 'last':
    numbers = [max(available)]
  elif chosen == 'best':
    numbers = [best_iteration(base_dir)]
  elif re.fullmatch(r'\d+(,\d+)*', chosen):
    numbers = [int(number) for number in chosen.split(',')]
  else:
    raise ValueError(
      f"--checkpoints={chosen} is neither 'last', 'best' or 'all' nor iterations "
      'like 3,7.'
    )
  for number in numbers:
    if number not in available:
      raise ValueError(
        f'{base_dir} has no checkpoint of iteration {number}, only of {listed}: '
        'choose one of these. A run keeps its last Checkpoints.keep checkpoints, and '
        'each Checkpoints.keep_every-th.'
      )
  return {number: available[number] for number in numbers}


def verify_checkpoints(
  base_dir: str, chosen: Mapping[int, checkpoints.Checkpoint]
) -> None:
  """Verifies checkpoints as a resumed run does.

  Args:
    base_dir: Run directory.
    chosen: Checkpoints by iteration.

  Raises:
    ValueError: If one is damaged. The message lists the intact ones.
  """
  for checkpoint in chosen.values():
    if problem := _damage(checkpoint):
      intact = [
        str(number)
        for number, other in list_checkpoints(base_dir).items()
        if _damage(other) is None
      ]
      advice = (
        f'evaluate others: --checkpoints={",".join(intact)}'
        if intact
        else 'no checkpoint is intact'
      )
      raise ValueError(f'{problem.rstrip(".")}; {advice}.')


def _damage(checkpoint):
  """Returns what is wrong with a checkpoint, or None."""
  try:
    checkpoint.read()
  except ValueError as error:
    return str(error)
  return None


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
    ValueError: If the agent or a function cannot be imported, or a binding changes
      the inputs of the networks.
  """
  for folder in (*(record.get('modules') or ()), *module_dirs, os.getcwd()):
    user_modules.add_folder(folder)
  # TensorFlow takes seconds to import.
  from batch_rl.fixed_replay import run_experiment
  from batch_rl.fixed_replay.agents import fixed_replay_agent

  # All modules are imported first, so that gin knows their classes.
  create = function_records.load(record.get('create_agent') or _CREATE_AGENT)
  create_environment = None
  if 'create_environment_fn' not in record['gin_config']:
    create_environment = function_records.load(
      record.get('create_environment') or _CREATE_ENVIRONMENT
    )
  by_name = create.func is run_experiment.create_offline_agent
  if by_name:
    REGISTRY.find(record['agent'])
  # A module of the user's may have parsed gin files, and locked gin.
  gin.clear_config()
  # An older version may have accepted values that the check refuses now.
  lines = record['gin_config'].split('\n')
  statements = gin_files.parse([], lines, lock=False, check=False)
  before = _network_inputs(record)
  statements += gin_files.parse([], gin_bindings, lock=False)
  if by_name:
    any_agent.bind(statements, REGISTRY, REGISTRY.find(record['agent']))
  after = _network_inputs(record)
  for name, value in before.items():
    if after[name] != value:
      raise ValueError(
        f'{name} is {value} in the run and {after[name]} in --gin_bindings: remove '
        f'the binding, since the networks were trained with {name} = {value}.'
      )
  if by_name:
    gin.bind_parameter('create_offline_agent.agent_name', record['agent'])

  def create_agent(session, environment, **_):
    with fixed_replay_agent.without_data():
      return create(session, environment, summary_writer=None)

  bound = gin.get_bindings(run_experiment.FixedReplayRunner)
  return create_agent, bound.get('create_environment_fn', create_environment)


def _network_inputs(record):
  """Returns the configured inputs of the networks; {} for an unknown class."""
  try:
    agent = REGISTRY.find(record.get('agent'))
    return {
      name: gin_signatures.configured_value(agent, name)
      for name in ('stack_size', 'observation_shape', 'observation_dtype')
    }
  except ValueError:  # defined inside a function, for one
    return {}


def check_environment(
  before: Mapping[str, Any], environment: Any, base_dir: str
) -> None:
  """Checks that an environment has the game of a run.

  Settings of the emulator, e.g. sticky actions, may differ.

  Args:
    before: Environment in the run's record.
    environment: Environment to evaluate in.
    base_dir: Run directory, for a message.

  Raises:
    ValueError: If game, ROM or number of actions differ.
  """
  from batch_rl.runs import environments

  now = environments.describe(environment)
  for name in ('game', 'rom_md5', 'num_actions'):
    if name in before and before[name] != now.get(name):
      hint = (
        'bind make_atari.rom_set to the ROM set of the run, '
        f'{before.get("rom_set")!r} (now {now.get("rom_set")!r})'
        if name == 'rom_md5'
        else 'remove the binding, or choose another --base_dir'
      )
      raise ValueError(
        f'{base_dir} holds a run with {name} = {before[name]}, but the environment '
        f'of the evaluation has {name} = {now.get(name)}: {hint}.'
      )


def main() -> None:
  """Evaluates each checkpoint, logs its mean return, and writes its episodes."""
  with command_line.user_errors():
    if not FLAGS.base_dir:
      raise ValueError('missing --base_dir')
    record = run_record.read(FLAGS.base_dir, required=('agent', 'gin_config'))
    if record is None:
      raise ValueError(
        f'{FLAGS.base_dir} has no {run_record.FILE_NAME}; is it the base_dir of a '
        'run of batch_rl.fixed_replay.train?'
      )
    if 'replay_dir' not in record:
      raise ValueError(f'{FLAGS.base_dir} is not a run of offline training.')
    gin_files.read([], FLAGS.gin_bindings)  # before anything slow
    chosen = choose_checkpoints(FLAGS.base_dir, FLAGS.checkpoints)
    if FLAGS.video is not None:
      videos.check_output(FLAGS.video)
    verify_checkpoints(FLAGS.base_dir, chosen)
    create_agent, create_environment = load_functions(
      record, FLAGS.module_dirs, FLAGS.gin_bindings
    )
    import tensorflow as tf

    from batch_rl.fixed_replay import run_experiment, vector_evaluation
    from batch_rl.runs import environments

    def create_checked_environment():
      environment = create_environment()
      environments.check(environment)
      before = record.get('environment') or {}
      check_environment(before, environment, FLAGS.base_dir)
      return environment

    runner = run_experiment.FixedReplayRunner
    bound = gin.get_bindings(runner)
    tf.config.experimental.enable_tensor_float_32_execution(
      bound.get('tensor_float_32', record.get('tensor_float_32', False))
    )
    evaluator = vector_evaluation.Evaluator(
      create_agent,
      FLAGS.environments
      or bound.get('evaluation_environments')
      or record.get('evaluation_environments')
      or 1,
      gin_signatures.configured_value(runner, 'max_steps_per_episode'),
      create_checked_environment,
    )
    if FLAGS.video:
      evaluator.check_video()
    for checkpoint in chosen.values():
      evaluator.load(checkpoint.weights)
    num_steps = FLAGS.evaluation_steps or gin_signatures.configured_value(
      runner, 'evaluation_steps'
    )
  with command_line.run_errors():
    for iteration, checkpoint in chosen.items():
      with command_line.user_errors():
        evaluator.load(checkpoint.weights)
      seed = zlib.crc32(f'{FLAGS.seed} {iteration}'.encode())
      # A run without evaluations has `evaluation_steps = 0`.
      episodes = evaluator.evaluate(num_steps or 125_000, seed)
      path = evaluations.write(
        FLAGS.base_dir,
        iteration,
        episodes,
        evaluator.num_environments,
        f'evaluate-{iteration}',
        seed=FLAGS.seed,
      )
      logging.info(
        'Iteration %d: %s.', iteration, evaluations.summary(episodes)
      )
      logging.info('episodes: %s', path)
    if FLAGS.video:
      total, length = evaluator.record_video(FLAGS.video, FLAGS.seed)
      logging.info(
        'video of an episode of %d agent steps, return %g: %s',
        length,
        total,
        FLAGS.video,
      )


if __name__ == '__main__':
  define_flags()
  command_line.run(main, resumes=False)
