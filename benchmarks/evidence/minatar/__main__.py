"""The paper's claims on MinAtar: online DQNs make the data, offline agents learn from it.

  python -um benchmarks.evidence.minatar --make_data  # online.yaml
  python -um benchmarks.evidence.minatar --train      # offline.yaml, subsets.yaml
  python -um benchmarks.evidence.minatar --report
  python -um benchmarks.evidence.minatar --quick      # all three, ten minutes

Everything runs by the package's own commands, which are printed. The runs are sweeps,
which print their ETA; run a command again to continue it. `--report` writes a report by
`batch_rl.report` to `--work_dir`, and evaluations, a table and a figure to `--out`.
`--quick` has one game, one run, fewer agents and steps; its results are in
`<work_dir>/quick`.
"""

import argparse
import pathlib

from benchmarks.evidence import pong
from benchmarks.evidence.minatar import results

HERE = pathlib.Path('benchmarks/evidence/minatar')
GAME = 'MinAtar/Breakout'
# Some 200 s of one core, and as much for each offline agent.
QUICK = {
  'online': (
    'LoggedRunner.num_iterations = 10',
    'LoggedRunner.training_steps = 20000',  # agent steps
    'LoggedRunner.evaluation_steps = 2000',  # agent steps
    'AnyAgent.epsilon_decay_period = 50000',  # agent steps
  ),
  'offline': (
    'FixedReplayRunner.num_iterations = 8',
    'FixedReplayRunner.training_steps = 20000',  # agent steps: 5,000 updates
    'FixedReplayRunner.evaluation_steps = 5000',  # agent steps
  ),
}


def sweep(name: str, work_dir: pathlib.Path, quick: bool) -> None:
  """Runs the unfinished cells of a sweep."""
  file = HERE / f'{name}.yaml'
  folders = f'--base_dir={work_dir / name}', f'--data_dir={work_dir / "data"}'
  if not quick:
    pong.run('batch_rl.sweep', file, *folders)
    return
  if name == 'offline':
    file = HERE / 'quick.yaml'
  pong.run(
    'batch_rl.sweep', file, *folders, f'--games={GAME}', '--runs=1',
    '--gin_bindings', *QUICK[name],
  )  # fmt: skip


def report(work_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Writes the figures and tables of the runs so far."""
  runs = [work_dir / name for name in ('online', 'offline', 'subsets')]
  present = [path for path in runs if path.exists()]
  pong.run('batch_rl.report', *present, f'--out={work_dir / "report"}')
  results.write(work_dir, out)


def main() -> None:
  """Runs the chosen parts."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--work_dir', type=pathlib.Path, default='runs/minatar')
  parser.add_argument('--out', type=pathlib.Path, default=HERE / 'results')
  for name in ('make_data', 'train', 'report', 'quick'):
    parser.add_argument(f'--{name}', action='store_true')
  options = parser.parse_args()
  if options.quick:
    work_dir = options.work_dir / 'quick'
    sweep('online', work_dir, True)
    sweep('offline', work_dir, True)
    report(work_dir, work_dir / 'results')
    return
  if not (options.make_data or options.train or options.report):
    parser.error('give --make_data, --train, --report or --quick')
  if options.make_data:
    sweep('online', options.work_dir, False)
  if options.train:
    sweep('offline', options.work_dir, False)
    sweep('subsets', options.work_dir, False)
  if options.report:
    report(options.work_dir, options.out)


if __name__ == '__main__':
  main()
