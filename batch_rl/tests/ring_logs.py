"""Runs on disk as the original logger wrote them.

Unlike our logger (`shards.write_run`), it leaves stale rows of the ring's previous
lap in the final shard.
"""

import dataclasses
import gzip
import os

import numpy as np

from batch_rl.tests import shards


def write_shard(
  directory, suffix, add_count, observation, action, reward, terminal
):
  """Writes the six files of a shard, from arrays in ring order."""
  os.makedirs(directory, exist_ok=True)
  capacity = len(terminal)
  for name, array in (
    ('$store$_observation', np.asarray(observation)),
    ('$store$_action', np.asarray(action, np.int32)),
    ('$store$_reward', np.asarray(reward, np.float32)),
    ('$store$_terminal', np.asarray(terminal, np.uint8)),
    ('add_count', np.asarray(add_count, np.int64)),
    ('invalid_range', (add_count + np.arange(-1, 4)) % capacity),
  ):
    path = os.path.join(directory, f'{name}_ckpt.{suffix}.gz')
    with gzip.open(path, 'wb', compresslevel=1) as file:
      np.save(file, array, allow_pickle=False)


def write_run(directory, rows, capacity):
  """Adds rows (`shards.Row`) to a ring that is dumped whenever it is full.

  Returns the shard number of each row.
  """
  ring = [shards.Row(0, 0, 0.0, 0)] * capacity

  def dump(suffix, add_count):
    frames, *columns = zip(*map(dataclasses.astuple, ring), strict=True)
    frames = np.array(frames, np.uint8)[:, None, None]
    observation = np.broadcast_to(frames, (capacity, 2, 2))
    write_shard(str(directory), suffix, add_count, observation, *columns)

  shard_of, suffix = [], 0
  for count, row in enumerate(rows, 1):
    ring[(count - 1) % capacity] = row
    shard_of.append(suffix)
    if count % capacity == capacity - 1:
      dump(suffix, count)
      suffix += 1
  if shard_of[-1] == suffix:
    dump(suffix, len(rows) % capacity)
  return shard_of


def remove_shard(directory, suffix):
  for name in os.listdir(directory):
    if name.endswith(f'_ckpt.{suffix}.gz'):
      os.remove(os.path.join(directory, name))
