"""Trains the offline agents on CartPole and Acrobot, on three kinds of data.

  python -um benchmarks.evidence.control

For each environment and seed, an online DQN and a random policy make 100,000 agent
steps of data each. Each offline agent trains on all of the DQN's data, on its last
tenth, and on the random policy's data: 15,000 updates each, with the same settings
(`small_control.gin`). Two controls must not learn: one with a learning rate of 0, and
one on data with shuffled ends of episodes.

Everything runs through the package's runners, on shards on disk. Results of finished
runs are kept in `--work_dir`; run the command again to continue. `--out` receives
`results.csv`, `data.csv`, and a table and a figure made from them. `--quick` has one agent
and few steps, and shows only that it works.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import dataclasses
import functools
import itertools
import multiprocessing
import os
import pathlib
import shutil
import time
from collections.abc import Iterable

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from batch_rl.baselines import run_experiment as online
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import replay_log
from batch_rl.dataset.store import store
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.runs import interruption
from batch_rl.tests import cartpole, gin_lines
from batch_rl.utils import files, machine, safe_pickle
from benchmarks import measuring
from benchmarks.evidence import control_report

GIN_FILES = {
  'CartPole': 'benchmarks/evidence/cartpole.gin',
  'Acrobot': 'benchmarks/evidence/acrobot.gin',
}
# The settings were chosen with other seeds, for DQN alone.
FIRST_SEED = 21
# Logs and subsets of them, by kind of data.
DATA = {
  'all': ('online', None),
  'last tenth': ('online', 'last_transitions(10000)'),
  'random': ('random', None),
}
SHUFFLED = {'shuffled ends': ('shuffled', None)}
# Names in the package and gin bindings, by agent.
AGENTS = {
  'DQN': ('dqn', ()),
  'C51': ('c51', ()),
  'QR-DQN': ('quantile', ()),
  'Ensemble-DQN': (
    'multi_head_dqn',
    ("FixedReplayMultiHeadDQNAgent.transform_strategy = 'IDENTITY'",),
  ),
  'Averaged Ensemble-DQN': (
    'multi_head_dqn',
    ("FixedReplayMultiHeadDQNAgent.transform_strategy = 'AVERAGE'",),
  ),
  'REM': (
    'multi_head_dqn',
    ("FixedReplayMultiHeadDQNAgent.transform_strategy = 'STOCHASTIC'",),
  ),
  'REM, separate networks': (
    'multi_network_dqn',
    ("FixedReplayMultiNetworkDQNAgent.transform_strategy = 'STOCHASTIC'",),
  ),
}
NOT_LEARNING = {
  'DQN, learning rate 0': (
    'dqn',
    # Changes no weight in float32; gin refuses 0.
    ('tf.train.AdamOptimizer.learning_rate = 1e-30',),
  )
}
# Agents that make data, and the log that each needs.
LOGS = {'online': None, 'random': None, 'shuffled': 'online'}
TRAINED_ON = (*DATA,)
FURTHER_BINDINGS: tuple[str, ...] = ()
if measuring.QUICK:
  AGENTS, SHUFFLED = {'DQN': AGENTS['DQN']}, {}
  NOT_LEARNING = {}
  DATA['last tenth'], TRAINED_ON = ('online', 'last_transitions(100)'), ('all',)
  FURTHER_BINDINGS = (
    'LoggedRunner.num_iterations = 1',
    'LoggedRunner.training_steps = 200',
    'LoggedRunner.evaluation_steps = 100',
    'LoggedRunner.max_steps_per_episode = 100',
    'LoggedDQNAgent.min_replay_history = 150',
    'FixedReplayRunner.num_iterations = 1',
    'FixedReplayRunner.training_steps = 20',
    'FixedReplayRunner.evaluation_steps = 100',
    'FixedReplayRunner.max_steps_per_episode = 100',
    'FixedReplayRunner.probe_size = 32',
  )


@dataclasses.dataclass(frozen=True)
class Cell:
  """One run.

  Attributes:
    environment: Name in `GIN_FILES`.
    data: Kind of training data, a name in `DATA` or `SHUFFLED`; '' for a run that
      makes data.
    agent: Name in `AGENTS` or `NOT_LEARNING`; in `LOGS` if it makes data.
    seed: Seed of the run, and of its training data.
  """

  environment: str
  data: str
  agent: str
  seed: int

  def __str__(self):
    task = (
      f'{self.agent} on {self.data}' if self.data else f'data: {self.agent}'
    )
    return f'{self.environment}, seed {self.seed}, {task}'

  def path(self, work_dir: pathlib.Path) -> pathlib.Path:
    """Returns the path of the result."""
    words = (self.environment, str(self.seed), self.data, self.agent)
    name = '-'.join(word for word in words if word)
    return (
      work_dir / 'cells' / f'{name.replace(", ", "-")}.json'.replace(' ', '_')
    )


def list_cells(seeds: int) -> tuple[list[Cell], list[Cell], list[Cell]]:
  """Returns the runs that make data, the copies of data, and the trainings."""
  logs: list[Cell] = []
  derived: list[Cell] = []
  trainings: list[Cell] = []
  for seed in range(FIRST_SEED, FIRST_SEED + seeds):
    for environment in GIN_FILES:
      cells = functools.partial(Cell, environment, seed=seed)
      logs += [cells('', 'online'), cells('', 'random')]
      trainings += [
        cells(data, agent) for data in TRAINED_ON for agent in AGENTS
      ]
    cells = functools.partial(Cell, 'CartPole', seed=seed)
    derived.append(cells('', 'shuffled'))
    trainings += [cells('all', agent) for agent in NOT_LEARNING]
    trainings += [cells(data, 'DQN') for data in SHUFFLED]
  return logs, derived, trainings


def log_dir(cell: Cell, log: str, work_dir: pathlib.Path) -> pathlib.Path:
  """Returns the run directory of a log, for a cell's environment and seed."""
  return work_dir / 'data' / cell.environment / str(cell.seed) / log


