"""Long runs of all agents: memory, open files and rate, each minute.

  python -um benchmarks.endurance [--minutes 22.5] [--at_once 2] [--only rem dqn]
      [--parts offline online] [--update]

Every offline and online agent runs on MinAtar and on Atari's Pong, by the commands that users
type, for the same processor time: 24 hours in all. Offline agents read
`data/MinAtar-Breakout/1` and `data/Pong/1`. Online agents play MinAtar's Freeway, whose
episodes are long: logs keep the return of each episode, in memory, too, and a random agent
plays seven million episodes of Breakout in this time. A run is steady if from the second third of its
samples to the last

- anonymous memory (all but mapped files) grew by at most 2 %: its lowest value, and its highest,
  since a checkpoint takes some for a moment (it is read five times a second),
- no more files stayed open: their smallest number, without those of the shard that a log is
  writing,
- updates per second of processor time changed by at most 10 %, in whole iterations. The machine
  itself may be slower for minutes, e.g. by other users. So a fixed computation is timed all the
  while, and the change is relative to that of its speed, which is in the column `machine %`.
  Rows without it have the change itself.

The exit code is 1 if a run is not steady. Each finished run adds a row to the table in `--out`;
with `--update`, it is `benchmarks/measured/endurance.csv`. The same command continues: runs
that the table has stay, so another machine may go on, and an interrupted run begins again. All
samples are in `<work_dir>/samples`.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psutil

from batch_rl.baselines.agents import REGISTRY as ONLINE
from batch_rl.fixed_replay.agents import REGISTRY as OFFLINE
from batch_rl.runs import progress
from batch_rl.sweep import stop_with_parent
from batch_rl.utils import choices, files, machine, programs
from benchmarks import logs, measuring, processes

KEPT = pathlib.Path('benchmarks/measured/endurance.csv')
MEMORY, RATE = 0.02, 0.1  # largest changes of a steady run
PERIOD = 60.0  # seconds between samples
MINUTES = 22.5  # of processor time a run
DATA = {'atari': 'data/Pong/1', 'minatar': logs.minatar()}
SIZES = tuple(DATA)
# Training (updates offline, agent steps online) and agent steps of evaluation in an iteration.
# Iterations are short, so that evaluations and checkpoints take part in each third.
EXTENT = {
  ('offline', 'minatar'): (20_000, 5_000),
  ('offline', 'atari'): (250, 250),
  ('online', 'minatar'): (50_000, 5_000),
  ('online', 'atari'): (2_000, 250),
}
_REFERENCE = np.full((48, 48), 0.1, np.float32)
# Agent steps at most: training ends with an episode.
EPISODE = {'minatar': 2500, 'atari': 200}
if measuring.QUICK:
  PERIOD, MINUTES, SIZES = 0.0, 0.14, ('minatar',)
  EXTENT = {('offline', 'minatar'): (100, 50), ('online', 'minatar'): (250, 50)}


class Run(NamedTuple):
  """Job 'offline' or 'online', size, and name of the agent's gin file."""

  job: str
  size: str
  agent: str

  @property
  def name(self) -> str:
    """Name of its files."""
    return '-'.join(self)


class Sample(NamedTuple):
  """State of a run's process.

  Attributes:
    seconds: Time since its start.
    cpu_seconds: Its processor time.
    updates: Number of updates in the iterations that are trained; agent steps of an
      online run.
    trained: Processor time at the end of the last one's training.
    resident: Resident memory in bytes.
    lowest: Lowest memory without mapped files since the last sample.
    highest: Highest one.
    files: Smallest `open_files` since the last sample: a checkpoint is open while it is
      written.
    threads: Number of threads.
    reference: Mean processor time of `reference` in seconds since the last sample.
  """

  seconds: float
  cpu_seconds: float
  updates: int
  trained: float
  resident: int
  lowest: int
  highest: int
  files: int
  threads: int
  reference: float


def find() -> list[Run]:
  """Returns all runs."""
  return [
    Run(shipped.kind, size, agent)
    for size in SIZES
    for shipped in (ONLINE, OFFLINE)
    for agent in shipped.configs
  ]


