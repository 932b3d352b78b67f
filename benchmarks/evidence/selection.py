"""How well policies are ranked without the emulator, on MinAtar and CartPole.

  python -um benchmarks.evidence.selection [--parts fqe td_error q_value] [--quick]

For each game, policies of different quality are trained on one log: by other agents, for
fewer updates, or with a smaller learning rate, each with two seeds.
`batch_rl.fixed_replay.select` then ranks them by fitted Q evaluation, by their TD errors
and by their own values, and compares the ranks with the returns of their last evaluations.

The data of MinAtar is `data/MinAtar-Breakout/1`; CartPole's is made by an online DQN. Run
the command again to continue it. `--out` receives a table for each game, and
`summary.csv`. `--parts` chooses methods. `--quick` ranks two checkpoints of one policy in MinAtar.
"""

import concurrent.futures
import itertools
import pathlib
import sys

import pandas as pd

from batch_rl.fixed_replay import ranking
from batch_rl.runs import progress
from batch_rl.utils import files, machine, programs
from benchmarks import logs, measuring
from benchmarks.evidence import pong

METHODS = ('fqe', 'td_error', 'q_value')
SLOW = 'tf.train.AdamOptimizer.learning_rate = 1e-5'
CQL = 'FixedReplayDQNAgent.terms = [@CQL()]'
# Agent, further gin binding or None, and number of updates, by game and policy.
POLICIES = {
  'MinAtar-Breakout': {
    'dqn': ('dqn_adam', None, 20_000),
    'dqn-short': ('dqn_adam', None, 4_000),
    'dqn-slow': ('dqn_adam', SLOW, 4_000),
    'qr-dqn': ('quantile', None, 20_000),
    'cql': ('dqn_adam', CQL, 20_000),
    'c51': ('c51', None, 8_000),
  },
  'CartPole': {
    'dqn': ('dqn', None, 12_000),
    'dqn-short': ('dqn', None, 1_000),
    'dqn-slow': ('dqn', SLOW, 2_000),
    'qr-dqn': ('quantile', None, 12_000),
    'rem': (
      'multi_head_dqn',
      "FixedReplayMultiHeadDQNAgent.transform_strategy = 'STOCHASTIC'",
      6_000,
    ),
    'cql': ('dqn', CQL, 12_000),
  },
}
# The environment's gin file, agent steps an update, and agent steps of the evaluation.
GAMES = {
  'MinAtar-Breakout': ('batch_rl/minatar/configs/offline.gin', 4, 20_000),
  'CartPole': ('benchmarks/evidence/cartpole.gin', 2, 20_000),
}
FQE_ITERATIONS = 3  # of 10,000 updates
SEEDS, CHECKPOINTS = 2, 1
if measuring.QUICK:
  del POLICIES['CartPole']
  POLICIES['MinAtar-Breakout'] = {'dqn': ('dqn_adam', None, 20_000)}
  FQE_ITERATIONS, SEEDS, CHECKPOINTS = 1, 1, 2


def flags(files_: list[str], bindings: list[str]) -> list[str]:
  """Returns the flags of gin files and bindings."""
  return [
    *(f'--gin_files={file}' for file in files_),
    *(f'--gin_bindings={binding}' for binding in bindings),
  ]


def is_finished(base_dir: pathlib.Path) -> bool:
  """Returns whether a run is done."""
  return (progress.read(str(base_dir)) or {}).get('phase') == progress.FINISHED


def data_of(game: str, work_dir: pathlib.Path, shortened: int) -> pathlib.Path:
  """Returns the log of a game; makes that of CartPole."""
  if game != 'CartPole':
    return pathlib.Path(logs.minatar())
  log, base_dir = work_dir / 'data' / 'CartPole' / '1', work_dir / 'online'
  if not is_finished(base_dir):
    bindings = [
      "create_online_agent.agent_name = 'dqn'",
      f'LoggedRunner.training_steps = {10_000 // shortened}',
    ]
    pong.run(
      'batch_rl.baselines.train', f'--base_dir={base_dir}',
      f'--replay_log_dir={log}', '--seed=1', *flags([GAMES[game][0]], bindings),
      threads=1,
    )  # fmt: skip
  return log


