"""The paper's claims on MinAtar: online DQNs make the data, offline agents learn from it.

  python -um benchmarks.evidence.minatar --make_data  # online.yaml
  python -um benchmarks.evidence.minatar --choose     # settings.yaml
  python -um benchmarks.evidence.minatar --train      # offline.yaml, subsets.yaml
  python -um benchmarks.evidence.minatar --report
  python -um benchmarks.evidence.minatar --quick      # data, training and report

Everything runs by the package's own commands, which are printed. The runs are sweeps,
which print their ETA; run a command again to continue it. With `--iterations=K` the
runs of data and training stop after K iterations; without it they go on from there.
`--report` writes a report by `batch_rl.report` to `--work_dir`. It adds the runs there to
the evaluations in `--out`, which may have runs from other machines, and makes tables
and a figure of them all.
`--quick` has one game, one run, fewer agents and steps; its results are in
`<work_dir>/quick`.
"""

import argparse
import pathlib
import sys

from batch_rl.utils import programs
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


def sweep(name: str, work_dir: pathlib.Path, iterations: int | None) -> None:
  """Runs the unfinished cells of a sweep, or only their first iterations."""
  runner = 'LoggedRunner' if name == 'online' else 'FixedReplayRunner'
  shorter = f'{runner}.num_iterations = {iterations}'
  pong.run(
    'batch_rl.sweep', HERE / f'{name}.yaml', *_folders(name, work_dir),
    *(['--gin_bindings', shorter] if iterations else []),
  )  # fmt: skip


def quick_sweep(name: str, work_dir: pathlib.Path) -> None:
  """Runs the unfinished cells of the short form of a sweep."""
  file = HERE / ('quick.yaml' if name == 'offline' else 'online.yaml')
  pong.run(
    'batch_rl.sweep', file, *_folders(name, work_dir), f'--games={GAME}',
    '--runs=1', '--gin_bindings', *QUICK[name],
  )  # fmt: skip


def choose(work_dir: pathlib.Path) -> None:
  """Makes data of one run of Asterix, and tries settings on them."""
  data = f'--data_dir={work_dir / "settings_data"}'
  pong.run(
    'batch_rl.sweep', HERE / 'online.yaml', data, '--games=MinAtar/Asterix',
    '--runs=1', f'--base_dir={work_dir / "settings_online"}',
    '--gin_bindings', 'LoggedRunner.num_iterations = 10',
  )  # fmt: skip
  base_dir = f'--base_dir={work_dir / "settings"}'
  pong.run('batch_rl.sweep', HERE / 'settings.yaml', data, base_dir)


def _folders(name, work_dir):
  return f'--base_dir={work_dir / name}', f'--data_dir={work_dir / "data"}'


def report(work_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Writes the figures and tables of the runs so far."""
  runs = [work_dir / name for name in ('online', 'offline', 'subsets')]
  present = [path for path in runs if path.exists()]
  if present:
    pong.run('batch_rl.report', *present, f'--out={work_dir / "report"}')
  results.write(work_dir, out)


def main() -> None:
  """Runs the chosen parts."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--work_dir', type=pathlib.Path, default='runs/minatar')
  parser.add_argument('--out', type=pathlib.Path, default=HERE / 'results')
  parser.add_argument('--iterations', type=int, help='iterations of all runs')
  parts = 'make_data', 'choose', 'train', 'report'
  for name in (*parts, 'quick'):
    parser.add_argument(f'--{name}', action='store_true')
  options = parser.parse_args()
  if options.quick:
    work_dir = options.work_dir / 'quick'
    quick_sweep('online', work_dir)
    quick_sweep('offline', work_dir)
    report(work_dir, work_dir / 'results')
    return
  if not any(getattr(options, part) for part in parts):
    parser.error(f'give --{", --".join(parts)} or --quick')
  if options.make_data:
    sweep('online', options.work_dir, options.iterations)
  if options.choose:
    choose(options.work_dir)
  if options.train:
    for name in ('offline', 'subsets'):
      sweep(name, options.work_dir, options.iterations)
  if options.report:
    report(options.work_dir, options.out)


if __name__ == '__main__':
  sys.exit(programs.run(main))