class Endurance:
  """Runs, and their samples.

  Args:
    work_dir: Its directory.
    cpu_seconds: Processor time of each run.

  Attributes:
    stop: Event that ends all runs.
  """

  def __init__(self, work_dir: pathlib.Path, cpu_seconds: float):
    self.stop = threading.Event()
    self._work_dir, self._cpu_seconds = work_dir, cpu_seconds

  def work(self, run: Run) -> pd.DataFrame:
    """Runs an agent for its time; returns its samples, and writes them.

    Raises:
      RuntimeError: If the program ends before.
      CancelledError: If all runs are ended.
    """
    if self.stop.is_set():
      raise concurrent.futures.CancelledError
    directory = self._work_dir / run.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    program = [sys.executable, stop_with_parent.__file__, str(os.getpid())]
    output = directory / 'output.txt'
    with (
      output.open('wb') as log,
      subprocess.Popen(
        program + self._arguments(run, directory),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=os.environ | machine.thread_limits(1),
      ) as process,
    ):
      samples = pd.DataFrame(self._sample(process, directory))
      has_ended = process.poll() is not None
      process.send_signal(signal.SIGINT)  # it saves
      try:
        process.wait(timeout=300)
      except (
        subprocess.TimeoutExpired
      ):  # SIGINT while Python starts may be lost
        process.kill()
    if self.stop.is_set():
      raise concurrent.futures.CancelledError
    if has_ended:
      raise RuntimeError(f'{run.name} ended by itself: see {output}')
    kept = self._work_dir / 'samples' / f'{run.name}.csv'
    kept.parent.mkdir(exist_ok=True)
    samples.to_csv(kept, index=False)
    shutil.rmtree(directory)
    return samples

  def _arguments(self, run: Run, directory: pathlib.Path) -> list[str]:
    training, evaluation = EXTENT[run.job, run.size]
    if run.name == 'online-minatar-random':
      # Else it has a thousand iterations, and each writes the statistics of all again.
      training = 500_000
    elif run.size == 'minatar' and run.agent.endswith('iqn'):
      # It trains so slowly that a third would have no whole iteration.
      training //= 40
    if run.job == 'online':
      package, runner = 'baselines', 'LoggedRunner'
      data = f'--replay_log_dir={directory / "log"}'
    else:
      package, runner = 'fixed_replay', 'FixedReplayRunner'
      training *= 4  # agent steps
      data = f'--replay_dir={DATA[run.size]}'
    gin_files = [f'batch_rl/{package}/configs/{run.agent}.gin']
    if run.size == 'minatar':
      gin_files.append(f'batch_rl/minatar/configs/{run.job}.gin')
    bindings = [
      f'{runner}.num_iterations = 1000000',
      f'{runner}.training_steps = {training}',
      f'{runner}.evaluation_steps = {evaluation}',
      f'{runner}.max_steps_per_episode = {EPISODE[run.size]}',
    ]
    if run.job == 'online' and run.size == 'minatar':
      bindings.append('MinAtarEnvironment.game_name = "Freeway"')
    if run.job == 'online' and run.agent != 'random':
      bindings += [
        # Full within the first third: then memory does not grow.
        'WrappedLoggedReplayBuffer.replay_capacity = 10000',
        'WrappedLoggedReplayBuffer.shard_capacity = 10000',
        'AnyAgent.min_replay_history = 500',
      ]
    return [
      *('-um', f'batch_rl.{package}.train', f'--base_dir={directory / "run"}'),
      *(data, '--seed=1'),
      *(f'--gin_files={path}' for path in gin_files),
      *(f'--gin_bindings={binding}' for binding in bindings),
    ]

  def _sample(
    self, process: subprocess.Popen, directory: pathlib.Path
  ) -> Iterator[Sample]:
    """Yields samples until the run has had its time, or ends."""
    start, due, written = time.monotonic(), 0.0, 0.0
    cpu_seconds, updates, trained = 0.0, 0, 0.0
    costs, anonymous, opened = list[float](), list[int](), list[int]()
    observed = psutil.Process(process.pid)
    log = str(directory / 'log')
    while not self.stop.wait(0.2) and process.poll() is None:
      now = time.monotonic() - start
      costs.append(reference())
      anonymous.append(processes.memory('RssAnon', process.pid))
      opened.append(open_files(process.pid, log))
      latest = progress.read(str(directory / 'run'))
      # A new file tells the number of updates at this moment.
      if latest is None or latest['time'] == written:
        continue
      written = latest['time']
      times = observed.cpu_times()
      cpu_seconds = times.user + times.system
      if latest['phase'] == 'train' and latest['done'] >= latest['total']:
        updates = (latest['iteration'] + 1) * int(latest['total'])
        trained = cpu_seconds
      if now < due:
        continue
      due = now + PERIOD
      yield Sample(
        now,
        cpu_seconds,
        updates,
        trained,
        processes.memory(process=process.pid),
        min(anonymous),
        max(anonymous),
        min(opened),
        observed.num_threads(),
        np.mean(costs),
      )
      if cpu_seconds >= self._cpu_seconds:
        return
      costs.clear()
      anonymous.clear()
      opened.clear()