def train(
  game: str, name: str, log: pathlib.Path, base_dir: pathlib.Path, seed: int,
  shortened: int,
) -> None:  # fmt: skip
  """Trains a policy, unless that is done."""
  if is_finished(base_dir):
    return
  environment, period, evaluation_steps = GAMES[game]
  agent, further, updates = POLICIES[game][name]
  gin_files, bindings = [], [
    f'FixedReplayRunner.num_iterations = {CHECKPOINTS}',
    f'FixedReplayRunner.training_steps = {period * updates // shortened}',
    f'FixedReplayRunner.evaluation_steps = {evaluation_steps // shortened}',
    f'FixedReplayRunner.probe_size = {2048 // shortened}',
  ]  # fmt: skip
  if game == 'CartPole':
    bindings.append(f'create_offline_agent.agent_name = {agent!r}')
  else:
    gin_files.append(f'batch_rl/fixed_replay/configs/{agent}.gin')
  if further:
    bindings.append(further)
  pong.run(
    'batch_rl.fixed_replay.train', f'--base_dir={base_dir}',
    f'--replay_dir={log}', f'--seed={seed}',
    *flags([*gin_files, environment], bindings),
    threads=1,
  )  # fmt: skip


def select(
  game: str, methods: list[str], log: pathlib.Path, work_dir: pathlib.Path,
  shortened: int,
) -> pd.DataFrame:  # fmt: skip
  """Trains and ranks the policies of a game; returns the table of their scores."""
  policies = list(itertools.product(POLICIES[game], range(1, SEEDS + 1)))
  runs = [work_dir / f'runs/{game}/{name}-{seed}' for name, seed in policies]

  def train_one(policy, base_dir):
    train(game, policy[0], log, base_dir, policy[1], shortened)

  with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
    list(pool.map(train_one, policies, runs))
  bindings = [
    f'FixedReplayRunner.num_iterations = {FQE_ITERATIONS}',
    f'FixedReplayRunner.training_steps = {10_000 // shortened}',
    f'FixedReplayRunner.probe_size = {2048 // shortened}',
    'tf.train.AdamOptimizer.learning_rate = 0.001',
  ]
  out = work_dir / 'selection' / game
  pong.run(
    'batch_rl.fixed_replay.select', *runs, f'--method={",".join(methods)}',
    '--checkpoints=all', f'--out={out}', *flags([], bindings),
    threads=1,
  )  # fmt: skip
  return pd.read_csv(out / 'scores.csv')


def summarise(
  tables: dict[str, pd.DataFrame], methods: list[str]
) -> pd.DataFrame:
  """Returns rank correlation and regret@1 of each method in each game."""
  rows = []
  for game, table in tables.items():
    returns = table['true_return'].to_numpy(float)
    for method in methods:
      good = ranking.goodness(method, table[method].to_numpy(float))
      rows.append(
        {
          'game': game,
          'method': method,
          'policies': len(table),
          'rank_correlation': round(ranking.rank_correlation(good, returns), 4),
          'regret_at_1': round(ranking.regret(good, returns), 4),
        }
      )
  return pd.DataFrame(rows)


def main() -> None:
  """Trains, ranks and reports."""
  parser = measuring.parser(__doc__)
  measuring.add_parts(parser, METHODS)
  measuring.add_work_dir(parser, 'runs/selection')
  measuring.add_out(
    parser, 'benchmarks/evidence/selection', '<work_dir>/results'
  )
  options = parser.parse_args()
  work_dir, shortened = options.work_dir, 100 if options.quick else 1
  out = options.out or work_dir / 'results'
  tables = {}
  for game in POLICIES:
    log = data_of(game, work_dir, shortened)
    table = select(game, options.parts, log, work_dir, shortened)
    table['run'] = [pathlib.Path(run).name for run in table['run']]
    tables[game] = table
    path = out / f'{game}.csv'
    files.write_bytes(str(path), table.round(4).to_csv(index=False).encode())
  summary = summarise(tables, options.parts)
  path = out / 'summary.csv'
  files.write_bytes(str(path), summary.to_csv(index=False).encode())
  print(summary.to_string(index=False))


if __name__ == '__main__':
  sys.exit(programs.run(main))
