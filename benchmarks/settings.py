"""The effect of TensorFlow's settings on training.

  python -um benchmarks.settings

- The package's settings, beside TensorFlow's defaults: kept memory, lazy imports of JAX
  and pandas.
- Options for users: `mixed_precision`, unless this processor lacks fast bfloat16, and
  `jit_compile`.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import contextlib
import functools
import resource
from collections.abc import Callable

import numpy as np
from absl import logging

from batch_rl.fixed_replay.agents import mixed_precision
from benchmarks import iteration, measuring, processes

ROUNDS = 10
CLASSES = {
  'dqn': 'FixedReplayDQNAgent',
  'rem': 'FixedReplayMultiHeadDQNAgent',
}


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
  start_up()
  for name in CLASSES:
    options(name)


if __name__ == '__main__':
  logging.set_verbosity(logging.ERROR)
  table()
