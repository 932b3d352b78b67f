"""Several runs in parallel on one machine, each in its own process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from batch_rl.runs import interruption
from batch_rl.utils import machine

# Exit codes of runs that have saved, and said so.
_STOPPED = tuple(map(interruption.exit_code, (signal.SIGINT, signal.SIGTERM)))


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
    directories: Directories `{flag: directory}`; each run gets a numbered folder in
      them.
    seed: Seed from which those of the runs are derived; None lets each run draw one.

  Returns:
    The highest exit code of the runs; 0 if all have finished.
  """
  # By default each process would use all processors, and they would contend.
  environment = machine.thread_limits(machine.num_cpus() // len(numbers))
  environment |= os.environ
  processes: dict[int, subprocess.Popen] = {}
  _forward(signal.SIGTERM, processes)
  for number in numbers:
    flags = [
      f'--{flag}={os.path.join(directory, str(number))}'
      for flag, directory in directories.items()
    ]
    if seed is not None:
      flags.append(f'--seed={seed_of(seed, number)}')
    processes[number] = subprocess.Popen(
      # The last value of a flag counts.
      [sys.executable, '-um', module, *arguments, *flags, '--runs='],
      env=environment,
      stderr=subprocess.PIPE,
      encoding='utf-8',
      errors='replace',
    )
  readers = [
    threading.Thread(target=_print_prefixed, args=(number, process.stderr))
    for number, process in processes.items()
  ]
  for reader in readers:
    reader.start()
  try:
    codes = {number: process.wait() for number, process in processes.items()}
  except KeyboardInterrupt:  # the runs receive it, too
    codes = {number: process.wait() for number, process in processes.items()}
  for reader in readers:
    reader.join()
  codes = {
    number: interruption.exit_code(-code) if code < 0 else code
    for number, code in codes.items()
  }
  for number, code in codes.items():
    if code and code not in _STOPPED:
      print(f'run {number} failed, exit code {code}', file=sys.stderr)
  return max(codes.values(), default=0)


def _print_prefixed(number: int, lines: Iterable[str]) -> None:
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
