"""Trains offline agents on the Pong data that an online DQN logged.

  python -um benchmarks.evidence.pong              # train and report
  python -um benchmarks.evidence.pong --make_data  # make the data again

Everything runs by the package's own commands, which are printed. The offline runs are
a sweep, `pong.yaml`; run the command again to continue it. `--out`, at first a copy of
`pong/`, receives the records and evaluations of all runs so far as `runs.zip`, with a table
and a figure. A report by `batch_rl.report` goes to `--work_dir`.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

from batch_rl.runs import evaluations as evaluations_lib
from batch_rl.runs import run_record
from batch_rl.utils import files, machine
from benchmarks import measuring
from benchmarks.evidence import pong_report

HERE = pathlib.Path('benchmarks/evidence')
KEPT = HERE / 'pong'
DATA = 'data/Pong/1'
SEED_OF_DATA = 1
COLLECTED = 'collected'  # in the work directory: the contents of `runs.zip`


def run(*arguments: object, threads: int | None = None) -> None:
  """Runs `python -um` with arguments; exits with its code on failure."""
  command = ['-um', *map(str, arguments)]
  print(shlex.join(['python', *command]), flush=True)
  environment = {**os.environ}
  if threads:
    environment |= machine.thread_limits(threads)
  completed = subprocess.run(
    [sys.executable, *command], env=environment, check=False
  )
  if completed.returncode:
    sys.exit(completed.returncode)


def keep(base_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Copies the files that a report reads, without this machine's directories."""
  shutil.rmtree(out, ignore_errors=True)
  out.mkdir(parents=True)
  text = (base_dir / run_record.FILE_NAME).read_text(encoding='utf-8')
  record = json.loads(text.replace(f'{os.getcwd()}/', ''))
  record.pop('command', None)
  files.write_json(str(out / run_record.FILE_NAME), record)
  evaluations = base_dir / evaluations_lib.DIRECTORY
  if evaluations.exists():
    shutil.copytree(evaluations, out / evaluations_lib.DIRECTORY)
    return
  *_, newest = sorted(
    (base_dir / 'logs').iterdir(), key=lambda path: path.stat().st_mtime
  )
  (out / 'logs').mkdir()
  shutil.copy(newest, out / 'logs')


def make_data(work_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Trains the online agent and logs its data."""
  base_dir, logged = work_dir / 'online', work_dir / DATA
  run(
    'batch_rl.baselines.train',
    f'--base_dir={base_dir}',
    f'--replay_log_dir={logged}',
    f'--gin_files={HERE}/online.gin',
    f'--seed={SEED_OF_DATA}',
    threads=2,
  )
  runs = work_dir / COLLECTED
  pong_report.unpack(out, runs)
  keep(base_dir, runs / 'online')
  pong_report.pack(runs, out)
  print(f'{logged} can replace {DATA}.')


def main() -> None:
  """Runs the unfinished part of the sweep, and reports."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--work_dir', type=pathlib.Path, default='runs/pong')
  measuring.add_out(parser, KEPT, '<work_dir>/results')
  parser.add_argument('--make_data', action='store_true')
  parser.add_argument(
    '--collect',
    action='store_true',
    help='report the results so far without training',
  )
  parser.add_argument(
    '--report_agents',
    default='',
    help='regular expression; default: all agents',
  )
  options = parser.parse_args()
  out = measuring.continue_record(options, KEPT)
  if options.make_data:
    make_data(options.work_dir, out)
    return
  if not options.collect:
    run('batch_rl.sweep', HERE / 'pong.yaml', f'--base_dir={options.work_dir}')
  runs = options.work_dir / COLLECTED
  pong_report.unpack(out, runs)
  for path in sorted(options.work_dir.glob('*/Pong/run-1/seed-*')):
    agent, seed = path.relative_to(options.work_dir).parts[::3]
    if (path / evaluations_lib.DIRECTORY).exists():
      keep(path, runs / agent / seed)
  pong_report.pack(runs, out)
  pong_report.report(out)
  chosen = (
    [f'--agents={options.report_agents}'] if options.report_agents else []
  )
  run('batch_rl.report', runs, f'--out={options.work_dir / "report"}', *chosen)


if __name__ == '__main__':
  main()
