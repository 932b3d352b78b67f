"""Online DQNs on MinAtar's Breakout, from scratch and from an offline run.

  python -um benchmarks.evidence.offline_to_online
  python -um benchmarks.evidence.offline_to_online --quick   # in <work_dir>/quick

A DQN (Adam) trains offline on `data/MinAtar-Breakout/1` for 100,000 updates. Online DQNs
then play 100,000 agent steps, from random or from the offline weights, with or without
offline rows in their batches, with two seeds each. Everything runs by the package's own
commands, which are printed; run the command again to continue. `--out` receives
`results.csv` and a figure. `--quick` has one method and few steps.
"""

import io
import pathlib
import sys
from typing import Any

import matplotlib.figure
import numpy as np

from batch_rl.report import run_results
from batch_rl.utils import files, programs, safe_pickle
from benchmarks import logs, measuring
from benchmarks.evidence import pong

HERE = pathlib.Path('benchmarks/evidence/offline_to_online')
DATA = logs.minatar()
OFFLINE = ('FixedReplayRunner.num_iterations = 5',)  # of 20,000 updates
ONLINE = (
  'LoggedRunner.num_iterations = 10',
  'LoggedRunner.training_steps = 10000',  # agent steps
  'LoggedRunner.evaluation_steps = 5000',  # agent steps
  # Without offline weights: random actions at first.
  'AnyAgent.epsilon_decay_period = 50000',  # agent steps
)
# With offline weights: epsilon_train from the first step on.
NO_DECAY = ('AnyAgent.epsilon_fn = @identity_epsilon',)
HALF = (
  f"WrappedLoggedReplayBuffer.offline_dir = '{DATA}'",
  'WrappedLoggedReplayBuffer.offline_fraction = 0.5',
)
# Whether a run starts from the offline weights, and whether it has offline rows.
METHODS = {
  'from scratch': (False, False),
  'from scratch, half offline rows': (False, True),
  'from offline weights': (True, False),
  'from offline weights, half offline rows': (True, True),
}
QUICK = {
  'offline': (
    'FixedReplayRunner.num_iterations = 1',
    'FixedReplayRunner.training_steps = 400',  # agent steps: 100 updates
    'FixedReplayRunner.evaluation_steps = 200',
  ),
  'online': (
    'LoggedRunner.num_iterations = 1',
    'LoggedRunner.training_steps = 1200',
    'LoggedRunner.evaluation_steps = 200',
  ),
}
if measuring.QUICK:
  METHODS = dict([METHODS.popitem()])
FIELDS = (
  *('method', 'seed', 'agent_steps', 'evaluation_return', 'episodes'),
  'training_return',
)


def train(work_dir: pathlib.Path, seeds: int, quick: bool) -> None:
  """Runs what is unfinished."""
  cache = f"WrappedLoggedReplayBuffer.offline_cache_dir = '{work_dir}/stores'"
  for seed in range(1, seeds + 1):
    offline = work_dir / 'offline' / f'seed-{seed}'
    _run(
      'fixed_replay',
      offline,
      seed,
      [f'--replay_dir={DATA}'],
      QUICK['offline'] if quick else OFFLINE,
    )
    for method, (has_weights, has_rows) in METHODS.items():
      _run(
        'baselines',
        _directory(work_dir, method, seed),
        seed,
        [f'--init_checkpoint_dir={offline}'] if has_weights else [],
        [
          *ONLINE,
          *(NO_DECAY if has_weights else ()),
          *((*HALF, cache) if has_rows else ()),
          *(QUICK['online'] if quick else ()),
        ],
      )


def _run(package, base_dir, seed, flags, bindings):
  kind = 'online' if package == 'baselines' else 'offline'
  pong.run(
    f'batch_rl.{package}.train',
    f'--base_dir={base_dir}',
    f'--seed={seed}',
    f'--gin_files=batch_rl/{package}/configs/dqn_adam.gin',
    f'--gin_files=batch_rl/minatar/configs/{kind}.gin',
    *flags,
    *(f'--gin_bindings={binding}' for binding in bindings),
    threads=1,
  )


def _directory(work_dir, method, seed):
  name = method.replace(',', '').replace(' ', '_')
  return work_dir / 'online' / name / f'seed-{seed}'


def read(work_dir: pathlib.Path, seeds: int) -> list[dict[str, Any]]:
  """Returns a row for each evaluation; those of step 0 are the offline runs'."""
  rows = []
  for method, (has_weights, _) in METHODS.items():
    for seed in range(1, seeds + 1):
      if has_weights:
        offline = run_results.read_run(f'{work_dir}/offline/seed-{seed}')
        values = offline.final, offline.episodes[-1], ''
        rows.append((method, seed, 0, *values))
      directory = _directory(work_dir, method, seed)
      for steps, statistics in _statistics(directory / 'logs'):
        rows.append(
          (
            method,
            seed,
            steps,
            statistics['eval_average_return'][-1],
            len(statistics['eval_episode_returns']),
            statistics['train_average_return'][-1],
          )
        )
  return [dict(zip(FIELDS, row, strict=True)) for row in rows]


def _statistics(logs):
  """Yields agent steps so far and Dopamine's statistics of each iteration."""
  found = logs.glob('log_*[0-9]')
  newest = max(found, key=lambda path: int(path.name[4:]))
  steps = 0
  for statistics in safe_pickle.loads(newest.read_bytes()).values():
    steps += sum(statistics['train_episode_lengths'])
    yield steps, statistics


def write(rows: list[dict[str, Any]], out: pathlib.Path) -> None:
  """Writes the table and the figure."""
  out.mkdir(parents=True, exist_ok=True)
  rounded = [
    {
      k: round(float(v), 3) if 'return' in k and v != '' else v
      for k, v in row.items()
    }
    for row in rows
  ]
  measuring.write_csv(out / 'results.csv', rounded)

  figure = matplotlib.figure.Figure((7, 4.6), layout='constrained')
  axes = figure.subplots()
  for colour, method in enumerate(METHODS):
    mine = [row for row in rows if row['method'] == method]
    curves = [
      [
        (r['agent_steps'], r['evaluation_return'])
        for r in mine
        if r['seed'] == seed
      ]
      for seed in sorted({row['seed'] for row in mine})
    ]
    for curve in curves:
      axes.plot(*zip(*curve, strict=True), color=f'C{colour}', alpha=0.3, lw=1)
    axes.plot(
      *np.mean(curves, axis=0).T,
      color=f'C{colour}',
      marker='o',
      ms=3,
      label=method,
    )
  axes.set(
    xlabel='agent steps online',
    ylabel='return of an evaluation',
    title='MinAtar Breakout: online DQN (Adam), thin lines are single runs',
  )
  axes.set_ylim(bottom=0)
  figure.legend(loc='outside lower center', ncols=2, frameon=False)
  picture = io.BytesIO()
  figure.savefig(picture, format='png', dpi=120)
  files.write_bytes(str(out / 'offline_to_online.png'), picture.getvalue())
  print(f'Written: {out}')


def main() -> None:
  """Trains and reports."""
  parser = measuring.parser(__doc__)
  measuring.add_work_dir(parser, 'runs/offline_to_online')
  measuring.add_out(parser, HERE, '<work_dir>/results')
  parser.add_argument('--seeds', type=int, default=2)
  options = parser.parse_args()
  work_dir, seeds = options.work_dir, 1 if options.quick else options.seeds
  train(work_dir, seeds, options.quick)
  write(read(work_dir, seeds), options.out or work_dir / 'results')


if __name__ == '__main__':
  sys.exit(programs.run(main))
