"""Transitions that are drawn once and read again and again."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.fixed_replay.replay_memory import graph_replay
from batch_rl.utils import seeding

# Number of the batch whose rows they have. No training reaches it.
_NUMBER = 2**63


def draw(
  replay: graph_replay.GraphReplay,
  size: int,
  columns: Sequence[str],
  seed: int | None,
) -> Callable[[slice], dict[str, np.ndarray]]:
  """Draws transitions from a fixed replay, with replacement.

  The batches of the replay stay the same. Frames of a store are read again each time,
  since they would take much memory. Transitions of memories that a subclass has loaded
  are kept, since it may replace them.

  Args:
    replay: Fixed replay, whose seed and current shards determine the transitions.
    size: Number of transitions.
    columns: Further columns to read. Memories of a subclass do not have them.
    seed: Seed of the run, for memories of a subclass.

  Returns:
    Function from positions to the transitions there, `{name: array}`, states with
    frames last. It raises `shard_reader.DataError` if the data is damaged.
  """
  memory: Any = replay.memory
  if memory.loads_uncompressed:
    random = np.random.default_rng(seeding.derive(seed, 'fixed batch'))
    indices = random.choice(memory.valid_indices(), size)
    names = [e.name for e in memory.get_transition_elements()]
    arrays = memory.sample_transition_batch(size, indices)
    kept = dict(zip(names, arrays, strict=True))
    return lambda part: {name: array[part] for name, array in kept.items()}
  sampler = memory.sampler
  rows = sampler.draw(_NUMBER, size)
  kept = sampler.named_columns(rows, columns)
  kept['indices'] = memory.indices_of(rows)
  others = [name for name in columns_lib.STANDARD if name not in kept]

  def read(part):
    [batch] = sampler.read(rows[part], 1, 'stacks')
    arrays = {name: array[part] for name, array in kept.items()}
    return arrays | {name: getattr(batch, name) for name in others}

  return read