def run_cell(cell: Cell, work_dir: pathlib.Path) -> dict:
  """Runs a cell unless its result is on disk; returns the result."""
  result = files.read_json(str(cell.path(work_dir)))
  if result is not None:
    return result
  try:
    return _run_cell(cell, work_dir)
  except (interruption.Interrupted, KeyboardInterrupt):
    os._exit(130)  # else the pool gives this process the next cell


def _run_cell(cell, work_dir):
  path = cell.path(work_dir)
  start = time.monotonic()
  base_dir = work_dir / 'runs' / path.stem
  if cell.data:
    result = train(cell, base_dir, work_dir)
  elif cell.agent == 'shuffled':
    result = shuffle(cell, work_dir)
  else:
    result = make_log(cell, base_dir, work_dir)
  result = {
    **dataclasses.asdict(cell),
    **result,
    'seconds': time.monotonic() - start,
  }
  files.write_json(str(path), result)
  shutil.rmtree(base_dir, ignore_errors=True)
  return result


def run(runner_class, create_agent, base_dir, cell: Cell, bindings) -> None:
  """Runs all iterations in a new graph; resumes a run in `base_dir`."""
  gin.clear_config()
  with tf.Graph().as_default():
    gin_lines.load(
      [GIN_FILES[cell.environment]],
      [*bindings, *FURTHER_BINDINGS, f'run_seed.seed = {cell.seed}'],
    )
    runner = runner_class(str(base_dir), create_agent)
    runner.run_experiment()
    runner._sess.close()


def make_log(cell: Cell, base_dir, work_dir) -> dict:
  """Trains an online agent that logs its data; returns its evaluations."""
  directory = log_dir(cell, cell.agent, work_dir)
  name = {'online': 'dqn', 'random': 'random'}[cell.agent]
  run(
    online.LoggedRunner,
    functools.partial(
      online.create_online_agent, replay_log_dir=str(directory)
    ),
    base_dir,
    cell,
    [f"create_online_agent.agent_name = '{name}'"],
  )
  logs = (base_dir / 'logs').glob('log_*[0-9]')
  newest = max(logs, key=lambda path: int(path.name[4:]))
  statistics = safe_pickle.loads(newest.read_bytes())
  return {
    'evaluations': [
      {
        'iteration': int(key.removeprefix('iteration_')),
        'return': iteration['eval_average_return'][0],
        'episodes': len(iteration['eval_episode_returns']),
      }
      for key, iteration in statistics.items()
    ]
  }


def shuffle(cell: Cell, work_dir) -> dict:
  """Copies the online log with its terminals shuffled."""
  rows = cartpole.read_log(log_dir(cell, 'online', work_dir) / 'replay_logs')
  np.random.default_rng(cell.seed).shuffle(rows['terminal'])
  directory = log_dir(cell, 'shuffled', work_dir)
  shutil.rmtree(directory, ignore_errors=True)  # of an attempt that was killed
  log = replay_log.ReplayLog(
    str(directory / 'replay_logs'), (4, 1), np.float64, 25000, stack_size=1
  )
  for row in zip(*rows.values(), strict=True):
    log.add(*row)
  log.close()
  return {'evaluations': []}


