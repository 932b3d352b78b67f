"""`make bench`: what this package costs, beside Dopamine, in one run.

Prints a table; each row is a ratio measured on this machine, now. Asserts nothing.
"""

import batch_rl  # noqa: F401  isort: skip  (before Dopamine)

import functools
import os
import tempfile
import time

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib
from dopamine.tf.agents.dqn import dqn_agent
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.baselines.agents import dqn_agent as logged_dqn_agent
from batch_rl.dataset import shard
from batch_rl.fixed_replay import run_experiment
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer

DATA_DIR = 'data/Pong/1/replay_logs'


def seconds(function, repeat: int) -> float:
  """Median time of one call, in seconds, over `repeat` calls."""
  function()
  times = []
  for _ in range(repeat):
    start = time.perf_counter()
    function()
    times.append(time.perf_counter() - start)
  return float(np.median(times))


def row(what: str, dopamine: str, ours: str, ratio: str = '') -> None:
  """Prints a line of the table."""
  print(
    f'| {what:<44} | {dopamine:>16} | {ours:>16} | {ratio:>7} |', flush=True
  )


def sampling() -> None:
  """A batch of 32 from one shard in memory."""
  capacity = shard.read_header(
    os.path.join(DATA_DIR, shard.file_name('terminal', 1))
  ).shape[0]
  arguments = ((84, 84), 4, capacity, 32)
  theirs = circular_replay_buffer.OutOfGraphReplayBuffer(*arguments)
  load = functools.partial(theirs.load, DATA_DIR, 1)
  slow = seconds(load, 3)
  ours = fixed_replay_buffer.FixedReplayBuffer(DATA_DIR, 1, *arguments)
  fast = seconds(functools.partial(ours._load_buffer, 1), 3)
  row(
    f'load a shard of {capacity:,} rows, per million',
    f'{slow * 1e6 / capacity:.1f} s',
    f'{fast * 1e6 / capacity:.1f} s',
    f'{slow / fast:.2f} x',
  )
  slow = seconds(theirs.sample_transition_batch, 200)
  fast = seconds(ours.sample_transition_batch, 200)
  row(
    'sample a batch of 32',
    f'{slow * 1e3:.2f} ms',
    f'{fast * 1e3:.2f} ms',
    f'{slow / fast:.2f} x',
  )


def updates(name: str) -> None:
  """Updates a second of an offline agent, as its gin file configures it."""
  tf.compat.v1.reset_default_graph()
  gin.clear_config()
  gin.parse_config_file(f'batch_rl/fixed_replay/configs/{name}.gin')
  environment = atari_lib.create_atari_environment()
  agent = run_experiment.create_offline_agent(
    None, environment, replay_data_dir=DATA_DIR
  )
  list(agent.train_steps(40))
  start = time.perf_counter()
  count = len(list(agent.train_steps(600)))
  rate = count / (time.perf_counter() - start)
  row(f'updates/s, offline {name}', '', f'{rate:.1f}')


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
      play(agent, environment, 300)
      start = time.perf_counter()
      play(agent, environment, 1000)
      rates.setdefault(kind, []).append(1000 / (time.perf_counter() - start))
      if kind == 'logged':
        agent.replay_log.close()
  plain, logged = (np.mean(rates[kind]) for kind in ('plain', 'logged'))
  row(
    'online DQN on Pong, agent steps/s (ours logs)',
    f'{plain:.0f}',
    f'{logged:.0f}',
    f'{logged / plain:.2f} x',
  )


def play(agent, environment, steps: int) -> None:
  """Lets an agent learn online for some agent steps."""
  action = agent.begin_episode(environment.reset())
  for _ in range(steps):
    observation, reward, terminal, _ = environment.step(action)
    if terminal:
      agent.end_episode(reward)
      action = agent.begin_episode(environment.reset())
    else:
      action = agent.step(reward, observation)


def main() -> None:
  """Prints the table."""
  logging.set_verbosity(logging.ERROR)
  row('', 'Dopamine', 'batch_rl', 'ratio')
  row('---', '---', '---', '---')
  sampling()
  online()
  for name in ('dqn', 'c51', 'quantile', 'multi_head_dqn', 'rem'):
    updates(name)
  updates('multi_network_rem')


if __name__ == '__main__':
  main()
