r"""Evaluates checkpoints of a finished or a running run; needs no data.

  python -um batch_rl.fixed_replay.evaluate --base_dir=/tmp/rem \
    --checkpoints=best --video=best.mp4
"""

import os
import re
import zlib

import gin
from absl import flags, logging

from batch_rl.dataset.checks import videos
from batch_rl.runs import checkpoints, command_line, evaluations, run_record
from batch_rl.utils import files

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Not at import: `train` has some of these, too."""
  flags.DEFINE_string('base_dir', None, "A run's directory.")
  flags.DEFINE_string(
    'checkpoints',
    'last',
    "'last', 'best' (by the run's own evaluations), 'all', or iterations, e.g. 3,7.",
  )
  flags.DEFINE_integer(
    'evaluation_steps',
    None,
    "Agent steps to play at least; None for the run's.",
  )
  flags.DEFINE_integer(
    'environments',
    None,
    "Emulators to play in, side by side; None for the run's.",
  )
  flags.DEFINE_integer('seed', 0, 'Of the episodes.')
  flags.DEFINE_string(
    'video', None, 'Also record an episode of the last of them: a .mp4 or .gif.'
  )
  flags.DEFINE_multi_string(
    'gin_bindings', [], "gin bindings that override the run's configuration."
  )


def list_checkpoints(base_dir: str) -> dict[int, str]:
  """The checkpoints of a run that are there: `{iteration: prefix}`, ascending.

  Raises:
    ValueError: if there are none.
  """
  found = {
    checkpoint.position.number: checkpoint.weights
    for checkpoint in checkpoints.find(base_dir)
    if not checkpoint.position.steps
    and os.path.exists(checkpoint.weights + '.index')
  }
  if not found:
    raise ValueError(
      f'{base_dir} has no checkpoints; is it the base_dir of a run?'
    )
  return found


def choose_checkpoints(base_dir: str, chosen: str) -> dict[int, str]:
  """Those that a user asks for: `{iteration: prefix}`.

  Args:
    base_dir: of the run.
    chosen: 'last', 'best', 'all', or numbers of iterations with commas.

  Raises:
    ValueError: if one is not there.
  """
  there = list_checkpoints(base_dir)
  listed = ', '.join(map(str, there))
  if chosen == 'all':
    return there
  if chosen == 'last':
    numbers = [max(there)]
  elif chosen == 'best':
    numbers = [best_iteration(base_dir)]
  elif re.fullmatch(r'\d+(,\d+)*', chosen):
    numbers = [int(number) for number in chosen.split(',')]
  else:
    raise ValueError(
      f"checkpoints={chosen} is neither 'last', 'best', 'all' nor iterations like "
      '3,7.'
    )
  for number in numbers:
    if number not in there:
      raise ValueError(
        f'The checkpoint of iteration {number} is not in {base_dir} (any more): '
        f'there are {listed}. A run keeps the last Checkpoints.keep of them.'
      )
  return {number: there[number] for number in numbers}


def best_iteration(base_dir: str) -> int:
  """The iteration whose evaluation gave the highest mean return.

  Raises:
    ValueError: if the run has not written any.
  """
  means = {
    iteration: content['mean_return']
    for iteration, content in evaluations.read(base_dir).items()
    if content.get('mean_return') is not None
  }
  if not means:
    raise ValueError(f'{base_dir} has no evaluations to choose the best by.')
  return max(means, key=lambda iteration: (means[iteration], iteration))


def main() -> None:
  """Evaluates, prints a line for each checkpoint, and writes the episodes."""
  with command_line.user_errors():
    record = files.read_json(os.path.join(FLAGS.base_dir, run_record.FILE_NAME))
    if record is None:
      raise ValueError(
        f'{FLAGS.base_dir} has no {run_record.FILE_NAME}; is it the base_dir of a '
        'run of batch_rl.fixed_replay.train?'
      )
    if 'replay_dir' not in record:
      raise ValueError(f'{FLAGS.base_dir} is not a run of offline training.')
    chosen = choose_checkpoints(FLAGS.base_dir, FLAGS.checkpoints)
    if FLAGS.video:
      videos.check_output(FLAGS.video)
    from batch_rl.fixed_replay import run_experiment, vector_evaluation

    gin.parse_config(record['gin_config'])
    gin.parse_config(FLAGS.gin_bindings)
    gin.bind_parameter('create_offline_agent.agent_name', record['agent'])
    player = vector_evaluation.Player(
      run_experiment.create_offline_agent,
      FLAGS.environments or record.get('evaluation_environments') or 1,
      command_line.query_gin('FixedReplayRunner.max_steps_per_episode')
      or 27_000,
    )
    num_steps = FLAGS.evaluation_steps or command_line.query_gin(
      'FixedReplayRunner.evaluation_steps'
    )
  for iteration, prefix in chosen.items():
    player.load(prefix)
    seed = zlib.crc32(f'{FLAGS.seed} {iteration}'.encode())
    episodes = player.play(num_steps or 125_000, seed)
    path = evaluations.write(
      FLAGS.base_dir,
      iteration,
      episodes,
      player.num_environments,
      f'evaluate-{iteration}',
      seed=FLAGS.seed,
    )
    logging.info('Iteration %d: %s.', iteration, evaluations.summary(episodes))
    logging.info('episodes: %s', path)
  if FLAGS.video:
    total, length = player.record(FLAGS.video, FLAGS.seed)
    logging.info(
      'video of an episode of %d agent steps, return %g: %s',
      length,
      total,
      FLAGS.video,
    )


if __name__ == '__main__':
  define_flags()
  command_line.run(main, required=('base_dir',))
