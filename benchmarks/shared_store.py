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


def proportional_memory(process: int) -> int:
  """Returns the proportional set size of a process in bytes."""
  with open(f'/proc/{process}/smaps_rollup', encoding='ascii') as file:
    fields = dict(line.split(':', 1) for line in file if ':' in line)
  return int(fields['Pss'].split()[0]) << 10


def memory_of(count: int, data_dir: str, cache_dir: str, batches: int) -> int:
  """Returns the total memory of `count` cells in bytes."""
  command = [sys.executable, '-m', 'benchmarks.processes']
  command += [processes.hold_buffer.__name__, data_dir, cache_dir, str(batches)]
  cells = [
    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(count)
  ]
  try:
    for cell in cells:
      cell.stdout.readline()  # until it has drawn
    return sum(proportional_memory(cell.pid) for cell in cells)
  finally:
    for cell in cells:
      cell.communicate()


def main() -> None:
  """Makes the run and prints the table."""
  parser, quick = measuring.parser(__doc__), measuring.QUICK
  parser.add_argument(
    '--directory', default=os.path.join(logs.DIRECTORY, 'shared_store')
  )
  parser.add_argument('--shards', type=int, default=1 if quick else 4)
  parser.add_argument(
    '--rows',
    type=int,
    default=3000 if quick else 1_000_000,
    help='rows of a shard',
  )
  parser.add_argument('--game', default='Seaquest')
  parser.add_argument(
    '--batches',
    type=int,
    default=100 if quick else 20_000,
    help='batches to draw',
  )
  options = parser.parse_args()
  data_dir, _ = tiles.make(
    options.directory, options.game, options.shards, options.rows
  )
  stores = os.path.join(options.directory, 'stores')
  lines, many = [], 2 if quick else 4
  for name, cache_dir in (('its own memory', ''), ('one shared store', stores)):
    one, all_ = (
      memory_of(count, data_dir, cache_dir, options.batches) / 1e9
      for count in (1, many)
    )
    lines.append(
      [
        name,
        f'{one:.2f}',
        f'{all_:.2f}',
        f'{all_ / one:.2f} x',
        f'{(all_ - one) / (many - 1):.2f}',
      ]
    )
  rows = options.shards * options.rows
  measuring.table(
    [
      f'{options.game}, up to {rows:,} rows, in',
      '1 cell, GB',
      f'{many} cells, GB',
      '',
      'each additional, GB',
    ],
    lines,
  )


if __name__ == '__main__':
  main()
