r"""Trains an agent online and logs its experience in the dataset's format.

  python -um batch_rl.baselines.train --base_dir=/tmp/dqn \
    --replay_log_dir=$DATA_DIR/Pong/1 \
    --gin_files=batch_rl/baselines/configs/dqn.gin

The same command resumes a stopped run. The exit code is 0 if the run has finished, 2
after a mistake, 130 if Ctrl-C and 143 if SIGTERM has stopped it.
"""

import functools
import os
from typing import Any

from absl import flags

from batch_rl.baselines.agents import REGISTRY
from batch_rl.dataset import run_directories
from batch_rl.runs import command_line, games, interruption, run_record
from batch_rl.runs.bindings import bound
from batch_rl.utils import files

command_line.define_flags()
flags.DEFINE_string(
  'replay_log_dir',
  None,
  'Run directory to log to; its folder replay_logs receives the shards. By default '
  'base_dir.',
)
FLAGS = flags.FLAGS


def create_agent(
  sess: Any, environment: Any, replay_log_dir: str, summary_writer: Any = None
) -> Any:
  """Creates the agent of the flags or gin, or DQN. For code written for the 2020 API.

  Code that replaces it replaces the program's agent, too. New code replaces
  `create_online_agent`, see there.

  Args:
    sess: TensorFlow session; None creates one.
    environment: Environment whose action space the agent gets.
    replay_log_dir: Run directory; shards go to its `replay_logs`.
    summary_writer: Directory or writer of the TensorBoard files; None for no files.
  """
  from batch_rl.baselines import run_experiment

  given = command_line.agent_of_flags('create_online_agent')
  return run_experiment.create_online_agent(
    sess, environment, replay_log_dir, summary_writer=summary_writer, **given
  )


_create_agent = create_agent


def main(unused_argv: Any = None) -> None:
  """Checks the settings, then builds the runner and runs it.

  Args:
    unused_argv: Unused.
  """
  interruption.exit_on_sigterm()
  with command_line.user_errors():
    command_line.require(('base_dir',))
    FLAGS.set_default('replay_log_dir', FLAGS.base_dir)
    command_line.require(('replay_log_dir',))
    remedy = 'give --replay_log_dir, a local directory for the log'
    files.check_local(FLAGS.replay_log_dir, remedy)
    sources = command_line.read_gin(REGISTRY)
    # TensorFlow takes seconds to import, so flags are checked first.
    from batch_rl.baselines import run_experiment
    from batch_rl.baselines.agents import logged_agent
    from batch_rl.dataset.shards import replay_log
    from batch_rl.runs import initial_weights

    record = command_line.start_run(
      command_line.configure(sources, 'create_online_agent', REGISTRY)
    )
    init_checkpoint_dir = initial_weights.needed(FLAGS, record, REGISTRY)
    _check_offline_game()
    logs = os.path.normpath(logged_agent.log_directory(FLAGS.replay_log_dir))
    parent = os.path.dirname(logs) or '.'
    run_record.lock(parent, '--replay_log_dir', '.log.lock')
    replay_log.check_log_directory(logs, record['run_id'])
    create: Any = create_agent
    if create_agent is _create_agent:  # Another one may load weights, or not.
      create = functools.partial(
        run_experiment.create_online_agent,
        init_checkpoint_dir=init_checkpoint_dir,
      )
    runner = run_experiment.LoggedRunner(
      FLAGS.base_dir,
      functools.partial(create, replay_log_dir=FLAGS.replay_log_dir),
      record=record,
      accept_changes=FLAGS.accept_changes,
    )
  command_line.finish(runner)


def _check_offline_game() -> None:
  """Checks that the memory's offline data is of the game, before it is read."""
  memory = 'WrappedLoggedReplayBuffer'
  offline_dir = bound.query(f'{memory}.offline_dir')
  if offline_dir and bound.query(f'{memory}.offline_fraction'):
    data_dir = run_directories.find_data(offline_dir)
    games.check_game(data_dir, games.configured_game(), is_online=True)


if __name__ == '__main__':
  command_line.run(main)
