"""Replay memories to compare, ours and Dopamine's, with the rows of large runs."""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import os

import numpy as np
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.store import store
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from benchmarks import logs, measuring, tiles

ROWS = 1_000_000  # of a shard
SHARDS = {'Pong': 7, 'Breakout': 1, 'Seaquest': 1}
DOPAMINE_ROWS = 250_000  # capacity of Dopamine's memory: 1.8 GB
if measuring.QUICK:
  ROWS, SHARDS, DOPAMINE_ROWS = 3000, {'Pong': 2}, 1000


def make(game: str) -> tuple[str, str]:
  """Returns the directories of a run's shards and store; makes missing ones."""
  run = os.path.join(logs.DIRECTORY, f'{game}-tiled')
  data_dir = tiles.make(run, game, SHARDS[game], ROWS, slow=1)
  directory = os.path.join(run, 'store')
  store.convert(data_dir, directory)
  return data_dir, directory


def dopamine_memory(source: store.Store, rows: int, batch_size: int = 32):
  """Returns Dopamine's memory, filled with the first rows of a run."""
  memory = circular_replay_buffer.OutOfGraphReplayBuffer(
    (84, 84), 4, rows, batch_size
  )
  memory._store['observation'] = source.frames(np.arange(rows))
  memory._store['action'][:] = source.action[:rows]
  memory._store['reward'][:] = source.reward[:rows]
  memory._store['terminal'][:] = np.isin(np.arange(rows), source.ends)
  memory.add_count = np.array(rows - 1)
  return memory


def our_memory(directory: str, rows: int):
  """Returns a buffer with the whole store in memory, as if loaded from shards."""
  return fixed_replay_buffer.FixedReplayBuffer(
    directory, None, (84, 84), 4, rows, batch_size=32, preload=True
  )
