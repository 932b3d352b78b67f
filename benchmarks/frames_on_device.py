"""Small networks with their frames on the device, beside the ordinary feed.

  python -um benchmarks.frames_on_device [--quick]

DQN with two dense layers on CartPole's observations, float64 (4, 1), and with one
convolution on planes of MinAtar's size, bool (10, 10, 4), on the CPU; the logs are random.
Rounds of 500 updates alternate, in one process:

- the same graph with a constant batch, which a call of Python returns. `frames_on_device`
  makes fewer calls, so it may be faster;
- `frames_on_device = True`, and False.

The shares are medians over the rounds.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import functools
import os
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.minatar import networks
from benchmarks import iteration, measuring
from benchmarks.evidence import control_networks

ROWS = 2_000 if measuring.QUICK else 20_000
EPISODE = 97  # agent steps
ROUNDS = 12
# A round's, so that those whose batches are ready at its start are few.
UPDATES = 50 if measuring.QUICK else 500


class Data(NamedTuple):
  """Observations, and the network for them."""

  shape: tuple[int, ...]
  dtype: type
  network: type
  num_actions: int


DATA = {
  'CartPole': Data((4, 1), np.float64, control_networks.ControlDQNNetwork, 2),
  'MinAtar': Data((10, 10, 4), np.bool_, networks.MinAtarNetwork, 6),
}


def write_log(directory: str, data: Data) -> str:
  """Writes a log of random observations; returns its directory."""
  random = np.random.default_rng(0)
  with replay_log.ReplayLog(
    directory, data.shape, data.dtype, ROWS // 2, stack_size=1
  ) as log:
    for row in range(ROWS):
      if data.dtype == np.bool_:
        observation = random.random(data.shape) < 0.1
      else:
        observation = random.uniform(-1, 1, data.shape)
      action = int(random.integers(data.num_actions))
      log.add(observation, action, 1.0, row % EPISODE == EPISODE - 1)
  return directory


def make_agent(directory: str, data: Data, frames_on_device: bool):
  """Returns an agent on the CPU, in a graph of its own."""
  gin.clear_config()
  gin.bind_parameter(
    'WrappedFixedReplayBuffer.frames_on_device', frames_on_device
  )
  with tf.Graph().as_default():
    return dqn_agent.FixedReplayDQNAgent(
      None,
      data.num_actions,
      directory,
      observation_shape=data.shape,
      observation_dtype=tf.as_dtype(data.dtype),
      stack_size=1,
      network=data.network,
      optimizer=tf.compat.v1.train.AdamOptimizer(1e-3),
      tf_device='/cpu:*',
      seed=1,
    )


def measure(directory: str, data: Data) -> list[Sequence[str]]:
  """Returns rows of the table: updates/s, share, processor time an update."""
  plain = make_agent(directory, data, frames_on_device=False)
  device = make_agent(directory, data, frames_on_device=True)
  steps = UPDATES * plain.update_period
  functions = {
    'constant batch': iteration.constant_loop(plain, UPDATES),
    'frames on the device': lambda: list(device.train_steps(steps)),
    'ordinary feed': lambda: list(plain.train_steps(steps)),
  }
  costs = {
    name: functools.partial(measuring.cost, function, UPDATES)
    for name, function in functions.items()
  }
  taken = {
    name: np.array(found)
    for name, found in measuring.take_turns(costs, ROUNDS).items()
  }
  bound = next(iter(taken.values()))
  rows = []
  for name, found in taken.items():
    seconds, processor = np.median(found, axis=0)
    shares = 100 * np.median(bound / found, axis=0)
    rate, used = f'{1 / seconds:.0f}', f'{1e3 * processor:.2f}'
    rows.append((name, rate, f'{shares[0]:.0f} %', used, f'{shares[1]:.0f} %'))
  return rows


def main() -> None:
  """Prints the table."""
  measuring.parser(__doc__).parse_args()
  logging.set_verbosity(logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:
    rows = [
      (f'{name}, {row[0]}', *row[1:])
      for name, data in DATA.items()
      for row in measure(write_log(os.path.join(folder, name), data), data)
    ]
  head = ('', 'updates/s', 'share', 'CPU ms an update', 'share')
  measuring.table(head, rows)


if __name__ == '__main__':
  main()
