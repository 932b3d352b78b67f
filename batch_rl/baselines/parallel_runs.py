"""Several runs in parallel on one machine, each in its own process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from batch_rl.utils import machine, number_ranges


def parse(text: str) -> list[int]:
  """Parses numbers of runs, such as '1-5' or '2,4'.

  Raises:
    ValueError: If the text has another form, or a number twice.
  """
  return number_ranges.parse(text, '--runs')


def seed_of(seed: int, number: int) -> int:
  """Returns the seed of one of several runs, in [0, 2**31)."""
  return int(np.random.SeedSequence((seed, number)).generate_state(1)[0] >> 1)


def run(
  module: str,
  arguments: Sequence[str],
  numbers: Sequence[int],
  directories: dict[str, str],
  seed: int | None,
) -> int:
  """Runs a program several times in parallel; prefixes its output with the run.

  Args:
    module: Module of the program, for `python -m`.
    arguments: Command line with `--runs`.
    numbers: Numbers of the runs.
    directories: Directories `{flag: directory}`; each run gets its numbered folder
      in them.
    seed: Seed from which each run's is derived; None lets each run draw one.

  Returns:
    The exit code of a run that failed, or 0.
  """
  environment = {**os.environ}
  # By default each process would use all processors, and they would contend.
  threads = str(max(1, machine.num_cpus() // len(numbers)))
  for name in ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS'):
    environment.setdefault(name, threads)
  processes: dict[int, subprocess.Popen] = {}
  _forward(signal.SIGTERM, processes)
  for number in numbers:
    own = [
      f'--{k}={os.path.join(v, str(number))}' for k, v in directories.items()
    ]
    if seed is not None:
      own.append(f'--seed={seed_of(seed, number)}')
    processes[number] = subprocess.Popen(
      # The last value of a flag counts.
      [sys.executable, '-um', module, *arguments, *own, '--runs='],
      env=environment,
      stderr=subprocess.PIPE,
      text=True,
      errors='replace',
    )
  readers = [
    threading.Thread(target=_pass_on, args=(number, process.stderr))
    for number, process in processes.items()
  ]
  for reader in readers:
    reader.start()
  try:
    codes = {number: process.wait() for number, process in processes.items()}
  except KeyboardInterrupt:  # the runs get it, too
    codes = {number: process.wait() for number, process in processes.items()}
  for reader in readers:
    reader.join()
  for number, code in codes.items():
    if code:
      print(f'run {number} failed, exit code {code}', file=sys.stderr)
  return max((abs(code) for code in codes.values()), default=0)


def _pass_on(number: int, lines: Iterable[str]) -> None:
  for line in lines:
    # A progress bar overwrites its line.
    text = line.rstrip('\n').split('\r')[-1].rstrip()
    if text:
      print(f'run {number} | {text}', file=sys.stderr, flush=True)


def _forward(number: int, processes: Mapping[int, subprocess.Popen]) -> None:
  """Forwards a signal to the processes started so far."""

  def forward(*_):
    for process in list(processes.values()):
      process.send_signal(number)

  signal.signal(number, forward)
