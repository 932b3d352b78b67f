"""Kills runs at random times and compares the results with uninterrupted runs.

  python -um benchmarks.faults [--kills 200] [--at_once 2] [--quick]

Each kind of run (an offline agent of each family, online agents with their logs, a
conversion) runs once without interruption. Then it runs repeatedly with SIGKILL at
random times: during start-up, training, evaluation, or the writing of a checkpoint or a
shard. Restarted until it is done, it must have the same weights, losses, episodes and
rows. 200 kills take an hour on two otherwise idle cores, with a run on each (`--at_once`).
The same command continues an interrupted benchmark. The exit code is 1 if any run differs;
such runs are kept in `--work_dir`. `--quick` kills a conversion once.
"""

import collections
import concurrent.futures
import functools
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import tqdm

from batch_rl.sweep import stop_with_parent
from batch_rl.tests import results
from batch_rl.utils import files
from benchmarks import measuring
from benchmarks.fuzz import outcomes

DATA_DIR = os.path.abspath('data/Pong/1')
OFFLINE = ('dqn', 'c51', 'quantile', 'rem', 'multi_network_rem')
ONLINE = {'online dqn': 'dqn', 'online random': 'random'}
KINDS: tuple[str, ...] = (*OFFLINE, *ONLINE, 'conversion')
if measuring.QUICK:
  from benchmarks import logs

  KINDS, DATA_DIR = ('conversion',), logs.make('Pong')


def command(kind: str, directory: str) -> list[str]:
  """Returns the command line of a run."""
  if kind == 'conversion':
    program = ['batch_rl.dataset', 'convert', DATA_DIR, f'{directory}/store']
    return [sys.executable, '-um', *program]
  if kind in OFFLINE:
    runner, package, config = 'FixedReplayRunner', 'fixed_replay', kind
    bindings = ['evaluation_environments=2']
    flags = [
      f'--replay_dir={DATA_DIR}',
      # Fewer shards, so that loading does not dominate start-up.
      '--gin_bindings=FixedReplayBuffer.replay_file_end_index=2',
    ]
  else:
    runner, package, config = 'LoggedRunner', 'baselines', ONLINE[kind]
    bindings = []
    flags = [f'--replay_log_dir={directory}']
  bindings += ['num_iterations=2', 'max_steps_per_episode=250']
  short = config == 'multi_network_rem'
  steps = {'training_steps': 120 if short else 400, 'evaluation_steps': 250}
  bindings += [f'{name}={value}' for name, value in steps.items()]
  bindings = [f'{runner}.{binding}' for binding in bindings]
  bindings += [f'Checkpoints.every_steps={30 if short else 80}']
  if kind == 'online dqn':
    bindings += ['LoggedDQNAgent.min_replay_history=200']
    bindings += ['WrappedLoggedReplayBuffer.shard_capacity=300']
  if kind == 'online random':
    bindings += ['RandomAgent.shard_capacity=200']
  return [
    sys.executable,
    '-um',
    f'batch_rl.{package}.train',
    f'--base_dir={directory}/run',
    f'--gin_files=batch_rl/{package}/configs/{config}.gin',
    '--seed=1',
    *flags,
    *(f'--gin_bindings={binding}' for binding in bindings),
  ]


def outcome(kind: str, directory: str) -> dict:
  """Returns the results that kills must not change."""
  if kind == 'conversion':
    store = pathlib.Path(directory) / 'store'
    shards = {
      path.name: hashlib.sha256(path.read_bytes()).hexdigest()
      for path in store.glob('*.bin')
    }
    if not shards:
      raise RuntimeError(f'The conversion has left no shard in {store}.')
    return shards
  log_dir = f'{directory}/replay_logs' if kind in ONLINE else None
  return results.of_run(f'{directory}/run', log_dir)


