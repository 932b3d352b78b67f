r"""Trains an agent offline on a run of the DQN Replay Dataset.

  python -um batch_rl.fixed_replay.train --base_dir=/tmp/rem \
    --replay_dir=$DATA_DIR/Pong/1 \
    --gin_files=batch_rl/fixed_replay/configs/rem.gin

The same command resumes a stopped run. The exit code is 0 if the run has finished, 2
after a mistake, 130 if Ctrl-C and 143 if SIGTERM has stopped it.
"""

import functools

from absl import flags

from batch_rl.dataset.store import store, store_directory
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.runs import checkpoints, command_line, interruption

command_line.define_flags()
flags.adopt_module_key_flags(command_line)  # for --help
flags.DEFINE_string(
  'replay_dir',
  None,
  'Run directory to train on, the folder above replay_logs; or a store.',
)
flags.DEFINE_string(
  'init_checkpoint_dir',
  None,
  'base_dir of another run, for the initial weights.',
)
FLAGS = flags.FLAGS


def main() -> None:
  """Checks the flags and the configuration, then builds and runs the runner."""
  interruption.exit_on_sigterm()
  with command_line.user_errors():
    replay_data_dir = store.find_data(FLAGS.replay_dir)
    command_line.check_agent(REGISTRY)
    # TensorFlow takes seconds to import, so flags are checked first.
    from batch_rl.fixed_replay import run_experiment
    from batch_rl.fixed_replay.agents import initial_weights

    record = command_line.start_run(
      'create_offline_agent',
      REGISTRY,
      replay_dir=store_directory.absolute(replay_data_dir),
      init_checkpoint_dir=FLAGS.init_checkpoint_dir
      and store_directory.absolute(FLAGS.init_checkpoint_dir),
    )
    run_experiment.check_game(replay_data_dir, command_line.atari_game())
    init_checkpoint_dir = FLAGS.init_checkpoint_dir
    if checkpoints.find(FLAGS.base_dir):
      init_checkpoint_dir = None  # a resumed run has its own weights
    if init_checkpoint_dir:
      initial_weights.latest_checkpoint(init_checkpoint_dir)
    runner = run_experiment.FixedReplayRunner(
      FLAGS.base_dir,
      functools.partial(
        run_experiment.create_offline_agent,
        replay_data_dir=replay_data_dir,
        init_checkpoint_dir=init_checkpoint_dir,
      ),
      record=record,
      accept_changes=FLAGS.accept_changes,
    )
  command_line.finish(runner)


if __name__ == '__main__':
  command_line.run(main, required=('base_dir', 'replay_dir'))
