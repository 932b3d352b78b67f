"""A run of the dataset's size: 51 shards of 1,000,000 rows.

  python -um benchmarks.full_scale

The run is made from a log of a random player (`benchmarks/tiles.py`) and converted to a
store on disk. Both steps resume after an interruption, and the results are kept. New
processes open the store and draw batches of 32 windows in one thread: first with an empty
page cache, then with a warm one. A chi-square test compares the distribution of drawn
rows over the shards with that of valid transitions; the p-value uses the approximation of
Wilson and Hilferty.
"""

import argparse
import math
import os
import time

import numpy as np

from benchmarks import logs, measuring, processes, tiles


def chi_square(
  found: list[int], weights: list[int]
) -> tuple[float, int, float]:
  """Returns statistic, degrees of freedom and p-value of Pearson's test.

  Args:
    found: Counts, at least one.
    weights: Positive weights, proportional to the expected counts.
  """
  expected = np.array(weights) * (sum(found) / sum(weights))
  statistic = float(np.sum((np.array(found) - expected) ** 2 / expected))
  freedom = len(found) - 1
  if not freedom:
    return statistic, freedom, 1.0
  spread = 2 / (9 * freedom)
  normal = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
  return statistic, freedom, math.erfc(normal / math.sqrt(2)) / 2


def directory_bytes(directory: str) -> int:
  """Returns the total size of the files in a directory."""
  return sum(entry.stat().st_size for entry in os.scandir(directory))


def rate(rows: int, seconds: float) -> str:
  """Formats a rate, or says that the rows existed."""
  if not rows:
    return 'existed already'
  return f'{seconds:,.0f} s for {rows:,} rows: {rows / seconds:,.0f} rows/s'


def opening(drawn: dict) -> str:
  """Formats the seconds to the first batch."""
  return f'{drawn["first"]:.2f} s ({drawn["from_start"]:.2f} s with Python)'


def drawing(drawn: dict) -> str:
  """Formats median and 10th percentile of batch times, and batches/s."""
  times = np.array(drawn['times'])
  return f'{measuring.ms(times)}, {len(times) / times.sum():,.0f}'


def main() -> None:
  """Makes the run and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    '--directory', default=os.path.join(logs.DIRECTORY, 'full_scale')
  )
  parser.add_argument('--shards', type=int, default=51)
  parser.add_argument(
    '--rows', type=int, default=1_000_000, help='rows of a shard'
  )
  parser.add_argument('--game', default='Pong')
  parser.add_argument(
    '--seconds', type=int, default=30, help='seconds of drawing'
  )
  options = parser.parse_args()

  start = time.perf_counter()
  data_dir, written = tiles.make(
    options.directory, options.game, options.shards, options.rows
  )
  making = time.perf_counter() - start
  store = os.path.join(options.directory, 'store')
  made = measuring.in_new_process(processes.convert, data_dir, store)
  measuring.in_new_process(processes.forget, store)
  cold = measuring.in_new_process(processes.draw, store, options.seconds // 3)
  read = measuring.in_new_process(processes.read_through, store)
  warm = measuring.in_new_process(processes.draw, store, options.seconds)
  rows = warm['rows']
  statistic, freedom, p = chi_square(warm['drawn'], warm['valid'])
  measuring.table(
    ['', f'{options.game}, {options.shards} shards, {rows:,} rows'],
    [
      ['writing shards', rate(written * options.rows, making)],
      ['bytes a row, .gz', f'{directory_bytes(data_dir) / rows:.1f}'],
      ['converting to a store', rate(made['rows'], made['seconds'])],
      ['peak memory, converting', f'{made["peak"] / 1e9:.2f} GB'],
      ['bytes a row, store on disk', f'{directory_bytes(store) / rows:.1f}'],
      ['from disk: open to first batch', opening(cold)],
      ['from disk: ms a batch (10th percentile), batches/s', drawing(cold)],
      ['reading the store once', f'{read["seconds"]:.1f} s'],
      ['from page cache: open to first batch', opening(warm)],
      ['from page cache: the same', drawing(warm)],
      ['peak memory, opening', f'{warm["peak"] / 1e9:.2f} GB'],
      ['memory after drawing', f'{warm["resident"] / 1e9:.2f} GB'],
      [
        'anonymous part; the rest is page cache',
        f'{warm["anonymous"] / 1e9:.2f} GB',
      ],
      ['transitions', f'{warm["transitions"]:,}'],
      [
        'chi-square over shards',
        f'{statistic:.1f}, {freedom} degrees of freedom, p = {p:.2f}',
      ],
    ],
  )


if __name__ == '__main__':
  main()
