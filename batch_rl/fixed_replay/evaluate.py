r"""Evaluates checkpoints of an offline run, without its data.

  python -um batch_rl.fixed_replay.evaluate --base_dir=/tmp/rem \
    --checkpoints=best --video=best.mp4
"""

import math
import os
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gin
import tqdm.auto as tqdm
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
from batch_rl.utils import number_ranges
from batch_rl.utils.user_code import (
  function_records,
  gin_signatures,
  user_modules,
)

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines the flags; not at import, since `train` defines some of them too."""
  flags.DEFINE_string('base_dir', None, 'Directory of the run.')
  flags.DEFINE_string(
    'checkpoints',
    'last',
    "'last', 'best' (by the run's own evaluations), 'all', or iterations, e.g. 3,7-9.",
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
  }
  if not found:
    raise ValueError(
      f'{base_dir} has no checkpoints; is it the base_dir of a run?'
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
    ValueError: If the agent or a function cannot be imported.
  """
  for folder in (*(record.get('modules') or ()), *module_dirs, os.getcwd()):
    user_modules.add_folder(folder)
  # TensorFlow takes seconds to import.
  from batch_rl.fixed_replay import run_experiment
  from batch_rl.fixed_replay.agents import fixed_replay_agent

  # All modules are imported first, so that gin knows their classes.
  create = function_records.load(record['create_agent'])
  create_environment = None
  if 'create_environment_fn' not in record['gin_config']:
    create_environment = function_records.load(record['create_environment'])
  by_name = create.func is run_experiment.create_offline_agent
  if by_name:
    REGISTRY.find(record['agent'])
  # A module of the user's may have parsed gin files, and locked gin.
  gin.clear_config()
  # Another version may have accepted values that the check refuses now.
  lines = [*filter(_is_known, record['gin_config'].split('\n'))]
  recorded = gin_files.read([], lines)
  statements = gin_files.apply(recorded, lock=False, check=False)
  given = gin_files.read([], gin_bindings)
  statements += gin_files.apply(given, lock=False)
  if by_name:
    any_agent.bind(statements, REGISTRY, REGISTRY.find(record['agent']))
    gin.bind_parameter('create_offline_agent.agent_name', record['agent'])

  def create_agent(session, environment, **_):
    with fixed_replay_agent.without_data():
      return create(session, environment, summary_writer=None)

  bound = gin.get_bindings(run_experiment.FixedReplayRunner)
  return create_agent, bound.get('create_environment_fn', create_environment)


def _is_known(line: str) -> bool:
  """Returns whether a recorded line binds no parameter of earlier versions only."""
  removed = 'mixed_precision|start_early|deterministic|devices|acting_seed'
  is_removed = re.match(rf'[\w./]+\.({removed}) = ', line)
  if is_removed:
    logging.warning('The recorded %s has no effect any more.', line)
  return not is_removed


def _check_environment(record, environment):
  """Checks that an environment has the game, ROM and actions of a run.

  Other settings of the emulator, e.g. sticky actions, may differ.
  """
  from batch_rl.runs import environments

  environments.check(environment)
  recorded = record.get('environment') or {}
  names = [n for n in ('game', 'rom_md5', 'num_actions') if n in recorded]
  before = {name: recorded[name] for name in names}
  now = environments.describe(environment)
  if changes := run_record.changes(before, {n: now.get(n) for n in names}):
    raise ValueError(
      'The environment of the evaluation is not that of the run: remove the bindings '
      'that change it, or bind make_atari.rom_set to '
      f'{recorded.get("rom_set")!r}: {"; ".join(changes)}.'
    )


def main() -> None:
  """Evaluates each checkpoint, logs its mean return, and writes its episodes."""
  with command_line.user_errors():
    if not FLAGS.base_dir:
      raise ValueError('missing --base_dir')
    record = run_record.read(
      FLAGS.base_dir,
      required=('agent', 'gin_config', 'create_agent', 'create_environment'),
    )
    if record is None:
      raise ValueError(
        f'{FLAGS.base_dir} has no {run_record.FILE_NAME}; is it the base_dir of a '
        'run of batch_rl.fixed_replay.train?'
      )
    if 'replay_dir' not in record:
      raise ValueError(f'{FLAGS.base_dir} is not a run of offline training.')
    gin_files.read([], FLAGS.gin_bindings)  # before anything slow
    available = list_checkpoints(FLAGS.base_dir)
    chosen = choose_checkpoints(FLAGS.base_dir, available, FLAGS.checkpoints)
    if FLAGS.video is not None:
      videos.check_output(FLAGS.video)
    problems = (available[iteration].problem() for iteration in chosen)
    if problem := next(filter(None, problems), None):
      intact = [str(n) for n, other in available.items() if not other.problem()]
      raise ValueError(
        f'{problem}; intact are: --checkpoints={",".join(intact) or "(none)"}.'
      )
    create_agent, create_environment = load_functions(
      record, FLAGS.module_dirs, FLAGS.gin_bindings
    )
    import tensorflow as tf

    from batch_rl.agents import restored_weights
    from batch_rl.fixed_replay import run_experiment, vector_evaluation
    from batch_rl.runs import environments as environments_lib

    def create_checked_environment():
      environment = create_environment()
      _check_environment(record, environment)
      return environment

    runner = run_experiment.FixedReplayRunner
    bound = gin.get_bindings(runner)
    tf.config.experimental.enable_tensor_float_32_execution(
      bound.get('tensor_float_32', record.get('tensor_float_32', False))
    )
    environment = create_checked_environment()
    if FLAGS.video:
      environment.reset()
      environments_lib.screen(environment)  # refuses one without images
    agent = create_agent(None, environment)
    agent.eval_mode = True
    max_steps = gin_signatures.configured_value(runner, 'max_steps_per_episode')
    environments = vector_evaluation.make_environments(
      environment,
      FLAGS.environments
      or bound.get('evaluation_environments')
      or record.get('evaluation_environments')
      or 1,
      max_steps,
      agent,
      create_checked_environment,
    )
    num_steps = (
      FLAGS.evaluation_steps
      or gin_signatures.configured_value(runner, 'evaluation_steps')
      or 125_000  # of a run without evaluations
    )
  with command_line.run_errors():
    for iteration in chosen:
      with command_line.user_errors():
        restored_weights.load(agent, available[iteration].weights)
      seed = zlib.crc32(f'{FLAGS.seed} {iteration}'.encode())
      with tqdm.tqdm(total=num_steps, disable=None, leave=False) as bar:
        episodes = vector_evaluation.play_episodes(
          environments, agent.select_actions, num_steps, seed, bar.update
        )
      path = evaluations.write(
        FLAGS.base_dir,
        iteration,
        episodes,
        environments.num_envs,
        f'evaluate-{iteration}',
        seed=FLAGS.seed,
      )
      logging.info(
        'Iteration %d: %s.', iteration, evaluations.summary(episodes)
      )
      logging.info('episodes: %s', path)
    if FLAGS.video:
      episode = vector_evaluation.record_video(
        FLAGS.video, environment, max_steps, agent, FLAGS.seed
      )
      logging.info(
        'video of an episode of %d agent steps, return %g: %s',
        episode.length,
        episode.undiscounted_return,
        FLAGS.video,
      )


if __name__ == '__main__':
  define_flags()
  command_line.run(main)
