"""The cost of data: time and memory to load shards and open stores, beside Dopamine.

  python -um benchmarks.data_path [--parts loading opening] [--quick]

The first run makes shards of 1,000,000 rows from the logs of random players
(`benchmarks/tiles.py`; a few minutes): seven of Pong, one each of Breakout and
Seaquest. Memory is measured in processes that only load, relative to one that loads
20,000 rows. Dopamine's loading time is extrapolated from 20,000 rows, since a million
rows need over 7 GB. `benchmarks/sampling_rates.py` measures the batches.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import os
import subprocess
import time

import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.shards import shard_files
from benchmarks import logs, measuring, memories, processes

MEMORY_TARGETS = {'Pong': 100, 'Breakout': 80, 'Seaquest': 150}
row = measuring.row


def loading(game: str, data_dir: str) -> None:
  """Measures loading of a shard: time, memory, and peak memory."""
  path = os.path.join(data_dir, shard_files.file_name('observation', 0))
  start = time.perf_counter()
  subprocess.run(['gzip', '-dc', path], stdout=subprocess.DEVNULL, check=True)
  gzip_seconds = time.perf_counter() - start
  ours = measuring.in_new_process(processes.load, data_dir, 0)
  millions = ours['rows'] / 1e6
  theirs = dopamine_seconds(game)
  row(
    f'{game}: seconds to load a million rows '
    f'(CPU: {ours["cpu"] / millions:.1f})',
    f'{theirs:.1f}',
    f'{ours["seconds"] / millions:.1f}',
    measuring.times(theirs, ours['seconds'] / millions),
    f'{gzip_seconds / millions:.1f} (gzip -dc)',
  )
  # A small log gives the memory that is independent of the data.
  small = measuring.in_new_process(processes.load, logs.make(game), 0)
  size = (ours['resident'] - small['resident']) / (ours['rows'] - small['rows'])
  row(
    f'{game}: bytes a row in memory, in total (`nbytes`: '
    f'{ours["nbytes"] / ours["rows"]:.1f})',
    '7065',
    f'{size:.1f}',
    measuring.times(7065, size),
    f'{MEMORY_TARGETS[game]}',
  )
  row(
    f'{game}: GB of peak memory above the final memory',
    '',
    f'{(ours["peak"] - ours["resident"]) / 1e9:.2f}',
    '',
    '0.5',
  )


def dopamine_seconds(game: str) -> float:
  """Returns Dopamine's loading time in seconds, extrapolated to a million rows."""
  memory = circular_replay_buffer.OutOfGraphReplayBuffer(
    (84, 84), 4, logs.CAPACITY, 32
  )
  data_dir = logs.make(game)
  times = measuring.interleave({'': lambda: memory.load(data_dir, 1)}, 3)['']
  return float(np.median(times)) * 1e6 / logs.CAPACITY


def opening(directory: str) -> None:
  """Measures the time from a store on disk to the first batch, in a new process."""
  start = time.time()
  bare = measuring.in_new_process(processes.open_store, directory)
  buffer = measuring.in_new_process(processes.open_buffer, directory)
  for what, seconds, target in (
    ('to first batch, Store and Sampler', bare['first'], '2'),
    ('to first batch, from the start of Python', bare['clock'] - start, ''),
    ('to first batch, FixedReplayBuffer', buffer['first'], '2'),
    ('to import TensorFlow and Dopamine', buffer['import'], ''),
  ):
    row(f'seconds {what}', '', f'{seconds:.2f}', '', target)


def main() -> None:
  """Prints the table."""
  parser = measuring.parser(__doc__)
  measuring.add_parts(parser, ('loading', 'opening'))
  parts = parser.parse_args().parts
  logging.set_verbosity(logging.ERROR)
  measuring.header()
  made = {game: memories.make(game) for game in memories.SHARDS}
  if 'loading' in parts:
    for game, (data_dir, _) in made.items():
      loading(game, data_dir)
  if 'opening' in parts:
    opening(made['Pong'][1])


if __name__ == '__main__':
  main()
