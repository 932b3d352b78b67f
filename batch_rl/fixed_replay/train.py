r"""Trains an agent offline on a run of the DQN Replay Dataset.

  python -um batch_rl.fixed_replay.train --base_dir=/tmp/rem \
    --replay_dir=$DATA_DIR/Pong/1 \
    --gin_files=batch_rl/fixed_replay/configs/rem.gin

The same command resumes a stopped run. The exit code is 0 if the run has finished, 2
after a mistake, 130 if Ctrl-C and 143 if SIGTERM has stopped it.
"""

from typing import Any

from absl import flags

from batch_rl.fixed_replay import training
from batch_rl.runs import command_line, interruption

command_line.define_flags()
flags.DEFINE_string(
  'replay_dir',
  None,
  'Run directory to train on, the folder above replay_logs; or a store.',
)
FLAGS = flags.FLAGS


def create_agent(
  sess: Any, environment: Any, replay_data_dir: str, summary_writer: Any = None
) -> Any:
  """Creates the agent of the flags or gin, or DQN. For code written for the 2020 API.

  Code that replaces it replaces the program's agent, too. New code replaces
  `create_offline_agent`, see there.

  Args:
    sess: TensorFlow session; None creates one.
    environment: Environment whose action space the agent gets.
    replay_data_dir: Directory of the shards, or a store.
    summary_writer: Directory or writer of the TensorBoard files; None for no files.
  """
  from batch_rl.fixed_replay import run_experiment

  given = command_line.agent_of_flags('create_offline_agent')
  return run_experiment.create_offline_agent(
    sess, environment, replay_data_dir, summary_writer=summary_writer, **given
  )


_create_agent = create_agent


def main(unused_argv: Any = None) -> None:
  """Checks the flags and the configuration, then builds and runs the runner.

  Args:
    unused_argv: Unused.
  """
  interruption.exit_on_sigterm()
  with command_line.user_errors():
    command_line.require(('base_dir', 'replay_dir'))
    is_replaced = create_agent is not _create_agent
    runner = training.make_runner(FLAGS, create_agent if is_replaced else None)
  command_line.finish(runner)


if __name__ == '__main__':
  command_line.run(main)
