"""`make bench`: the speed of this package beside Dopamine's, on this machine.

Prints tables and asserts nothing. The parts: `benchmarks/data_path.py` (makes large shards on
its first run), `benchmarks/iteration.py`, online data generation, and
`benchmarks/sampling_rates.py`. `--quick` leaves out those that are programs themselves.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import functools
import os
import tempfile

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.baselines.agents import dqn_agent as logged_dqn_agent
from benchmarks import data_path, iteration, measuring, sampling_rates

_STEPS = 100  # agent steps a round
_HISTORY = 200  # agent steps before the first update
if measuring.QUICK:
  _STEPS, _HISTORY = 8, 40


def online() -> None:
  """Measures the agent steps/s of an online DQN, with and without a log."""
  with tempfile.TemporaryDirectory() as directory:
    plain = online_agent(None)
    logged = online_agent(os.path.join(directory, 'logged'))
    silent = online_agent(os.path.join(directory, 'silent'))
    silent.replay_log.add = lambda *transition, **_: None
    functions = {}
    for name, agent in (
      ('plain', plain),
      ('logged', logged),
      ('silent', silent),
    ):
      environment = atari_lib.create_atari_environment('Pong')
      iteration.single_steps(agent, environment, _HISTORY + _STEPS)
      functions[name] = functools.partial(
        iteration.single_steps, agent, environment, _STEPS
      )
    taken = measuring.interleave(functions, 40)
    logged.replay_log.close()
    silent.replay_log.close()
  measuring.row(
    'online DQN on Pong, agent steps/s (ours logs)',
    f'{_STEPS / np.median(taken["plain"]):.0f}',
    f'{_STEPS / np.median(taken["logged"]):.0f}',
    f'{np.median(taken["plain"] / taken["logged"]):.2f} x',
    '1.0 x',
  )
  share = 1 - np.median(taken['silent'] / taken['logged'])
  measuring.row(
    'online DQN on Pong, share of time for logging',
    '',
    f'{100 * share:.1f} %',
    '',
    '5 %',
  )


def online_agent(directory: str | None):
  """Returns an online DQN that logs to `directory`; if None, Dopamine's DQN."""
  gin.clear_config()
  with tf.Graph().as_default():
    if directory is None:
      return dqn_agent.DQNAgent(None, 6, min_replay_history=_HISTORY)
    return logged_dqn_agent.LoggedDQNAgent(
      None, 6, directory, min_replay_history=_HISTORY
    )


def main() -> None:
  """Prints the tables."""
  measuring.parser(__doc__).parse_args()
  logging.set_verbosity(logging.ERROR)
  measuring.header()
  if not measuring.QUICK:
    data_path.table()
    iteration.table()
  online()
  if not measuring.QUICK:
    print()
    sampling_rates.table(sampling_rates.stores())


if __name__ == '__main__':
  main()