class Tester:
  """Kills and compares runs until the number of kills is reached.

  Attributes:
    runs: Kind, number of kills and `different` of each finished and compared run. The
      last one describes other results; '' if there are none.
  """

  def __init__(self, work_dir: str, kills: int):
    self._work_dir = work_dir
    self._wanted = kills
    self._lock = threading.Lock()
    self._busy: collections.Counter[str] = collections.Counter()
    self._expected = functools.cache(self._outcome_unbroken)
    self._path = os.path.join(work_dir, 'state.json')
    state = files.read_json(self._path) or {}
    self.runs: list[dict[str, Any]] = state.get('runs', [])
    # Durations of uninterrupted runs after start-up.
    self._seconds: dict[str, float] = state.get('seconds', {})

  def kills(self, kind: str) -> int:
    """Returns the number of kills of a kind."""
    return sum(run['kills'] for run in self.runs if run['kind'] == kind)

  def all_kills(self) -> int:
    """Returns the number of kills of all kinds."""
    return sum(run['kills'] for run in self.runs)

  def rounds(self, kind: str) -> int:
    """Returns the number of runs of a kind."""
    return sum(run['kind'] == kind for run in self.runs)

  def _save(self) -> None:
    state = {'runs': self.runs, 'seconds': self._seconds}
    files.write_json(self._path, state)

  def make_unbroken(self, kind: str) -> None:
    """Makes the uninterrupted run if it does not exist."""
    if kind in self._seconds:
      return
    directory = self._unbroken(kind)
    shutil.rmtree(directory, ignore_errors=True)
    seconds, _ = self._start(kind, directory, None)
    with self._lock:
      self._seconds[kind] = seconds
      self._save()
    print(f'{kind}: {seconds:.0f} s without kills', flush=True)

  def _unbroken(self, kind: str) -> str:
    return os.path.join(self._work_dir, kind.replace(' ', '-'))

  def _outcome_unbroken(self, kind: str) -> dict:
    return outcome(kind, self._unbroken(kind))

  def _break_run(self, kind: str, bar: tqdm.tqdm) -> None:
    """Kills and restarts a run until it is done, and compares it."""
    directory = tempfile.mkdtemp(prefix='broken-', dir=self._work_dir)
    kills = 0
    while self._start_and_kill(kind, directory):
      kills += 1
    wrong = outcomes.differences(outcome(kind, directory), self._expected(kind))
    different = ''
    if wrong:
      kept = directory.replace('broken-', 'different-')
      os.rename(directory, kept)
      different = f'{kind}: {", ".join(wrong)} ({kept})'
      bar.write(different)
    with self._lock:
      run = {'kind': kind, 'kills': kills, 'different': different}
      self.runs.append(run)
      self._save()
      bar.update(kills)
    shutil.rmtree(directory, ignore_errors=True)

  def _start_and_kill(self, kind: str, directory: str) -> bool:
    """Starts a run; returns whether it was killed before its end."""
    if random.random() < 0.1:
      delay, since = random.uniform(0, 5), ''
    else:
      delay, since = random.uniform(0, self._seconds[kind]), 'Devices'
    _, killed = self._start(kind, directory, delay, since)
    return killed

  def _start(
    self, kind: str, directory: str, delay: float | None, since: str = 'Devices'
  ) -> tuple[float, bool]:
    """Starts a run and kills it after a delay.

    Args:
      kind: Kind of the run.
      directory: Directory of the run.
      delay: Seconds until the kill; None for no kill.
      since: Output that starts the delay; '' for the start of the process.

    Returns:
      Seconds from then to the end, and whether the run was killed.
    """
    if kind == 'conversion':
      since = ''
    begun = time.monotonic()
    last = ''
    # The run ends with this process, so that a later one cannot meet it.
    program = [sys.executable, stop_with_parent.__file__, str(os.getpid())]
    with subprocess.Popen(
      program + command(kind, directory)[1:], stderr=subprocess.PIPE, text=True
    ) as process:
      timer = threading.Timer(delay or 0, process.kill)
      if delay is not None and not since:
        timer.start()
      for line in process.stderr:
        last = line
        if since and since in line:
          begun = time.monotonic()
          if delay is not None:
            timer.start()
      process.wait()
      timer.cancel()
    if process.returncode not in (0, -signal.SIGKILL):
      raise RuntimeError(f'{kind} ended with {process.returncode}: {last}')
    return time.monotonic() - begun, process.returncode != 0

  def work(self, bar: tqdm.tqdm) -> None:
    """Kills and compares runs of all kinds in turn."""
    while True:
      with self._lock:
        if self.all_kills() >= self._wanted:
          return
        kind = min(
          KINDS, key=lambda k: (self._busy[k], self.kills(k), self.rounds(k))
        )
        self._busy[kind] += 1
      try:
        self._break_run(kind, bar)
      finally:
        with self._lock:
          self._busy[kind] -= 1


def main() -> int:
  """Prints the number of kills by kind, and the runs that differ."""
  parser = measuring.parser(__doc__)
  kills, at_once = (1, 1) if measuring.QUICK else (200, 2)
  parser.add_argument('--kills', type=int, default=kills)
  parser.add_argument(
    '--at_once', type=int, default=at_once, help='runs at a time'
  )
  measuring.add_work_dir(parser, 'runs/faults')
  arguments = parser.parse_args()
  work_dir = arguments.work_dir.absolute()
  work_dir.mkdir(parents=True, exist_ok=True)
  for path in work_dir.glob('broken-*'):
    shutil.rmtree(path)
  tester = Tester(str(work_dir), arguments.kills)
  with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
    list(pool.map(tester.make_unbroken, KINDS))
    with tqdm.tqdm(
      total=arguments.kills, initial=tester.all_kills(), unit='kill'
    ) as bar:
      list(pool.map(tester.work, [bar] * arguments.at_once))
  for kind in KINDS:
    print(f'{kind}: {tester.kills(kind)} kills in {tester.rounds(kind)} runs')
  different = sum(bool(run['different']) for run in tester.runs)
  print(f'{len(tester.runs)} runs, {different} differ')
  return int(different > 0)


if __name__ == '__main__':
  sys.exit(main())
