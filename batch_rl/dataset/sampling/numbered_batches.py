"""Numbers of batches: batch k is a function of (seed, k), whichever thread makes it."""

import operator
import threading
from typing import Any

import numpy as np

_local = threading.local()  # of each thread: its generator


def check_counts(**numbers: Any) -> None:
  """Raises a ValueError unless all numbers, given by name, are integers above 0."""
  for name, number in numbers.items():
    try:
      is_count = operator.index(number) > 0
    except TypeError:
      is_count = False
    if not is_count:
      raise ValueError(f'{name}={number} is not an integer of at least 1.')


class NumberedBatches:
  """Base of the samplers: numbers the batches and seeds each one.

  A copy in another process opens the store there, and draws the same batches.

  Args:
    seed: Seed of the batches; None for a random one.
  """

  def __init__(self, seed: int | None):
    self._make_locks()
    self.reseed(seed)

  def _make_locks(self) -> None:
    self._lock = threading.Lock()
    self._refreshing = threading.Lock()  # held while an index is updated

  def __getstate__(self) -> dict[str, Any]:
    state = self.__dict__.copy()
    del state['_lock'], state['_refreshing']
    return state

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._make_locks()

  def reseed(self, seed: int | None) -> None:
    """Restarts at batch 0 with another seed; None for a random one."""
    sequence = np.random.SeedSequence(seed)
    self._key = sequence.generate_state(2, np.uint64)
    self._next = 0

  def skip(self, batches: int) -> None:
    """Advances the counter of `next_number` by a number of batches."""
    with self._lock:
      self._next += batches

  def next_number(self) -> int:
    """Returns the next batch number: 0, 1, 2, ... since the last `reseed`."""
    with self._lock:
      number = self._next
      self._next += 1
    return number

  def _generator(self, number: int) -> np.random.Generator:
    """Returns the generator of a batch, valid until the thread's next call.

    It is a Philox (Salmon et al., 2011) with the counter (0, number, 0, 0), of which
    the lowest word counts within the batch. A new one would draw entropy that is not
    needed, which takes longer than the batch's own numbers.
    """
    generator = getattr(_local, 'generator', None)
    if generator is None:
      generator = _local.generator = np.random.Generator(np.random.Philox(0))
    generator.bit_generator.state = {
      'bit_generator': 'Philox',
      'state': {
        'counter': np.array([0, number, 0, 0], np.uint64),
        'key': self._key,
      },
      'buffer': np.zeros(4, np.uint64),
      'buffer_pos': 4,
      'has_uint32': 0,
      'uinteger': 0,
    }
    return generator
