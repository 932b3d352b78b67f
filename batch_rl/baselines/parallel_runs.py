"""Several runs at once on one machine, each in a process of its own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from batch_rl.utils import machine, number_ranges


def parse(text: str) -> list[int]:
  """Numbers of runs: '1-5', or '2,4'.

  Raises:
    ValueError: if it is neither, or a run is there twice.
  """
  return number_ranges.parse(text, '--runs')


def seed_of(seed: int, number: int) -> int:
  """The seed of a run among several, in [0, 2**31)."""
  return int(np.random.SeedSequence((seed, number)).generate_state(1)[0] >> 1)


def run(
  module: str,
  arguments: Sequence[str],
  numbers: Sequence[int],
  directories: dict[str, str],
  seed: int | None,
) -> int:
  """Runs a program several times at once; what they print is told apart.

  Args:
    module: the program, for `python -m`.
    arguments: its command line, with `--runs`.
    numbers: of the runs.
    directories: `{flag: directory}`; each run gets the folder of its number in it.
    seed: of all of them, from which each gets its own; None for chance.

  Returns:
    The exit code: that of a run that failed, or 0.
  """
  environment = {**os.environ}
  # Each would take all processors; they would only wait for each other.
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
      # The last of a flag counts.
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
  except KeyboardInterrupt:  # which the runs get, too
    codes = {number: process.wait() for number, process in processes.items()}
  for reader in readers:
    reader.join()
  for number, code in codes.items():
    if code:
      print(f'run {number} failed, exit code {code}', file=sys.stderr)
  return max((abs(code) for code in codes.values()), default=0)


def _pass_on(number: int, lines: Iterable[str]) -> None:
  for line in lines:
    # A progress bar writes over itself.
    text = line.rstrip('\n').split('\r')[-1].rstrip()
    if text:
      print(f'run {number} | {text}', file=sys.stderr, flush=True)


def _forward(number: int, processes: Mapping[int, subprocess.Popen]) -> None:
  """Passes a signal on to those that have been started by then."""

  def forward(*_):
    for process in list(processes.values()):
      process.send_signal(number)

  signal.signal(number, forward)
