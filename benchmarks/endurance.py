"""Memory over 200,000 updates of a small network.

  python -um benchmarks.endurance [--quick]

An offline DQN on CartPole, with the runner of the main job: twenty iterations of 10,000
updates, each with an evaluation and a checkpoint. Takes a few minutes.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import functools
import os
import tempfile
import time

import gin
from absl import logging

from batch_rl.fixed_replay import run_experiment
from batch_rl.runs import command_line
from batch_rl.tests import cartpole, learning_test
from benchmarks import measuring, processes

UPDATES = 10_000  # an iteration
ITERATIONS = 20
if measuring.QUICK:
  UPDATES, ITERATIONS = 100, 2
BINDINGS = f"""
    {{agent}}.update_period = 4
    {{agent}}.target_update_period = 400
    FixedReplayRunner.num_iterations = {ITERATIONS}
    FixedReplayRunner.training_steps = {4 * UPDATES}
    FixedReplayRunner.evaluation_steps = 200
    Checkpoints.every_steps = {UPDATES}
"""


class Runner(run_experiment.FixedReplayRunner):
  """Prints a line after each iteration."""

  def _log_experiment(self, iteration, statistics):
    super()._log_experiment(iteration, statistics)
    rate = statistics['train_updates_per_second'][0]
    cells = [(iteration + 1) * UPDATES, processes.memory() / 1e6, rate]
    print('| ' + ' | '.join(f'{cell:>12,.1f}' for cell in cells) + ' |')


def main() -> None:
  """Prints resident memory after each iteration."""
  measuring.parser(__doc__).parse_args()
  logging.set_verbosity(logging.ERROR)
  names = {
    'runner': 'FixedReplayRunner',
    'create_agent': 'create_offline_agent',
    'agent': 'FixedReplayDQNAgent',
    'name': 'dqn',
  }
  templates = (
    learning_test.EVERYWHERE,
    learning_test.LEARNER,
    learning_test.NETWORKS['dqn'],
    BINDINGS,
  )
  start = time.monotonic()
  with tempfile.TemporaryDirectory() as directory:
    log = os.path.join(directory, 'log')
    cartpole.write_log(log)
    gin.clear_config()
    command_line.load_gin([], [t.format(**names) for t in templates])
    measuring.table(('updates', 'resident MB', 'updates/s'), [])
    Runner(
      os.path.join(directory, 'run'),
      functools.partial(
        run_experiment.create_offline_agent, replay_data_dir=log
      ),
    ).run_experiment()
  print(f'{time.monotonic() - start:.0f} s')


if __name__ == '__main__':
  main()
