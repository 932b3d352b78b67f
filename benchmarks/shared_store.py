"""Memory of several cells of a sweep that train on one run on one machine.

  python -um benchmarks.shared_store [--quick]

Each cell is a process with TensorFlow that has opened the run and drawn most of its
rows: first with the run in its own memory, then from a shared memory-mapped store, as
in `python -m batch_rl.sweep`. Memory is Linux's proportional set size (PSS), which
divides shared pages among their processes and can be summed.
"""

import os
import subprocess
import sys

from benchmarks import logs, measuring, processes, tiles

GAME = 'Seaquest'
SHARDS, ROWS = 4, 1_000_000  # rows of a shard
BATCHES = 20_000  # to draw
CELLS = 4
if measuring.QUICK:
  SHARDS, ROWS, BATCHES, CELLS = 1, 3000, 100, 2


def memory_of(count: int, data_dir: str, cache_dir: str) -> int:
  """Returns the total memory of `count` cells in bytes."""
  command = [sys.executable, '-m', 'benchmarks.processes']
  command += [processes.hold_buffer.__name__, data_dir, cache_dir, str(BATCHES)]
  cells = [
    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(count)
  ]
  try:
    for cell in cells:
      cell.stdout.readline()  # until it has drawn
    return sum(processes.memory('Pss', cell.pid) for cell in cells)
  finally:
    for cell in cells:
      cell.communicate()


def main() -> None:
  """Makes the run and prints the table."""
  measuring.parser(__doc__).parse_args()
  directory = os.path.join(logs.DIRECTORY, 'shared_store')
  data_dir = tiles.make(directory, GAME, SHARDS, ROWS)
  stores = os.path.join(directory, 'stores')
  memory_of(1, data_dir, stores)  # It packs the shards.
  lines = []
  for name, cache_dir in (('its own memory', ''), ('one shared store', stores)):
    one, all_ = (
      memory_of(count, data_dir, cache_dir) / 1e9 for count in (1, CELLS)
    )
    lines.append(
      [
        name,
        f'{one:.2f}',
        f'{all_:.2f}',
        f'{all_ / one:.2f} x',
        f'{(all_ - one) / (CELLS - 1):.2f}',
      ]
    )
  measuring.table(
    [
      f'{GAME}, up to {SHARDS * ROWS:,} rows, in',
      '1 cell, GB',
      f'{CELLS} cells, GB',
      '',
      'each additional, GB',
    ],
    lines,
  )


if __name__ == '__main__':
  main()
