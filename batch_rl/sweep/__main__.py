"""Many runs from one file: on this machine, a Ray cluster, or SLURM.

  python -m batch_rl.sweep sweep.yaml --dry_run
  python -m batch_rl.sweep sweep.yaml

The file says games, runs of the dataset, agents, seeds and gin bindings; each cell of
their product is a run of its own, in a directory of its own below `base_dir`. The same
command goes on with those that are not done. Flags override what the file says.
"""

import argparse
import contextlib
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import rich.console
import rich.live

from batch_rl.runs import interruption
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan, projection
from batch_rl.sweep import view as view_lib
from batch_rl.utils import files, locks

_LAUNCHERS = ('ray', 'slurm')
_SECONDS = 60  # between lines, where the output is no terminal
_SHOWN = 20  # cells of a plan
_LOOKED_AT = 100  # cells, every two seconds
_LOCK = '.sweep.lock'


def main(arguments: Sequence[str] | None = None) -> int:
  """Plans, and runs what is not done; returns the exit code."""
  options = _parser().parse_args(arguments)
  try:
    return _sweep(options)
  except (ValueError, OSError) as error:
    reason = files.reason(error) if isinstance(error, OSError) else error
    print(f'sweep: error: {" ".join(str(reason).split())}', file=sys.stderr)
    return 2


def _parser():
  parser = argparse.ArgumentParser(
    prog='python -m batch_rl.sweep',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add('file', nargs='?', help='YAML')
  add('--job', help='offline, online or evaluate')
  add('--base_dir', help='of the results; all machines have to see it')
  add('--data_dir', help='of the runs, <data_dir>/<Game>/<run>')
  add('--games', nargs='+', help="or 'all', the 60 of the dataset")
  add('--runs', help='e.g. 1-5')
  add('--agents', nargs='+', help='gin files, or names of those of the package')
  add('--seeds', help='e.g. 1-3')
  add('--gin_bindings', nargs='+', help='for all cells')
  add('--cpus', type=float, help='of a cell')
  add('--gpus', type=float, help='of a cell; 0.25 is a quarter of one')
  add(
    '--launcher',
    choices=_LAUNCHERS,
    default='ray',
    help='default: ray',
  )
  add('--address', help='of a Ray cluster; default: this machine')
  add(
    '--dry_run',
    action='store_true',
    help='show the plan, and how long it takes',
  )
  add('--status', action='store_true', help='show how it stands, and no more')
  return parser


def _sweep(options):
  flags = ('job', 'base_dir', 'data_dir', 'games', 'runs', 'agents', 'seeds')
  flags += ('gin_bindings', 'cpus', 'gpus')
  given = {name: getattr(options, name) for name in flags}
  if given['games'] == ['all']:
    given['games'] = 'all'
  if options.address and options.launcher != 'ray':
    raise ValueError('--address is of a Ray cluster: choose --launcher=ray.')
  sweep = plan.read(options.file, given)
  if options.status:
    view = view_lib.View(sweep, projection.measure(sweep))
    rich.console.Console().print(view.table(10**6))
    return 0
  launcher = _import(options.launcher)
  if options.dry_run:
    view = view_lib.View(sweep, projection.measure(sweep))
    _print_plan(sweep, view, options, launcher)
    return 0
  plan.check_data(sweep)
  with _alone(sweep.base_dir):
    view = view_lib.View(sweep, projection.measure(sweep))
    _run(sweep, view, options, launcher)
  view.refresh()
  return _conclude(view)


def _run(sweep, view, options, launcher):
  left = [
    cell
    for cell, status in view.statuses.items()
    if status.state != cell_lib.DONE
  ]
  if done := len(sweep.cells) - len(left):
    print(f'{done} of {len(sweep.cells)} cells are done.')
  if not left:
    return
  with _watching(view) as watch:
    if options.launcher == 'ray':
      launcher.run(sweep, left, options.address, watch)
    elif not launcher.run(sweep, left, watch):
      print('The jobs go on; the same command watches them again.')


def _import(launcher) -> Any:
  module = 'ray_launcher' if launcher == 'ray' else 'slurm_launcher'
  try:
    return importlib.import_module(f'batch_rl.sweep.{module}')
  except ModuleNotFoundError as error:
    raise ValueError(
      f"{error.name} is not installed: pip install 'batch_rl[sweep]'."
    ) from error


@contextlib.contextmanager
def _alone(base_dir) -> Iterator[None]:
  """Keeps other sweeps out of the directory."""
  os.makedirs(base_dir, exist_ok=True)
  path = os.path.join(base_dir, _LOCK)
  held = locks.try_lock(path)
  if held is None:
    raise ValueError(
      f'{base_dir} is swept by {locks.lock_holder(path)}; wait for it or stop it. '
      '--status shows how it stands.'
    )
  with held:
    yield


@contextlib.contextmanager
def _watching(view):
  """Yields a function that shows how the sweep stands, and tells whether to stop."""
  console = rich.console.Console()
  last = time.monotonic()

  def watch() -> bool:
    nonlocal last
    view.refresh(_LOOKED_AT)
    if console.is_terminal:
      live.update(view.table(console.height), refresh=True)
    else:
      for line in view.news():
        print(line, flush=True)
      if time.monotonic() - last > _SECONDS:
        last = time.monotonic()
        print(view.summary(), flush=True)
    return asked.requested

  with (
    interruption.listen() as asked,
    rich.live.Live(console=console, auto_refresh=False) as live,
  ):
    yield watch


def _print_plan(sweep, view, options, launcher):
  shown = list(view.statuses.items())[:_SHOWN]
  for cell, status in shown:
    print(f'{cell.name}: {view_lib.describe(status)}, in {cell.directory}')
  if len(sweep.cells) > len(shown):
    print(f'... and {len(sweep.cells) - len(shown)} more')
  print(f'\nThe first is:\n{plan.command(sweep.cells[0])}\n')
  try:
    plan.check_data(sweep)
  except ValueError as error:
    print(f'NOT THERE YET: {error}\n')
  print(view.summary())
  rated = ', '.join(
    f'{rate:.4g}/s in {phase}' for phase, rate in view.rates.items()
  )
  seconds = view.seconds_left()
  print(
    f'{view_lib.duration(seconds)} of one cell after the other, at {rated}:'
  )
  print(f'rates {view.origin_of_rates}.')
  if options.launcher == 'ray':
    slots = launcher.slots(sweep, options.address)
    print(
      f'{slots} at a time: {view_lib.duration(seconds / slots)}, if they do not '
      'slow each other.'
    )


def _conclude(view) -> int:
  failed = [
    (cell, status)
    for cell, status in view.statuses.items()
    if status.state == cell_lib.FAILED
  ]
  for cell, status in failed:
    print(f'{cell.name}: {view_lib.describe(status)}', file=sys.stderr)
    print(f'  its output: {cell_lib.log_path(cell)}', file=sys.stderr)
  print(view.summary())
  return int(view.count(cell_lib.DONE) < len(view.statuses))


if __name__ == '__main__':
  sys.exit(main())
