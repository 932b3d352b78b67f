"""Seeds of a run's components, all derived from the seed of the run.

Each component derives its seed by purpose, so adding a component leaves the
others unchanged. The run's seed is the gin parameter `run_seed.seed`, which the
programs bind from `--seed`. Only runners and `create_*_agent` functions read it;
they pass it on as an argument.
"""

import operator
import random
import zlib
from collections.abc import Mapping
from typing import Any

import gin
import numpy as np


@gin.configurable(module='batch_rl')
def run_seed(
  seed: int | None = None, deterministic_ops: bool = False
) -> int | None:
  """Returns the seed of the run; None if the run is unseeded.

  Args:
    seed: Seed of everything random in a run; None for an unseeded run.
    deterministic_ops: Whether TensorFlow is restricted to deterministic
      operations. They may be slower on a GPU; on a CPU, all operations are
      deterministic.
  """
  return None if seed is None else operator.index(seed)  # NumPy's, too


def derive(seed: int | None, purpose: str, index: int = 0) -> int | None:
  """Returns the 31-bit seed for one purpose.

  Args:
    seed: Seed of the run; None for an unseeded run.
    purpose: Name of the purpose, e.g. 'emulator'.
    index: Number of the use, e.g. the iteration.

  Returns:
    An int in [0, 2**31), or None if `seed` is None.
  """
  if seed is None:
    return None
  entropy = (seed, zlib.crc32(purpose.encode()), index)
  return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def of_run(seed: int, number: int) -> int:
  """Returns the seed of one of several online runs, in [0, 2**31)."""
  return int(np.random.SeedSequence((seed, number)).generate_state(1)[0] >> 1)


def seed_libraries(seed: int | None, iteration: int) -> None:
  """Seeds Dopamine's sources of randomness: `random`, NumPy and the graph.

  A run calls it at the start of every iteration, so a run that resumes there
  makes the same draws. `random_states` covers resuming within an iteration.

  Args:
    seed: Seed of the run; None leaves everything unseeded.
    iteration: Number of the iteration. The first one also seeds the graph, and
      restricts TensorFlow to deterministic operations if gin asks for them.
  """
  if seed is None:
    return
  random.seed(derive(seed, 'random', iteration))
  np.random.seed(derive(seed, 'numpy', iteration))
  if iteration == 0:
    import tensorflow as tf

    tf.compat.v1.set_random_seed(derive(seed, 'tensorflow'))
    if gin.get_bindings(run_seed).get('deterministic_ops'):
      tf.config.experimental.enable_op_determinism()


def random_states() -> dict[str, Any]:
  """Returns the states of `random` and NumPy as plain data."""
  return {'random': random.getstate(), 'numpy': np.random.get_state()}


def restore_random_states(states: Mapping[str, Any]) -> None:
  """Restores the states that `random_states` returned."""
  random.setstate(states['random'])
  np.random.set_state(states['numpy'])
