"""Transitions that are drawn once and read again and again."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.fixed_replay.replay_memory import graph_replay
from batch_rl.utils import seeding

# Number of the batch whose rows they have. No training reaches it.
_NUMBER = 2**63


class FixedBatch:
  """Transitions drawn from a fixed replay, with replacement.

  The batches of the replay stay the same. Frames of a store are read again each time,
  since they would take much memory. Transitions of memories that a subclass has loaded
  are kept, since it may replace them.

  Args:
    replay: Fixed replay, whose seed and current shards determine the transitions.
    size: Number of transitions.
    columns: Further columns to read. Memories of a subclass do not have them.
    seed: Seed of the run, for memories of a subclass.
  """

  def __init__(
    self,
    replay: graph_replay.GraphReplay,
    size: int,
    columns: Sequence[str],
    seed: int | None,
  ):
    memory: Any = replay.memory
    self._rows: np.ndarray | None = None
    if memory.loads_uncompressed:
      random = np.random.default_rng(seeding.derive(seed, 'fixed batch'))
      indices = random.choice(memory.valid_indices(), size)
      names = [e.name for e in memory.get_transition_elements()]
      arrays = memory.sample_transition_batch(size, indices)
      self._kept = dict(zip(names, arrays, strict=True))
    else:
      self._sampler = memory.sampler
      self._rows = self._sampler.draw(_NUMBER, size)
      self._kept = self._sampler.named_columns(self._rows, columns)
      self._kept['indices'] = memory.indices_of(self._rows)

  def read(self, part: slice) -> dict[str, np.ndarray]:
    """Returns a part of the transitions, `{name: array}`, states with frames last.

    Args:
      part: Positions of the transitions.

    Raises:
      batch_rl.dataset.shards.shard_reader.DataError: If the data is damaged.
    """
    arrays = {name: array[part] for name, array in self._kept.items()}
    if self._rows is not None:
      [batch] = self._sampler.read(self._rows[part], 1, 'stacks')
      for name in columns_lib.STANDARD:
        if name not in arrays:
          arrays[name] = getattr(batch, name)
    return arrays
