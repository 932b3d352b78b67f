"""Do the offline agents learn Pong from what an online DQN has logged?

  python -um benchmarks.evidence.pong              # train, and report
  python -um benchmarks.evidence.pong --make_data  # play and log the data anew

Everything is done by the package's own commands, which are printed. Runs are kept in
`--work_dir`; the same command goes on with those that were interrupted and leaves out
those that are done. What each gave goes to `--out`, where `python -m batch_rl.report`
can read it, and a report beside it.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

from batch_rl import run_record
from batch_rl.fixed_replay import results

HERE = pathlib.Path('benchmarks/evidence')
CONFIGS = 'batch_rl/fixed_replay/configs'
DATA = 'data/Pong/1'
SEED_OF_DATA = 1
# The package's gin file of each, and what gives it the small network.
AGENTS = {
  'dqn_adam': ('FixedReplayDQNAgent', 'SmallDQNNetwork'),
  'c51': ('FixedReplayRainbowAgent', 'SmallRainbowNetwork'),
  'quantile': ('FixedReplayQuantileAgent', 'SmallQuantileNetwork'),
  'multi_head_dqn': ('FixedReplayMultiHeadDQNAgent', 'SmallMultiHeadQNetwork'),
  'rem': ('FixedReplayMultiHeadDQNAgent', 'SmallMultiHeadQNetwork'),
}


def offline_command(agent: str, seed: int, base_dir: pathlib.Path) -> list[str]:
  """Trains an agent on the data."""
  agent_class, network = AGENTS[agent]
  bindings = [
    f'{agent_class}.network = @{network}',
    f'{agent_class}.update_horizon = 10',
    f'{agent_class}.target_update_period = 2000',  # agent steps: 500 updates
  ]
  return [
    *(sys.executable, '-um', 'batch_rl.fixed_replay.train'),
    f'--base_dir={base_dir}',
    f'--replay_dir={DATA}',
    f'--gin_files={CONFIGS}/{agent}.gin',
    f'--gin_files={HERE}/offline.gin',
    f'--seed={seed}',
    *(f'--gin_bindings={binding}' for binding in bindings),
  ]


def online_command(base_dir: pathlib.Path, log_dir: str) -> list[str]:
  """Plays, learns, and logs it."""
  return [
    *(sys.executable, '-um', 'batch_rl.baselines.train'),
    f'--base_dir={base_dir}',
    f'--replay_log_dir={log_dir}',
    f'--gin_files={HERE}/online.gin',
    f'--seed={SEED_OF_DATA}',
  ]


def run(command: list[str], log: pathlib.Path, threads: int) -> None:
  """Runs a command, its output to a file.

  Args:
    command: a run's.
    log: gets what it prints.
    threads: of TensorFlow.

  Raises:
    RuntimeError: if it fails.
  """
  print(shlex.join(['python', *command[1:]]), flush=True)
  names = ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS')
  environment = os.environ | dict.fromkeys(names, str(threads))
  log.parent.mkdir(parents=True, exist_ok=True)
  with log.open('a') as file:
    ended = subprocess.run(command, stderr=file, env=environment, check=False)
  if ended.returncode:
    raise RuntimeError(f'exit code {ended.returncode}: see the end of {log}')


def keep(base_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Copies what a report reads of a run."""
  shutil.rmtree(out, ignore_errors=True)
  out.mkdir(parents=True)
  shutil.copy(base_dir / run_record.FILE_NAME, out)
  evaluations = base_dir / results.DIRECTORY
  if evaluations.exists():
    shutil.copytree(evaluations, out / results.DIRECTORY)
    return
  *_, newest = sorted(
    (base_dir / 'logs').iterdir(), key=lambda path: path.stat().st_mtime
  )
  (out / 'logs').mkdir()
  shutil.copy(newest, out / 'logs')


def main() -> None:
  """Runs what is not done, and reports."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--work_dir', type=pathlib.Path, default='runs/pong')
  parser.add_argument('--out', type=pathlib.Path, default=HERE / 'pong')
  parser.add_argument('--seeds', type=int, nargs='+', default=[1, 2])
  parser.add_argument('--agents', nargs='+', default=[*AGENTS], choices=AGENTS)
  parser.add_argument('--make_data', action='store_true')
  parser.add_argument('--workers', type=int, default=2, help='runs at a time')
  options = parser.parse_args()
  if options.make_data:
    base_dir = options.work_dir / 'online'
    made = options.work_dir / DATA
    run(online_command(base_dir, str(made)), base_dir / 'log.txt', threads=2)
    keep(base_dir, options.out / 'runs' / 'online')
    print(f'{made} can take the place of {DATA}.')
    return
  cells = list(itertools.product(options.seeds, options.agents))
  started = time.monotonic()

  def train(cell):
    seed, agent = cell
    base_dir = options.work_dir / agent / str(seed)
    command = offline_command(agent, seed, base_dir)
    run(command, base_dir / 'log.txt', threads=1)
    keep(base_dir, options.out / 'runs' / agent / str(seed))
    return cell

  with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
    done = [pool.submit(train, cell) for cell in cells]
    for i, future in enumerate(concurrent.futures.as_completed(done), 1):
      seed, agent = future.result()
      minutes = (time.monotonic() - started) / 60
      left = minutes / i * (len(cells) - i)
      print(
        f'{agent}, seed {seed}: done. {i} of {len(cells)} runs, {minutes:.0f} min, '
        f'{left:.0f} min to go',
        flush=True,
      )
  report = [
    *(sys.executable, '-m', 'batch_rl.report'),
    str(options.out / 'runs'),
    f'--out={options.work_dir / "report"}',
  ]
  print(shlex.join(['python', *report[1:]]), flush=True)
  subprocess.run(report, check=True)


if __name__ == '__main__':
  main()
