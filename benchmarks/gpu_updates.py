"""The process that measures the updates of one agent for `benchmarks.gpu`.

It builds the agent, prints a line, waits for a number of seconds on stdin, measures for
as long, and prints the result as JSON.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from batch_rl.runs import run_record
from batch_rl.utils import machine
from benchmarks import gpu, iteration

_FEW = 5  # updates
_MOST = 1000  # updates a round
_ROUND_SECONDS = 0.3
_ROUNDS = 2  # at least


def prepare(
  agent: str,
  data_dir: str,
  bindings: dict[str, Any] | None = None,
  tensor_float_32: bool = False,
  constant: bool = True,
) -> Callable[[float], dict[str, float]]:
  """Builds an agent and returns a function that measures it for some seconds.

  Args:
    agent: Name of its config.
    data_dir: Directory of the shards, or a store.
    bindings: gin parameters, `{'Class.name': value}`.
    tensor_float_32: Whether TensorFlow uses TF32.
    constant: Whether to measure the same graph with a constant batch, too.

  Returns:
    A function that returns `rate` and `constant` in updates/s, the number of
    `processors` busy, `waiting` as a share of the time if it is measured, and `memory`
    of the GPU in bytes if there is one.
  """
  tf.config.experimental.enable_tensor_float_32_execution(tensor_float_32)
  names = {name.replace('.', '__'): v for name, v in (bindings or {}).items()}
  built = iteration.offline_agent(
    agent, data_dir, **{**names, 'run_seed__seed': 1}
  )

  def train(updates):
    list(built.train_steps(updates * built.update_period))

  updates = _updates_a_round(train, built._updates_per_run)
  a_run = min(updates, built._updates_per_run)
  repeat = iteration.constant_loop(built, a_run) if constant else None
  return lambda seconds: _measure(
    seconds, built, train, repeat, updates, updates // a_run
  )


def _updates_a_round(train, a_run: int) -> int:
  """Returns a number of updates that take about `_ROUND_SECONDS`; warms up."""
  updates = min(_FEW, a_run)
  train(updates)
  while True:
    start = time.perf_counter()
    train(updates)
    seconds = time.perf_counter() - start
    if seconds >= _ROUND_SECONDS / 2 or updates >= _MOST:
      break
    updates = int(updates * min(4, _ROUND_SECONDS / seconds))
    if updates > a_run:
      updates -= updates % a_run
  return updates


def _measure(seconds, agent, train, repeat, updates, runs) -> dict[str, float]:
  taken, repeated, waits, processors = [], [], [], []
  end = time.perf_counter() + seconds
  # The first round warms up.
  while time.perf_counter() < end or len(taken) <= _ROUNDS:
    agent.seconds_waited = 0.0
    start, processor = time.perf_counter(), time.process_time()
    train(updates)
    taken.append(time.perf_counter() - start)
    processors.append((time.process_time() - processor) / taken[-1])
    waits.append(agent.seconds_waited / taken[-1])
    if repeat is not None:
      start = time.perf_counter()
      for _ in range(runs):
        repeat()
      repeated.append(time.perf_counter() - start)
  found = {
    'rate': updates / np.median(taken[1:]),
    'processors': np.median(processors[1:]),
  }
  if any(waits):  # not measured with deterministic operations
    found['waiting'] = np.median(waits[1:])
  if repeated:
    found['constant'] = updates / np.median(repeated[1:])
  if tf.config.list_physical_devices('GPU'):
    found['memory'] = tf.config.experimental.get_memory_info('GPU:0')['peak']
  return {name: float(value) for name, value in found.items()}


def describe() -> dict[str, Any]:
  """Returns `versions`, the names of the GPUs, and the number of `processors`."""
  gpus = tf.config.list_physical_devices('GPU')
  details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
  built = tf.sysconfig.get_build_info()
  return {
    'gpus': [detail.get('device_name', 'unknown') for detail in details],
    'driver': _driver(),
    'versions': {
      **run_record.versions(),
      **{
        name: built[key]
        for name, key in (('CUDA', 'cuda_version'), ('cuDNN', 'cudnn_version'))
        if gpus and key in built
      },
    },
    'processors': machine.num_cpus(),
  }


def _driver() -> str:
  """Returns the version of the GPU's driver; '' if it is unknown."""
  command = [
    'nvidia-smi',
    '--query-gpu=driver_version',
    '--format=csv,noheader',
  ]
  try:
    done = subprocess.run(
      command, capture_output=True, text=True, timeout=30, check=True
    )
  except (OSError, subprocess.SubprocessError):
    return ''
  return done.stdout.split('\n')[0].strip()


def _brief(error: Exception) -> str:
  """Returns the message of an error in one line.

  Of an error in a traced function, that is the last line, which follows a traceback.
  """
  lines = str(error).strip().split('\n')
  return lines[-1 if lines[0].startswith('in user code') else 0].strip()[:300]


def main() -> None:
  """Measures as the JSON of the command line says; without it, describes."""
  # Libraries may print, too.
  output = os.fdopen(os.dup(sys.stdout.fileno()), 'w')
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
  logging.set_verbosity(logging.ERROR)
  try:
    if len(sys.argv) < 2:
      found = describe()
    else:
      measure = prepare(**json.loads(sys.argv[1]))
      print(gpu.READY, file=output, flush=True)
      found = measure(float(sys.stdin.readline()))
  # A row of the table says why; the other measurements go on.
  except Exception as error:  # noqa: BLE001
    found = {gpu.FAILED: f'{type(error).__name__}: {_brief(error)}'}
  print(json.dumps(found), file=output, flush=True)


if __name__ == '__main__':
  main()