def open_files(process: int, log: str) -> int:
  """Returns the number of a process's open files outside the directory of its log."""
  count = 0
  for file in pathlib.Path(f'/proc/{process}/fd').iterdir():
    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
      count += not os.readlink(file).startswith(log)
  return count


def reference() -> float:
  """Returns the processor time of a fixed computation in seconds, some 0.0002."""
  start, values = time.thread_time(), _REFERENCE
  for _ in range(20):
    values = np.tanh(values @ _REFERENCE)
  return time.thread_time() - start


def summary(samples: pd.DataFrame) -> dict[str, Any]:
  """Returns what the second and the last third of a run's samples say."""
  count = len(samples) // 3
  if count < 2:
    return {'steady': f'too few samples: {len(samples)}'}
  middle, last = samples[-2 * count : -count], samples[-count:]

  def rate(first, end):
    grown = samples.iloc[end] - samples.iloc[first]
    return grown.updates / (grown.trained or np.nan)

  rates = rate(-2 * count - 1, -count - 1), rate(-count - 1, -1)
  machine = middle.reference.mean() / last.reference.mean()
  change = {
    'memory': max(
      last.lowest.min() / middle.lowest.min() - 1,
      last.highest.max() / middle.highest.max() - 1,
    ),
    'files': last.files.min() - middle.files.min(),
    'rate': rates[1] / rates[0] / machine - 1,
  }
  steady = (
    change['memory'] <= MEMORY
    and change['files'] <= 0
    and abs(change['rate']) <= RATE
  )
  return {
    'minutes': samples.cpu_seconds.iloc[-1] / 60,
    'updates': samples.updates.iloc[-1],
    'anonymous MB': last.lowest.median() / 1e6,
    'resident MB': last.resident.median() / 1e6,
    'memory %': 100 * change['memory'],
    'files': last.files.max(),
    'more files': change['files'],
    'threads': last.threads.max(),
    'updates/s': rates[1],
    'rate %': 100 * change['rate'],
    'machine %': 100 * (machine - 1),
    'steady': 'yes' if steady else 'no',
  }


def parse() -> argparse.Namespace:
  """Returns the options of the command line."""
  parser = measuring.parser(__doc__)
  measuring.add_parts(parser, ('offline', 'online'))
  measuring.add_out(parser, KEPT, '<work_dir>/endurance.csv')
  parser.add_argument(
    '--minutes', type=float, default=MINUTES, help='processor time of a run'
  )
  parser.add_argument(
    '--at_once', type=int, default=2, help='runs at a time, a core each'
  )
  parser.add_argument(
    '--only',
    nargs='+',
    default=['dqn'] if measuring.QUICK else [],
    help='names of agents',
  )
  measuring.add_work_dir(parser, 'runs/endurance')
  return parser.parse_args()


def main() -> int:
  """Runs what is left, and prints a row for each finished run."""
  options = parse()
  runs = [run for run in find() if run.job in options.parts]
  for name in options.only:
    choices.choose('agent', name, {run.agent for run in runs})
  runs = [run for run in runs if not options.only or run.agent in options.only]
  work_dir = options.work_dir.resolve()
  endurance = Endurance(work_dir, 60 * options.minutes)
  out = options.out or work_dir / 'endurance.csv'
  table = (
    pd.read_csv(out) if out.exists() else pd.DataFrame(columns=Run._fields)
  )
  done = {*table[[*Run._fields]].itertuples(index=False, name=None)}
  left = [run for run in runs if run not in done]
  hours = len(left) * options.minutes / 60
  print(
    f'{len(left)} of {len(runs)} runs left: {hours:.1f} h of processor time, '
    f'{options.at_once} runs at once',
    flush=True,
  )
  with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
    futures = {pool.submit(endurance.work, run): run for run in left}
    try:
      for number, future in enumerate(
        concurrent.futures.as_completed(futures), start=1
      ):
        row = {
          **futures[future]._asdict(),
          'date': f'{datetime.date.today()}',
          **summary(future.result()),
        }
        table = pd.concat([table, pd.DataFrame([row])])
        table = table.sort_values(['size', 'job', 'agent'])
        content = table.to_csv(index=False, float_format='%.4g')
        files.write_bytes(str(out), content.encode())
        eta = (len(left) - number) * options.minutes / 60 / options.at_once
        print(
          f'{futures[future].name}: done, {number} of {len(left)}, ETA {eta:.1f} h',
          flush=True,
        )
    finally:  # after an error or Ctrl-C, all runs end
      endurance.stop.set()
      pool.shutdown(cancel_futures=True)
  print(table.to_markdown(index=False, floatfmt=',.1f'))
  return int((table.steady != 'yes').any() and not measuring.QUICK)


if __name__ == '__main__':
  sys.exit(programs.run(main))
