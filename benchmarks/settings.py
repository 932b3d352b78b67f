"""The effect of TensorFlow's settings on training.

  python -um benchmarks.settings

- The package's settings, beside TensorFlow's defaults: kept memory, no autotuning in
  `tf.data`, lazy imports of JAX and pandas.
- Options for users: `mixed_precision`, unless this processor lacks fast bfloat16, and
  `jit_compile`.
"""

import batch_rl  # noqa: F401  isort: skip  (before Dopamine)

import contextlib
import functools
import resource
import threading
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import logging

from batch_rl.fixed_replay import mixed_precision
from batch_rl.fixed_replay.replay_memory import prefetch
from benchmarks import iteration, measuring, processes

ROUNDS = 10
CLASSES = {
  'dqn': 'FixedReplayDQNAgent',
  'rem': 'FixedReplayMultiHeadDQNAgent',
}
FEEDS = 6
RESTARTS = 15
# The tuning thread sleeps 10 ms, then twice as long each time: after 5.6 s it has just
# started a sleep of 5.1 s.
SECONDS = 5.6


def kept_memory(name: str) -> None:
  """Prints the effect of keeping the memory of tensors."""
  found: dict[str, list[dict]] = {'false': [], 'true': []}
  with contextlib.ExitStack() as stack:

    def training(kept):
      turn = stack.enter_context(
        measuring.apart(_training, name, TF_CPU_ALLOCATOR_USE_BFC=kept)
      )
      return lambda: found[kept].append(turn())

    taken = measuring.interleave(
      {kept: training(kept) for kept in found}, ROUNDS
    )
  _rates(f'{name}: updates/s, memory kept', taken['false'], taken['true'])
  measuring.row(
    f'{name}: page faults an update',
    *(
      f'{np.median([turn["faults"] for turn in found[kept]]):.0f}'
      for kept in found
    ),
  )
  measuring.row(
    f'{name}: peak memory of the process, MB',
    *(f'{found[kept][-1]["peak"] / 1e6:.0f}' for kept in found),
  )


def _training(name: str) -> Callable[[], dict[str, float]]:
  agent = iteration.offline_agent(name)

  def turn():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    _train(agent)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return {
      'faults': faults / iteration.UPDATES,
      'peak': processes.memory('VmHWM'),
    }

  return turn


def _train(agent) -> None:
  list(agent.train_steps(iteration.UPDATES * agent.update_period))


def restarts() -> None:
  """Prints the latency of the first batch of an iteration, with and without tuning."""
  tuned = mock.patch.object(
    tf.data.experimental.AutotuneOptions,
    'enabled',
    property(lambda self: None, lambda self, value: None),
  )
  seconds: dict[str, list[float]] = {'tuned': [], 'ours': []}
  threads = []
  for way, found in seconds.items():
    for _ in range(FEEDS):
      with tuned if way == 'tuned' else contextlib.nullcontext():
        restart = _restarting(found)
      threads.append(threading.Thread(target=restart))
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  measuring.row(
    f'pipeline restarts over 1 s, of {FEEDS * RESTARTS}',
    *(f'{sum(s > 1 for s in found)}' for found in seconds.values()),
  )
  measuring.row(
    'slowest restart, s',
    *(f'{max(found):.1f}' for found in seconds.values()),
  )


def _restarting(seconds: list[float]) -> Callable[[], None]:
  """Returns a function that restarts a pipeline and appends first-batch latencies."""
  with tf.Graph().as_default():
    batches = prefetch.Prefetcher(
      lambda number: (np.full(8, number),), [np.int64], [(8,)], 8, 2
    )
    with tf.control_dependencies([batches.ready]):
      batch = batches.next()
    session = tf.compat.v1.Session()

  def run():
    for _ in range(RESTARTS):
      batches.restart()
      start = time.perf_counter()
      session.run(batch)
      seconds.append(time.perf_counter() - start)
      while time.perf_counter() - start < SECONDS:
        session.run(batch)
        time.sleep(0.01)

  return run


def start_up() -> None:
  """Prints the cost of importing the offline runner."""
  found = {
    imports: [
      measuring.in_new_process(processes.start_up, imports) for _ in range(3)
    ]
    for imports in ('all', 'deferred')
  }
  for what, unit, scale in (
    ('cpu', 's of processor time', 1),
    ('peak', 'MB', 1e-6),
  ):
    measuring.row(
      f'start without JAX and pandas, {unit}',
      *(
        f'{np.median([one[what] for one in times]) * scale:.3g}'
        for times in found.values()
      ),
    )


def options(name: str) -> None:
  """Prints the effect of the update's options."""
  functions = {}
  slow = mixed_precision.is_slow()
  for option in (
    'none',
    'jit_compile',
    *(() if slow else ('mixed_precision',)),
  ):
    bindings = {} if option == 'none' else {f'{CLASSES[name]}__{option}': True}
    agent = iteration.offline_agent(name, **bindings)
    functions[option] = functools.partial(_train, agent)
  plain, *others = measuring.interleave(functions, ROUNDS).items()
  for option, taken in others:
    _rates(f'{name}: updates/s, {option}', plain[1], taken)
  if slow:
    measuring.row(f'{name}: mixed_precision: too slow on this processor')


def _rates(what: str, without: np.ndarray, with_it: np.ndarray) -> None:
  measuring.row(
    what,
    f'{iteration.UPDATES / np.median(without):.1f}',
    f'{iteration.UPDATES / np.median(with_it):.1f}',
    f'{np.median(without / with_it):.2f} x',
  )


def table() -> None:
  """Prints the table."""
  measuring.header('without', 'with')
  for name in CLASSES:
    kept_memory(name)
  restarts()
  start_up()
  for name in CLASSES:
    options(name)


if __name__ == '__main__':
  logging.set_verbosity(logging.ERROR)
  table()
