"""The cost of data: loading, memory and sampling, beside Dopamine's memory.

  python -um benchmarks.data_path

The first run makes shards of 1,000,000 rows from the logs of random players
(`benchmarks/tiles.py`; a few minutes): seven of Pong, one each of Breakout and
Seaquest. The measurements take six minutes. Batch times are medians with 10th
percentiles in brackets, from one thread; variants alternate after ten batches. Memory is
measured in processes that only load, relative to one that loads 20,000 rows.
Dopamine's loading time is extrapolated from 20,000 rows, since a million rows need
over 7 GB; `--dopamine_peak` measures its peak. Rates of several threads follow, see
`benchmarks/sampling_rates.py`.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import argparse
import os
import subprocess
import time

import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.shards import shard_files
from benchmarks import logs, measuring, memories, processes, sampling_rates
from benchmarks.memories import DOPAMINE_ROWS, ROWS

MEMORY_TARGETS = {'Pong': 100, 'Breakout': 80, 'Seaquest': 150}
row = measuring.row


def sampling(game: str, directory: str) -> None:
  """Measures batches of 32."""
  ours = memories.our_memory(directory, None, ROWS)
  same = memories.our_memory(directory, 0, DOPAMINE_ROWS)
  source = ours._store
  drawn = sampler.Sampler(source, 4)
  for one in (drawn, ours.sampler, same.sampler):
    one.wait_until_compiled()
  theirs = memories.dopamine_memory(source, DOPAMINE_ROWS)
  frames, random = theirs._store['observation'], np.random.default_rng(0)

  def gather():
    rows = random.integers(DOPAMINE_ROWS - 5, size=32)
    return frames[rows[:, None] + np.arange(5)]

  times = measuring.interleave(
    {
      'dopamine': theirs.sample_transition_batch,
      'batch': lambda: drawn.batch(drawn.next_number(), 32),
      'windows': ours.sample_windows,
      'same': same.sample_windows,
      'eight': ours.sample_transition_batch,
      'gather': gather,
    },
    30,
    in_a_row=10,
  )
  slow = times['dopamine']
  for name, what, target in (
    ('batch', f'of {source.rows:,} rows', '0.15 ms, 20 x'),
    ('windows', "as the graph's input", '0.15 ms, 20 x'),
    ('same', f'the same {DOPAMINE_ROWS:,} rows', ''),
    ('gather', 'NumPy gather of raw frames', ''),
    ('eight', "as Dopamine's eight arrays", '1.0 ms'),
  ):
    row(
      f'{game}: ms a batch, {what}',
      measuring.ms(slow),
      measuring.ms(times[name]),
      measuring.times(slow, times[name]),
      target,
    )


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
  small = measuring.in_new_process(processes.load, logs.make(game, 'random'), 0)
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
  data_dir = logs.make(game, 'random')
  times = measuring.interleave({'': lambda: memory.load(data_dir, 1)}, 3)['']
  return float(np.median(times)) * 1e6 / logs.CAPACITY


def dopamine_peak(data_dir: str) -> None:
  """Measures Dopamine's peak memory while loading a shard."""
  found = measuring.in_new_process(processes.load_dopamine, data_dir, 0, ROWS)
  row(
    f'Pong: the same for Dopamine ({found["seconds"]:.1f} s)',
    f'{(found["peak"] - found["resident"]) / 1e9:.2f}',
  )


def opening(directory: str) -> None:
  """Measures the time from a store on disk to the first batch, in a new process."""
  bare = measuring.in_new_process(processes.draw, directory, 0)
  buffer = measuring.in_new_process(processes.open_buffer, directory)
  for what, seconds, target in (
    ('to first batch, Store and Sampler', bare['first'], '2'),
    ('to first batch, from the start of Python', bare['from_start'], ''),
    ('to first batch, FixedReplayBuffer', buffer['first'], '2'),
    ('to import TensorFlow and Dopamine', buffer['import'], ''),
  ):
    row(f'seconds {what}', '', f'{seconds:.2f}', '', target)


def reloading(directory: str) -> None:
  """Measures the pause between iterations that draw five shards each."""
  ours = memories.our_memory(directory, None, ROWS, num_buffers=5)

  def reload():
    ours.reload_buffer(5)
    ours.sample_windows()

  stall = measuring.interleave({'': reload}, 20)['']
  slow = 5 * dopamine_seconds('Pong')
  row(
    f'ms to draw 5 of {ours.num_shards} shards, and a batch',
    f'{slow * 1e3:.0f}',
    measuring.ms(stall),
    measuring.times(slow, stall),
  )


def table(with_dopamine_peak: bool = False) -> None:
  """Prints the rows of the table."""
  made = {game: memories.make(game) for game in memories.SHARDS}
  for game, (_, directory) in made.items():
    sampling(game, directory)
  for game, (data_dir, _) in made.items():
    loading(game, data_dir)
  if with_dopamine_peak:
    dopamine_peak(made['Pong'][0])
  opening(made['Pong'][1])
  reloading(made['Pong'][1])


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    '--dopamine_peak', action='store_true', help='needs 14 GB of memory'
  )
  arguments = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  measuring.header()
  table(arguments.dopamine_peak)
  print()
  sampling_rates.table(sampling_rates.stores())


if __name__ == '__main__':
  main()
