"""Many runs from one file: on this machine, a Ray cluster, or SLURM.

  python -m batch_rl.sweep sweep.yaml --dry_run
  python -m batch_rl.sweep sweep.yaml

The file lists games, runs of the dataset, agents, seeds and gin bindings. Each cell of
their product is one training run, in its own directory below `base_dir`. The same
command resumes the cells that are not done. Flags override the file.
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import rich.console
import rich.live

from batch_rl.runs import interruption, run_record
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import monitor as monitor_lib
from batch_rl.sweep import plan, settings_check
from batch_rl.utils import programs

_CELLS_IN_PLAN = 20  # Number of cells that --dry_run lists.
_CELLS_PER_REFRESH = 100
# Responses to Ctrl-C by launcher.
_RESPONSES = {'ray': 'Saving before the stop', 'slurm': 'Leaving the jobs'}


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""

  def run() -> int:
    return _sweep(_parser().parse_args(arguments))

  return programs.run(run, 'sweep: ')


def _parser():
  parser = argparse.ArgumentParser(
    prog='python -m batch_rl.sweep',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add('file', nargs='?', help='YAML file')
  add('--job', help='offline, online or evaluate')
  add('--base_dir', help='directory of the results, shared by all machines')
  add(
    '--data_dir',
    help='directory of the runs, <data_dir>/<Game>/<run>; an online sweep of several '
    'agents logs to <data_dir>/<agent>/<Game>/<run>',
  )
  several: dict[str, Any] = {'nargs': '+', 'action': 'extend'}
  add('--games', **several, help="games, e.g. Pong, or 'all' of the dataset")
  add('--runs', help='runs of the dataset, e.g. 1-5')
  add('--agents', **several, help='names in file or package, or gin files')
  add('--seeds', help='seeds, e.g. 1-3')
  add('--gin_bindings', **several, help="gin bindings in place of the file's")
  add('--cpus', type=float, help='processors per cell')
  add('--gpus', type=float, help='GPUs per cell; 0.25 is a quarter of one')
  add('--launcher', choices=_RESPONSES, default='ray', help='default: ray')
  add('--address', help='address of a Ray cluster; default: this machine')
  add('--dry_run', action='store_true', help='only show the plan and its cost')
  add('--status', action='store_true', help='only show the status of the cells')
  return parser


def _sweep(options):
  given = {n: v for n, v in vars(options).items() if n in plan.SETTINGS}
  for flag in ('games', 'agents', 'gin_bindings'):
    *_, last = given.get(flag) or ['']
    if options.file is None and last.endswith(('.yaml', '.yml')):
      raise ValueError(
        f'--{flag} has {last} as a value: give the file before the flags.'
      )
  if options.address == '':
    raise ValueError('--address is empty: give the address of a Ray cluster.')
  address = {'address': options.address} if options.address else {}
  if address and options.launcher != 'ray':
    raise ValueError(
      f'--address={options.address} is for Ray: choose --launcher=ray.'
    )
  sweep = plan.read(options.file, given)
  if sweep.job == 'evaluate' and options.gin_bindings:
    raise ValueError(
      f'--gin_bindings={options.gin_bindings[0]} has no effect on evaluations, which '
      'have the settings of their runs: leave it out.'
    )
  monitor = monitor_lib.Monitor(sweep)
  if options.status:
    rich.console.Console().print(monitor.table(10**6))
    return 0
  if options.dry_run:
    _print_plan(sweep, monitor)
    return settings_check.run(monitor.statuses)
  run_record.lock(sweep.base_dir, name='.sweep.lock')
  try:
    launcher: Any = importlib.import_module(
      f'batch_rl.sweep.{options.launcher}_launcher'
    )
  except ModuleNotFoundError as error:
    raise ValueError(
      f"{error.name} is not installed: pip install 'batch_rl[sweep]'."
    ) from error
  monitor.refresh()  # An earlier sweep may have run until now.
  ended = cell_lib.CHANGED, cell_lib.DONE
  left = [c for c, s in monitor.statuses.items() if s.state not in ended]
  plan.check_data(left)
  for cell in left:
    cell_lib.check_log(cell)
  if code := settings_check.run(monitor.statuses):
    return code
  if done := monitor.count(cell_lib.DONE):
    print(f'{done} of {len(sweep.cells)} cells are done.')
  if left:
    with _watching(monitor, options.launcher) as watch:
      launcher.run(sweep, left, watch, **address)
  monitor.refresh()
  return _conclude(monitor)


@contextlib.contextmanager
def _watching(monitor, launcher):
  """Yields a function that shows the status and returns whether to stop."""
  console = rich.console.Console()

  def watch() -> bool:
    monitor.refresh(_CELLS_PER_REFRESH)
    if console.is_terminal:
      live.update(monitor.table(console.height), refresh=True)
    else:
      for line in monitor.state_changes():
        print(line, flush=True)
    return interrupted.number != 0

  with (
    interruption.listen(_RESPONSES[launcher]) as interrupted,
    rich.live.Live(console=console, auto_refresh=False) as live,
  ):
    yield watch


def _print_plan(sweep, monitor):
  shown = list(monitor.statuses.items())[:_CELLS_IN_PLAN]
  for cell, status in shown:
    print(f'{cell.name}: {monitor_lib.describe(status)}, in {cell.directory}')
  if len(sweep.cells) > len(shown):
    print(f'... and {len(sweep.cells) - len(shown)} more')
  print(f'\nCommand of the first:\n{plan.command(sweep.cells[0])}\n')
  try:
    plan.check_data(sweep.cells)
  except ValueError as error:
    print(f'DATA IS MISSING: {error}\n')
  print(monitor.summary())
  train, evaluation = monitor.work()
  unit = 'agent steps of training' if sweep.job == 'online' else 'updates'
  trained = f'{train:,.0f} {unit} and ' if train else ''
  print(f'{trained}{evaluation:,.0f} agent steps of evaluation in all')
  rates = [f'{rate:.4g}/s in {phase}' for phase, rate in monitor.rates.items()]
  print(
    f'{monitor_lib.duration(monitor.seconds_left())}, one cell after the other, at '
    f'{", ".join(rates)} (measured in this sweep, or given as `rates:`, or those of Atari)'
  )


def _conclude(monitor) -> int:
  """Prints failures, changes and a summary; returns the exit code."""
  for cell, status in monitor.statuses.items():
    if status.state in (cell_lib.FAILED, cell_lib.CHANGED):
      print(f'{cell.name}: {monitor_lib.describe(status)}', file=sys.stderr)
    if status.state == cell_lib.FAILED:
      print(f'  log: {cell_lib.log_path(cell)}', file=sys.stderr)
  print(monitor.summary())
  return int(monitor.count(cell_lib.DONE) < len(monitor.statuses))


if __name__ == '__main__':
  sys.exit(main())
