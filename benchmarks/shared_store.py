"""Memory of several cells of a sweep that train on one run on one machine.

  python -um benchmarks.shared_store [--parts own shared] [--quick]

Each cell is a process with TensorFlow that has opened the run and drawn most of its
rows: first with the run in its own memory, then from a shared memory-mapped store, as
in `python -m batch_rl.sweep`. Memory is Linux's proportional set size (PSS), which
divides shared pages among their processes and can be summed.
"""

import os
import subprocess
import sys

from batch_rl.dataset.store import store
from benchmarks import logs, measuring, processes, tiles

GAME = 'Seaquest'
SHARDS, ROWS = 4, 1_000_000  # rows of a shard
BATCHES = 20_000  # to draw
CELLS = 4
if measuring.QUICK:
  SHARDS, ROWS, BATCHES, CELLS = 1, 3000, 100, 2


def memory(data_dir: str) -> tuple[float, float]:
  """Returns the memory in GB of one cell, and of all `CELLS`."""
  command = [sys.executable, '-m', 'benchmarks.processes']
  command += [processes.hold_buffer.__name__, data_dir, str(BATCHES)]
  cells, taken = list[subprocess.Popen[bytes]](), list[float]()
  try:
    for count in (1, CELLS):
      more = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count - len(cells))
      ]
      cells += more
      for cell in more:
        cell.stdout.readline()  # until it has drawn
      taken.append(sum(processes.memory('Pss', cell.pid) for cell in cells))
  finally:
    for cell in cells:
      cell.communicate()
  one, all_ = taken
  return one / 1e9, all_ / 1e9


def main() -> None:
  """Makes the run and prints the table."""
  parser = measuring.parser(__doc__)
  measuring.add_parts(parser, ('own', 'shared'))
  parts = parser.parse_args().parts
  directory = os.path.join(logs.DIRECTORY, 'shared_store')
  data_dir = tiles.make(directory, GAME, SHARDS, ROWS)
  places = {'own': ('its own memory', data_dir)}
  if 'shared' in parts:
    shared = os.path.join(directory, 'store')
    store.convert(data_dir, shared)
    places['shared'] = 'one shared store', shared
  lines = []
  for name, run in (places[part] for part in parts):
    one, all_ = memory(run)
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
