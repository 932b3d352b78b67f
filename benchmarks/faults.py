"""Kills runs at random instants, and compares what they become with unbroken ones.

  python -um benchmarks.faults [--kills 200] [--seed 0]

Each kind of run (an offline agent of each family, online agents with their logs, a
conversion) is made once as it is, then again and again with SIGKILL at random:
while it starts, trains, evaluates, writes a checkpoint or a shard. Started again
until it is done, it must have the same weights, losses, episodes, and rows. Two runs
at a time; 200 kills take half an hour. Exits with 1 if anything differs.
"""

import argparse
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

from batch_rl.tests import results

DATA_DIR = os.path.abspath('data/Pong/1')
OFFLINE = {
  'dqn': 'dqn',
  'c51': 'c51',
  'quantile': 'quantile',
  'rem': 'rem',
  'multi_network_rem': 'multi_network_rem',
}
ONLINE = {'online dqn': 'dqn', 'online random': 'random'}
KINDS = (*OFFLINE, *ONLINE, 'conversion')


def command(kind: str, directory: str) -> list[str]:
  """The command line of a run."""
  if kind == 'conversion':
    program = ['batch_rl.dataset', 'convert', DATA_DIR, f'{directory}/store']
    return [sys.executable, '-um', *program]
  if kind in OFFLINE:
    runner, package, config = 'FixedReplayRunner', 'fixed_replay', OFFLINE[kind]
    bindings = ['evaluation_environments=2']
    flags = [f'--replay_dir={DATA_DIR}']
  else:
    runner, package, config = 'LoggedRunner', 'baselines', ONLINE[kind]
    bindings = []
    flags = [f'--replay_log_dir={directory}']
  bindings += ['num_iterations=2', 'max_steps_per_episode=250']
  short = config == 'multi_network_rem'
  steps = {'training_steps': 200 if short else 800, 'evaluation_steps': 500}
  bindings += [f'{name}={value}' for name, value in steps.items()]
  bindings = [f'{runner}.{binding}' for binding in bindings]
  bindings += [f'Checkpoints.every_steps={40 if short else 150}']
  if kind == 'online dqn':
    bindings += ['LoggedDQNAgent.min_replay_history=200']
    bindings += ['WrappedLoggedReplayBuffer.shard_capacity=700']
  if kind == 'online random':
    bindings += ['RandomAgent.shard_capacity=300']
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
  """What must be the same."""
  if kind == 'conversion':
    store = pathlib.Path(directory) / 'store'
    return {
      path.name: hashlib.sha256(path.read_bytes()).hexdigest()
      for path in store.glob('*.bin')
    }
  log_dir = f'{directory}/replay_logs' if kind in ONLINE else None
  return results.of_run(f'{directory}/run', log_dir)


class Tester:
  """Breaks runs until there were enough kills."""

  def __init__(self, directory: str, kills: int, seed: int):
    self._directory = directory
    self._kills = kills
    self._random = random.Random(seed)
    self._lock = threading.Lock()
    self._done = 0
    self._started = time.monotonic()
    self.rounds = dict.fromkeys(KINDS, 0)
    self.kills = dict.fromkeys(KINDS, 0)
    self.different: list[str] = []
    self._seconds: dict[str, float] = {}  # from start-up to end

  @functools.cache  # noqa: B019  (there is one)
  def unbroken(self, kind: str) -> dict:
    """The outcome of a run that nobody kills."""
    directory = f'{self._directory}/{kind.replace(" ", "-")}'
    self._start(kind, directory, None)
    return outcome(kind, directory)

  def break_run(self, kind: str) -> None:
    """Kills a run until it is done, and compares it."""
    expected = self.unbroken(kind)
    directory = tempfile.mkdtemp(dir=self._directory)
    while self._start_and_kill(kind, directory):
      with self._lock:
        self._done += 1
        self.kills[kind] += 1
        minutes = (time.monotonic() - self._started) / 60
        left = minutes / self._done * max(0, self._kills - self._done)
        print(
          f'{self._done} of {self._kills} kills, {minutes:.0f} min, '
          f'{left:.0f} min to go ({kind})',
          flush=True,
        )
    found = outcome(kind, directory)
    names = found.keys() | expected.keys()
    wrong = [n for n in sorted(names) if found.get(n) != expected.get(n)]
    with self._lock:
      self.rounds[kind] += 1
      if wrong:
        self.different.append(f'{kind}: {", ".join(wrong)} ({directory})')
        print(self.different[-1], flush=True)
        return
      print(f'{kind}: the same as unbroken', flush=True)
    shutil.rmtree(directory)

  def _start_and_kill(self, kind: str, directory: str) -> bool:
    """Starts a run; whether it was killed, rather than done."""
    if self._random.random() < 0.1:
      return self._start(kind, directory, self._random.uniform(0, 5), '')
    return self._start(
      kind, directory, self._random.uniform(0, self._seconds[kind])
    )

  def _start(
    self, kind: str, directory: str, delay: float | None, since: str = 'Devices'
  ) -> bool:
    """Starts a run, and kills it some time after it has said something.

    Args:
      kind: of the run.
      directory: of the run.
      delay: seconds; None to let it be, and to measure how long it takes.
      since: what it says first; '' for its start.

    Returns:
      Whether it was killed.
    """
    if kind == 'conversion':
      since = ''
    begun = time.monotonic()
    last = ''
    with subprocess.Popen(
      command(kind, directory), stderr=subprocess.PIPE, text=True
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
    if delay is None:
      self._seconds[kind] = time.monotonic() - begun
    if process.returncode not in (0, -signal.SIGKILL):
      raise RuntimeError(f'{kind} ended with {process.returncode}: {last}')
    return process.returncode != 0

  def work(self) -> None:
    """Breaks runs of all kinds in turn."""
    while True:
      with self._lock:
        if self._done >= self._kills:
          return
        kind = min(KINDS, key=lambda k: (self.kills[k], self.rounds[k]))
        self.kills[kind] += 1  # for the others to take another kind
      try:
        self.break_run(kind)
      finally:
        with self._lock:
          self.kills[kind] -= 1


def main() -> int:
  """Prints how many kills of each kind there were, and what differs."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--kills', type=int, default=200)
  parser.add_argument('--seed', type=int, default=0)
  arguments = parser.parse_args()
  with tempfile.TemporaryDirectory() as directory:
    tester = Tester(directory, arguments.kills, arguments.seed)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      for worker in [pool.submit(tester.work) for _ in range(2)]:
        worker.result()
    for kind in KINDS:
      print(f'{kind}: {tester.kills[kind]} kills in {tester.rounds[kind]} runs')
    print(f'{sum(tester.rounds.values())} runs, {len(tester.different)} differ')
    return bool(tester.different)


if __name__ == '__main__':
  sys.exit(main())
