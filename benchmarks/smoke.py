"""`make bench-smoke`: runs each program of `benchmarks/` in its smallest form.

  python -um benchmarks.smoke [--only fuzz:json gpu] [--at_once 2] [--limit 600]

The programs are the modules with a `__main__` part, and the shell scripts. The smallest form
is `--quick`, unless `ARGUMENTS` has another; `program:part` has that of a part. A form fails
if it ends with an error, prints no number, or changes a file that git tracks. One that lacks
a peer or a library is left out. The exit code is 1 if a form fails; its log is kept.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from batch_rl.utils import choices, machine, programs
from benchmarks import measuring

ROOT = pathlib.Path(__file__).absolute().parents[1]
ARGUMENTS = {
  'data_path': '--quick --parts loading',
  'data_path:opening': '--quick --parts opening',
  'demo': '--quick online',
  'demo:offline': '--quick offline {sample}',
  'endurance': '--quick --work_dir={dir} --parts offline',
  'endurance:online': '--quick --work_dir={dir} --parts online',
  'evidence.control': '--quick --workers=0 --work_dir={dir}',
  'evidence.minatar': 'data whole --dry_run --work_dir={dir}',
  'evidence.offline_to_online': '--quick --work_dir={dir}',
  'evidence.pong': '--collect --report_agents=^DQN --work_dir={dir}',
  'evidence.selection': '--quick --work_dir={dir} --parts td_error q_value',
  'evidence.selection:fqe': '--quick --work_dir={dir} --parts fqe',
  'faults': '--quick --work_dir={dir}',
  'figures': '--check',
  'fuzz': '--mutations=1 --kinds=shards,store,unplugged',
  'fuzz:checkpoints': '--mutations=1 --kinds=checkpoints',
  'fuzz:json': '--mutations=1 --kinds=json',
  'gpu': '{sample}/replay_logs --only=c51 --minutes=0.1',
  'gpu_updates': '',
  'iteration': '--quick --parts updates',
  'iteration:cores': '--quick --parts cores',
  'iteration:evaluation': '--quick --parts evaluation',
  'iteration:online': '--quick --parts online',
  'minatar_scores': '--random --episodes=2',
  'minatar_speed': '--quick --parts agents',
  'minatar_speed:settings': '--quick --parts settings',
  'mutants': '--paths=batch_rl/utils/number_ranges.py --mutants=1 --seconds=2 '
  '--work_dir={dir} --out={dir}/results.jsonl',
  'pins': '3=requirements.txt',
  'processes': 'load {sample}/replay_logs 0',
  'random_scores': '--games=Pong --episodes=10',
  'sequences': '--quick {sample}',
  'shared_store': '--quick --parts own',
  'shared_store:shared': '--quick --parts shared',
  'sweep_faults': '--quick --work_dir={dir}',
  'torch_loading': '--quick {sample}',
}


def find() -> dict[str, list[str]]:
  """Returns the command of each form, without arguments, by its name."""
  found = {}
  for path in sorted((ROOT / 'benchmarks').rglob('*')):
    name = '.'.join(path.relative_to(ROOT / 'benchmarks').with_suffix('').parts)
    name = name.removesuffix('.__main__')
    if path.suffix == '.sh':
      found[name] = ['bash', str(path)]
    elif (
      path.suffix == '.py' and "if __name__ == '__main__'" in path.read_text()
    ):
      found[name] = [sys.executable, '-um', f'benchmarks.{name}']
  # Two are left out: this program, and one that `peers` runs in another environment.
  del found['smoke'], found['peers.theirs']
  found |= {
    form: found[form.partition(':')[0]] for form in ARGUMENTS if ':' in form
  }
  return found


def make_sample(directory: pathlib.Path) -> pathlib.Path:
  """Copies the first shard of `data/Pong/1`; returns the run of this shard."""
  shards = directory / 'sample' / 'Pong' / '1' / 'replay_logs'
  shards.mkdir(parents=True)
  for path in (ROOT / 'data/Pong/1/replay_logs').glob('*_ckpt.0.gz'):
    shutil.copy(path, shards)
  return shards.parent


_running: set[int] = set()  # process groups of the programs under way


def run(command: Sequence[str], log: pathlib.Path, limit: float) -> str:
  """Runs a program; its output goes to `<log>.out` and `<log>.err`.

  Returns:
    'ok', or why not.
  """
  out, errors = (pathlib.Path(f'{log}.{kind}') for kind in ('out', 'err'))
  environment = {
    **os.environ,
    'DEMO_DIR': f'{log}/demo',
    'VENV': sys.prefix,
    'TF_CPP_MIN_LOG_LEVEL': '2',
  }
  with out.open('wb') as stdout, errors.open('wb') as stderr:
    process = subprocess.Popen(
      command,
      stdin=subprocess.DEVNULL,
      stdout=stdout,
      stderr=stderr,
      cwd=ROOT,
      env=environment,
      start_new_session=True,
    )
    _running.add(process.pid)
    try:
      code = process.wait(limit)
    except subprocess.TimeoutExpired:
      return f'not done after {limit:.0f} s'
    finally:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
      _running.discard(process.pid)
  printed, said = out.read_text(), errors.read_text()
  if code:
    *_, last = re.findall(r'\S.*', f'{printed}\n{said}') or ['']
    return (
      last if code == measuring.UNAVAILABLE else f'exit code {code}: {last}'
    )
  return 'ok' if re.search(r'\d', printed) else 'prints no number'


def tracked_changes() -> bytes:
  """Returns all differences from the commit; b'' outside a git repository."""
  command = ['git', '-C', str(ROOT), 'diff', '--binary', 'HEAD']
  return subprocess.run(command, capture_output=True, check=False).stdout


def main() -> int:
  """Prints a line for each program; returns 1 if one fails."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    '--only', nargs='+', help='names, e.g. fuzz fuzz:json evidence.pong'
  )
  parser.add_argument(
    '--limit', type=float, default=600, help='seconds for a form'
  )
  parser.add_argument(
    '--at_once', type=int, default=machine.num_cpus(), help='forms at a time'
  )
  options = parser.parse_args()
  found = find()
  for name in options.only or ():
    choices.choose('form', name, found)
  logs = pathlib.Path(tempfile.mkdtemp(prefix='bench-smoke-'))
  sample = make_sample(logs)
  changes, lock = tracked_changes(), threading.Lock()

  def check(name: str) -> tuple[str, float, str]:
    """Runs a program; returns its name, the seconds, and 'ok' or why not."""
    nonlocal changes
    directory = logs / name
    directory.mkdir()
    arguments = ARGUMENTS.get(name, '--quick').format(
      dir=directory, sample=sample
    )
    start = time.monotonic()
    command = [*found[name], *shlex.split(arguments)]
    result = run(command, directory, options.limit)
    with lock:
      before, changes = changes, tracked_changes()
      if changes != before:
        result = (
          'this program, or one that ran at the same time, changed a tracked file: see '
          'git diff'
        )
    return name, time.monotonic() - start, result

  began, failed = time.monotonic(), 0
  names = options.only or found
  pool = concurrent.futures.ThreadPoolExecutor(options.at_once)
  try:
    futures = [pool.submit(check, name) for name in names]
    for future in concurrent.futures.as_completed(futures):
      name, seconds, result = future.result()
      failed += result != 'ok' and not result.startswith('left out')
      print(f'{name:27} {seconds:5.1f} s  {result}', flush=True)
  finally:  # Ctrl-C reaches neither the programs nor the pool.
    pool.shutdown(wait=False, cancel_futures=True)
    for process in [*_running]:
      os.killpg(process, signal.SIGKILL)
  print(
    f'{len(names)} forms, {failed} failed, {time.monotonic() - began:.0f} s'
  )
  if failed:
    print(f'Logs: {logs}')
  else:
    shutil.rmtree(logs)
  return int(failed > 0)


if __name__ == '__main__':
  sys.exit(programs.run(main))
