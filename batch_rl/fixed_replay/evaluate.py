r"""Evaluates checkpoints of an offline run, without its data.

  python -um batch_rl.fixed_replay.evaluate --base_dir=/tmp/rem \
    --checkpoints=best --video=best.mp4
"""

import zlib
from collections.abc import Callable
from typing import Any

import gin
from absl import flags, logging

from batch_rl.dataset.checks import videos
from batch_rl.fixed_replay import recorded_run
from batch_rl.runs import command_line, evaluations, gin_files, run_record
from batch_rl.utils import progress_bars
from batch_rl.utils.user_code import gin_signatures

_CHECKPOINTS = (
  "'last', 'best' by the run's own evaluations, 'all', or e.g. 3,7-9."
)
# Help of flags with a text or a number, and of those that can be repeated.
_TEXTS = {
  'base_dir': 'Directory of the run.',
  'video': "File, .mp4 or .gif, of the last checkpoint's episode with the best return.",
}
_COUNTS = {
  'evaluation_steps': 'Minimum number of agent steps for each checkpoint; default: as '
  'in the run.',
  'environments': 'Number of environments, at least 1; default: as in the run.',
}
_LISTS = {
  'module_dirs': 'Folders of your own modules, if they have moved.',
  'gin_bindings': "gin bindings that override the run's configuration.",
}


def define_flags() -> None:
  """Defines the flags; not at import, since `train` defines some of them too."""
  flags.DEFINE_integer('seed', 0, 'Seed of the episodes.')
  flags.DEFINE_string('checkpoints', 'last', _CHECKPOINTS)
  command_line.define(_TEXTS, _LISTS)
  for name, text in _COUNTS.items():
    flags.DEFINE_integer(name, None, text, lower_bound=1)


def _check_environment(record, environment):
  """Returns an environment, after checking its game, ROM and actions.

  Other settings of the emulator, e.g. sticky actions, may differ.
  """
  from batch_rl.runs import environments

  environments.check(environment)
  recorded = record.get('environment') or {}
  names = [n for n in ('game', 'rom_md5', 'num_actions') if n in recorded]
  before = {name: recorded[name] for name in names}
  now = environments.describe(environment)
  if changes := run_record.changes(before, {n: now.get(n) for n in names}):
    remedy = 'remove the bindings that change it'
    if before.get('game') == now.get('game') and 'rom_set' in now:
      remedy += f', or bind make_atari.rom_set to {recorded.get("rom_set")!r}'
    raise ValueError(
      f'The environment of the evaluation is not that of the run: {remedy}: '
      f'{"; ".join(changes)}.'
    )
  return environment


def main(given: Any = None) -> None:
  """Evaluates checkpoints.

  Args:
    given: An object with attributes of the flags' names; None for the flags.
  """
  with command_line.user_errors():
    play = prepare(given or command_line.take_flags())
  with command_line.run_errors():
    play()


def prepare(given: Any) -> Callable[[], list[evaluations.Episode]]:
  """Loads an agent and its environments.

  Args:
    given: An object with attributes of the flags' names.

  Returns:
    The function that evaluates each checkpoint, logs its mean return, and writes its
    episodes. It returns those of the last checkpoint.

  Raises:
    ValueError: If there is no such run or checkpoint, or a value is wrong.
  """
  command_line.require(['base_dir'], given)
  record = recorded_run.read_record(given.base_dir)
  gin_files.read([], given.gin_bindings)  # before anything slow
  chosen = recorded_run.intact_checkpoints(given.base_dir, given.checkpoints)
  if given.video is not None:
    videos.check_output(given.video)
  evaluations.check_writable(given.base_dir)
  create_agent, create_environment = recorded_run.load_functions(
    record, given.module_dirs, given.gin_bindings
  )
  import tensorflow as tf

  from batch_rl.fixed_replay import run_experiment, vector_evaluation
  from batch_rl.runs import environments as environments_lib
  from batch_rl.runs import runner as runner_lib

  def create_checked_environment():
    return _check_environment(record, create_environment())

  runner = run_experiment.FixedReplayRunner
  bound = gin.get_bindings(runner)
  tf.config.experimental.enable_tensor_float_32_execution(
    bound.get('tensor_float_32', record.get('tensor_float_32', False))
  )
  environment = create_checked_environment()
  if given.video:
    environment.reset()
    environments_lib.screen(environment)  # refuses one without images
  with runner_lib.session_threads(bound.get('intra_op_threads')):
    agent = create_agent(None, environment)
  agent.eval_mode = True
  vector_evaluation.name_ignored_methods(type(agent))
  max_steps = gin_signatures.configured_value(runner, 'max_steps_per_episode')
  setting = 'evaluation_environments'
  count = given.environments or bound.get(setting) or record.get(setting) or 1
  environments = vector_evaluation.make_environments(
    environment, count, max_steps, agent, create_checked_environment
  )
  names = [line.split('=')[0].strip() for line in given.gin_bindings]
  for name in command_line.unused_bindings():
    is_given = any(line.endswith(name) for line in names)
    if is_given and 'FixedReplayRunner.' not in name:
      logging.warning(
        'The gin binding %s has no effect on this evaluation.', name
      )
  num_steps = given.evaluation_steps
  if num_steps is None:
    num_steps = gin_signatures.configured_value(runner, 'evaluation_steps')
  if not num_steps:
    raise ValueError('The run has no evaluations: give --evaluation_steps.')

  def play():
    for iteration, checkpoint in chosen.items():
      recorded_run.restore(agent, checkpoint)
      seed = zlib.crc32(f'{given.seed} {iteration}'.encode())
      with progress_bars.bar(total=num_steps) as bar:
        episodes = vector_evaluation.play_episodes(
          environments, agent.select_actions, num_steps, seed, bar.update
        )
      summary = evaluations.summary(episodes)
      logging.info('Iteration %d: %s.', iteration, summary)
      results = episodes, environments.num_envs, f'evaluate-{iteration}'
      about = {'seed': given.seed, 'gin_bindings': [*given.gin_bindings]}
      path = evaluations.write(given.base_dir, iteration, *results, **about)
      logging.info('episodes: %s', path)
    if given.video:
      best = max(episodes, key=lambda episode: episode.undiscounted_return)
      same = [e for e in episodes if e.environment == best.environment]
      place = best.environment, same.index(best)
      shown = vector_evaluation.record_video(
        given.video, environment, max_steps, agent, seed, *place
      )
      logging.info(
        'video of the best of %d episodes, %d agent steps, return %g: %s',
        len(episodes),
        shown.length,
        shown.undiscounted_return,
        given.video,
      )
      if shown != best:
        logging.warning(
          'The video does not repeat the episode of the evaluation, with return %g: the '
          'environment or the agent is not determined by the seed.',
          best.undiscounted_return,
        )
    return episodes

  return play


if __name__ == '__main__':
  define_flags()
  command_line.run(main)