def train(cell: Cell, base_dir, work_dir) -> dict:
  """Trains an offline agent; returns its evaluations."""
  log, subset = (DATA | SHUFFLED)[cell.data]
  name, bindings = (AGENTS | NOT_LEARNING)[cell.agent]
  directory = log_dir(cell, log, work_dir) / 'replay_logs'
  run(
    offline.FixedReplayRunner,
    functools.partial(
      offline.create_offline_agent, replay_data_dir=str(directory)
    ),
    base_dir,
    cell,
    [
      *bindings,
      f"create_offline_agent.agent_name = '{name}'",
      f'FixedReplayBuffer.subset = {subset!r}',
    ],
  )
  evaluations = [
    files.read_json(str(path))
    for path in (base_dir / 'evaluations').iterdir()
    if path.suffix == '.json'
  ]
  return {
    'evaluations': [
      {
        'iteration': evaluation['iteration'],
        'return': evaluation['mean_return'],
        'episodes': len(evaluation['episodes']),
      }
      for evaluation in sorted(evaluations, key=lambda one: one['iteration'])
    ]
  }


def describe(cell: Cell, data: str, work_dir: pathlib.Path) -> dict:
  """Returns the agent steps, episodes and average return of training data."""
  log, subset = (DATA | SHUFFLED)[data]
  logged = store.Store(str(log_dir(cell, log, work_dir) / 'replay_logs'))
  logged.wait()
  trajectories = subsets.trajectories(logged)
  if subset:
    trajectories = subsets.select(trajectories, subset)
  returns = trajectories.returns[trajectories.selected]
  return {
    'environment': cell.environment,
    'data': data,
    'seed': cell.seed,
    'agent_steps': trajectories.num_steps,
    'episodes': len(returns),
    'average_return': round(float(returns.mean()), 4),
  }


def start_worker() -> None:
  """Silences the progress messages of the runners."""
  logging.set_verbosity(logging.ERROR)


def run_all(
  stages: Iterable[list[Cell]], work_dir: pathlib.Path, workers: int
) -> None:
  """Runs the cells of each stage in parallel, one stage after the other."""
  # On few cores, single-threaded processes are faster than threads.
  os.environ |= {
    'TF_NUM_INTRAOP_THREADS': '1',
    'TF_NUM_INTEROP_THREADS': '1',
    'OMP_NUM_THREADS': '1',
    'TF_CPP_MIN_LOG_LEVEL': '2',
    'TQDM_DISABLE': '1',
    'CUDA_VISIBLE_DEVICES': '',
  }
  if not workers:
    start_worker()
    for cells in stages:
      _run_stage(map, cells, work_dir)
    return
  # ProcessPoolExecutor can hang when it replaces a process (Python 3.11).
  with multiprocessing.get_context('spawn').Pool(
    workers,
    start_worker,
    maxtasksperchild=25,  # a process never frees its graphs
  ) as pool:
    for cells in stages:
      _run_stage(pool.imap_unordered, cells, work_dir)


def _run_stage(map_, cells, work_dir):
  left = [cell for cell in cells if not cell.path(work_dir).exists()]
  if len(left) < len(cells):
    print(f'{len(cells) - len(left)} of {len(cells)} runs are done.')
  start = time.monotonic()
  runs = map_(functools.partial(_run, work_dir), left)
  for done, (cell, result) in enumerate(runs, start=1):
    minutes = (time.monotonic() - start) / 60
    scores = [f'{one["return"]:.0f}' for one in result['evaluations']]
    print(
      f'[{done}/{len(left)}] {cell}: {" ".join(scores)} '
      f'({result["seconds"]:.0f} s); {done / minutes:.1f} runs a minute, '
      f'{minutes / done * (len(left) - done):.0f} minutes left'
    )


def _run(work_dir: pathlib.Path, cell: Cell) -> tuple[Cell, dict]:
  return cell, run_cell(cell, work_dir)


def main() -> None:
  """Runs the unfinished cells, then writes results, table and figure."""
  parser = measuring.parser(__doc__)
  measuring.add_out(parser, control_report.KEPT, '<work_dir>/results')
  measuring.add_work_dir(parser, 'runs/control')
  parser.add_argument('--seeds', type=int, default=5)
  parser.add_argument(
    '--workers',
    type=int,
    default=machine.num_cpus(),
    help='processes; 0: in this one',
  )
  parser.add_argument(
    '--collect',
    action='store_true',
    help='report finished runs without training',
  )
  arguments = parser.parse_args()
  work_dir = arguments.work_dir.absolute()
  stages = list_cells(1 if arguments.quick else arguments.seeds)
  if not arguments.collect:
    run_all(stages, work_dir, arguments.workers)
  done = [
    (cell, result)
    for cell in itertools.chain(*stages)
    if (result := files.read_json(str(cell.path(work_dir)))) is not None
  ]
  described = [
    describe(cell, data, work_dir)
    for cell, _ in done
    for data, (log, _) in DATA.items()
    if (cell.data, cell.agent) == ('', log)
  ]
  out = arguments.out or work_dir / 'results'
  control_report.write_results(out, [result for _, result in done], described)
  control_report.report(out)
  print(f'{out}: {", ".join(sorted(os.listdir(out)))}')


if __name__ == '__main__':
  main()
