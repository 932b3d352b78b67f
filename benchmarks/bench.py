"""`make bench`: what this package costs, beside Dopamine, in one run.

Prints a table, measured on this machine, now. Asserts nothing. Its parts are
`benchmarks/data_path.py`, which makes large shards at its first run,
`benchmarks/iteration.py`, and online data generation. There are also
`benchmarks/codecs.py`, why frames are compressed as they are, and
`benchmarks/full_scale.py`, a run of 51 million rows.
"""

import batch_rl  # noqa: F401  isort: skip  (before Dopamine)

import tempfile
import time

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.baselines.agents import dqn_agent as logged_dqn_agent
from benchmarks import data_path, iteration, measuring


def online() -> None:
  """Agent steps a second of an online DQN, with and without the log."""
  rates = {}
  for kind in ('plain', 'logged', 'logged', 'plain'):
    tf.compat.v1.reset_default_graph()
    gin.clear_config()
    environment = atari_lib.create_atari_environment('Pong')
    with tempfile.TemporaryDirectory() as directory:
      if kind == 'plain':
        agent = dqn_agent.DQNAgent(None, 6, min_replay_history=200)
      else:
        agent = logged_dqn_agent.LoggedDQNAgent(
          None, 6, directory, min_replay_history=200
        )
      iteration.single_steps(agent, environment, 300)
      start = time.perf_counter()
      iteration.single_steps(agent, environment, 1000)
      rates.setdefault(kind, []).append(1000 / (time.perf_counter() - start))
      if kind == 'logged':
        agent.replay_log.close()
  plain, logged = (np.mean(rates[kind]) for kind in ('plain', 'logged'))
  measuring.row(
    'online DQN on Pong, agent steps/s (ours logs)',
    f'{plain:.0f}',
    f'{logged:.0f}',
    f'{logged / plain:.2f} x',
  )


def main() -> None:
  """Prints the table."""
  logging.set_verbosity(logging.ERROR)
  measuring.header()
  data_path.table()
  iteration.table()
  online()


if __name__ == '__main__':
  main()
