"""Every random choice of a run derives from one seed.

The seed is a gin parameter, `run_seed.seed`, which the programs bind from
`--seed`. Components ask for a number of their own by purpose, so that adding one
does not change the others.
"""

import random
import zlib
from collections.abc import Mapping
from typing import Any

import gin
import numpy as np


@gin.configurable(module='batch_rl')
def run_seed(
  seed: int | None = None, drawn: bool = False, deterministic_ops: bool = False
) -> int | None:
  """The seed of the run; None leaves everything to chance.

  Args:
    seed: an int.
    drawn: whether nobody asked for it: the program drew it, to be recorded.
    deterministic_ops: whether TensorFlow shall use operations that give the same
      bits every time, which on a GPU are slower; a CPU's do anyway.
  """
  return seed


def is_drawn() -> bool:
  """Whether nobody asked for the run's seed, so nobody waits for its results."""
  return _query('drawn')


def has_deterministic_ops() -> bool:
  """Whether TensorFlow is to use operations that give the same bits every time."""
  return _query('deterministic_ops')


def _query(parameter: str) -> bool:
  try:
    return bool(gin.query_parameter(f'run_seed.{parameter}'))
  except ValueError:
    return False


def derive(purpose: str, index: int = 0) -> int | None:
  """A 31-bit seed for one purpose.

  Args:
    purpose: what it is for, e.g. 'emulator'.
    index: tells apart uses of one purpose, e.g. the iteration.

  Returns:
    An int in [0, 2**31), or None if the run has no seed.
  """
  seed = run_seed()
  if seed is None:
    return None
  entropy = (seed, zlib.crc32(purpose.encode()), index)
  return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def seed_libraries(iteration: int) -> None:
  """Seeds what Dopamine draws from: `random`, NumPy and TensorFlow's graph.

  Called at the start of every iteration: a run that resumes there draws what it
  would have drawn. Within one, see `random_states`.
  """
  if run_seed() is None:
    return
  random.seed(derive('random', iteration))
  np.random.seed(derive('numpy', iteration))
  if iteration == 0:
    import tensorflow as tf

    tf.compat.v1.set_random_seed(derive('tensorflow'))
    if has_deterministic_ops():
      tf.config.experimental.enable_op_determinism()


def random_states() -> dict[str, Any]:
  """The state of what Dopamine draws from, plain data; but for TensorFlow's."""
  return {'random': random.getstate(), 'numpy': np.random.get_state()}


def restore_random_states(states: Mapping[str, Any]) -> None:
  """Goes back to what `random_states` returned."""
  random.setstate(states['random'])
  np.random.set_state(states['numpy'])
