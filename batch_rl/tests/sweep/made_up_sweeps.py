"""Sweeps for tests, built without a file, and programs for their cells."""

import pathlib
import textwrap
import time

from batch_rl.runs import progress, run_record
from batch_rl.sweep import cells, plan
from batch_rl.utils import files

# Locks the run as `run_record`, which imports NumPy, does; adds a letter to `starts`,
# writes progress, runs `body`, and finishes.
_PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
os.chdir({directory!r})
from batch_rl.runs import progress
from batch_rl.utils import locks
held = locks.try_lock({lock!r})
assert held
with open('starts', 'a') as file:
  file.write('x')
starts = open('starts').read().count('x')
phase = {{'iteration': 0, 'phase': 'train', 'total': 10, 'unit': 'update'}}
progress.Progress('.', 2).write(5, 2.5, phase)
{body}
progress.Progress('.', 2).finish()
"""
# A body that saves when it is asked to stop, and ends at once the next time.
WAITS = """
if starts < 2:
  signal.signal(signal.SIGTERM, lambda *_: (open('saved', 'w'), sys.exit(143)))
  open('ready', 'w').close()
  time.sleep(60)
"""
# A body that waits for the file `go`.
HELD = """
while not os.path.exists('go'):
  time.sleep(0.02)
"""


def make(*planned, base_dir='out', **needs):
  """Returns a sweep of cells that need one processor each, unless `needs` differ."""
  resources = dict(cpus=1, gpus=0, memory_gb=None, retries=0)
  fields = dict(job='offline', rates={}, slurm={}) | resources | needs
  return plan.Sweep(str(base_dir), planned, **fields)


def program_cell(name, directory, body, job='offline') -> plan.Cell:
  """Returns a cell whose program counts its starts and runs `body`."""
  root = str(pathlib.Path(progress.__file__).parents[2])
  places = dict(root=root, directory=str(directory), lock=run_record.LOCK)
  code = _PROGRAM.format(**places, body=textwrap.dedent(body))
  return plan.Cell(name, job, str(directory), ('-c', code))


def write_record(cell, state, **more):
  content = {'arguments': cell.arguments, 'state': state, 'attempts': 1}
  files.write_json(cells.record_path(cell), content | more)


def wait_for(condition):
  """Waits two minutes at most."""
  end = time.monotonic() + 120
  while not condition():
    assert time.monotonic() < end
    time.sleep(0.02)
