"""Base of the samplers: rows that can be drawn, and numbered batches of them.

Batch k is a function of (seed, k), whichever thread makes it.
"""

import functools
import math
import numbers
import threading
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.sampling import (
  compiled_batches,
  returns_to_go,
  row_ranges,
  subsets,
)
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import choices


def check_counts(least: int = 1, /, **numbers: Any) -> None:
  """Raises a ValueError unless numbers, given by name, are integers from `least` on."""
  for name, number in numbers.items():
    is_integer = isinstance(number, int | np.integer)
    if not is_integer or isinstance(number, bool) or number < least:
      raise ValueError(f'{name}={number!r} is not an integer >= {least}.')


def check_gamma(gamma: float) -> None:
  """Raises a ValueError unless a discount factor is a number in [0, 1]."""
  if not (isinstance(gamma, numbers.Real) and 0 <= gamma <= 1):
    raise ValueError(f'gamma={gamma!r} is not a number in [0, 1].')


def as_rows(rows: Any) -> np.ndarray:
  """Returns rows as int64 (n,).

  Raises:
    ValueError: If they have another shape, or are not integers.
  """
  wanted = np.asarray(rows)
  if wanted.ndim != 1:
    raise ValueError(f'rows have the shape {wanted.shape}, not (n,).')
  rows = np.array(wanted, np.int64)
  # A mask is not taken for rows 0 and 1.
  if len(wrong := wanted[(wanted != rows) | (wanted.dtype == bool)]):
    raise ValueError(f'Row {wrong[0]} is not an integer.')
  return rows


class RowSampler:
  """Draws rows of a store, and numbers the batches.

  A copy in another process opens the store there, and draws the same batches.

  Args:
    store: Store of a run, which is being packed or is packed.
    stack_size: Number of frames in a state, at least 1.
    gamma: Discount factor, in [0, 1].
    subset: Selection of trajectories or transitions (see `subsets`); None for the
      whole run.
    seed: Seed of the batches, an integer of at least 0 or several, such as [1, rank];
      None for a random one.
    compiled: Maker of batches.
    **rules: Further arguments of `row_ranges.find`.

  Attributes:
    trajectories: Trajectories of the run, with the selected rows of each.
    trajectory_stops: Row after each trajectory, selected or not, int64 (n,).

  Raises:
    ValueError: If a number is out of its range, or the subset cannot be parsed or is
      empty.
  """

  _rows_name: str  # for error messages

  def __init__(
    self,
    store: store_lib.Store,
    stack_size: int,
    gamma: float,
    subset: str | None,
    seed: int | Sequence[int] | None,
    compiled: compiled_batches.CompiledBatches,
    **rules: Any,
  ):
    choices.choose('weighting', rules['weighting'], row_ranges.WEIGHTINGS)
    temperature = rules['temperature']
    is_number = isinstance(temperature, numbers.Real)
    if not (is_number and 0 < temperature < math.inf):
      raise ValueError(f'temperature={temperature!r} is not a positive number.')
    check_gamma(gamma)
    self.store = store
    self.stack_size = stack_size
    self.gamma = gamma
    self.subset = subset
    self.trajectories = subsets.trajectories(store)
    self.trajectory_stops = self.trajectories.stop
    if subset is not None:
      self.trajectories = subsets.select(self.trajectories, subset)
    self._rules = rules
    self._compiled = compiled
    self._lock = threading.Lock()
    self.reseed(seed)
    self.restrict(None)

  def __getstate__(self) -> dict[str, Any]:
    # The returns to go hold all rewards, which the store has.
    dropped = '_lock', 'returns_to_go'
    return {k: v for k, v in self.__dict__.items() if k not in dropped}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._lock = threading.Lock()

  # --- index of rows -----------------------------------------------------------

  def restrict(self, suffixes: Iterable[int] | None) -> None:
    """Draws from these shards only; None for all.

    No transition spans others. Subsets and columns of trajectories count the whole run.

    Raises:
      ValueError: If the store lacks a shard.
    """
    shards = {*(self.store.suffixes if suffixes is None else suffixes)}
    if unknown := shards.difference(self.store.suffixes):
      raise ValueError(f'No shard {min(unknown)} in {self.store.data_dir}.')
    with self._lock:
      self._shards = shards
      self._found: row_ranges.Ranges | None = None

  @property
  def _ranges(self) -> row_ranges.Ranges:
    """The rows that can be drawn. The first use waits until the shards are packed."""
    # Without the lock: a process may be forked while another thread holds it.
    if (ranges := self._found) is None:
      with self._lock:
        self.store.wait(self._shards)
        packed = [s for s in self.store.packed if s in self._shards]
        ranges = self._found = row_ranges.find(
          self.store, packed, self.trajectories, **self._rules
        )
    return ranges

  def _current_ranges(self) -> row_ranges.Ranges:
    """Returns the rows that can be drawn, at least one."""
    # Raises errors of packing only: damage to a block concerns those who read it.
    self.store.raise_packing_error()
    ranges = self._ranges
    if not ranges.total:
      subset = f', subset {self.subset}' if self.subset else ''
      raise ValueError(
        f'No {self._rows_name} in {self.store.data_dir}{subset}, with '
        f'stack_size={self.stack_size}.'
      )
    return ranges

  def subset_hash(self) -> str:
    """Returns the hash of the subset; see `subsets.hash_of`."""
    return subsets.hash_of(self.store, self.trajectories)

  @functools.cached_property
  def returns_to_go(self) -> returns_to_go.ReturnsToGo:
    """Returns to go of all rows, discounted by `gamma`."""
    return returns_to_go.ReturnsToGo(
      self.store.reward, self.trajectory_stops, self.gamma
    )

  @functools.cached_property
  def _return_range(self) -> np.ndarray:
    """Lowest and highest return of the selected trajectories, float64 (2,)."""
    returns = self.trajectories.returns[self.trajectories.selected]
    return np.array([returns.min(), returns.max()])

  # --- numbers and draws -------------------------------------------------------

  def identity(self) -> dict[str, int]:
    """Returns the number of rows, and hashes of the seed and of the first draws."""
    # The draws depend on subset, shards and weighting.
    hashed = {'seed_hash': self._key, 'rows_hash': self.draw(0, 1024)}
    hashes = {name: zlib.crc32(x.tobytes()) for name, x in hashed.items()}
    return {'rows': self._ranges.total, **hashes}

  def reseed(self, seed: int | Sequence[int] | None) -> None:
    """Restarts at batch 0 with another seed; None for a random one.

    Raises:
      ValueError: If a seed is not an integer of at least 0.
    """
    for part in () if seed is None else np.atleast_1d(np.array(seed, object)):
      check_counts(0, seed=part)
    self._key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
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

  def draw(self, number: int, count: int) -> np.ndarray:
    """Draws the rows of a batch, with replacement.

    Args:
      number: Number of the batch, at least 0.
      count: Number of rows to draw.

    Returns:
      Rows, int64 (count,): a function of seed, number, count and the rows that can be
      drawn.

    Raises:
      ValueError: If `number` or `count` is not an integer of at least 0, there is no
        row, or packing in the background failed.
    """
    check_counts(0, number=number, count=count)
    return self._current_ranges().draw(self._key, number, count)

  def wait_until_compiled(self) -> bool:
    """Waits until batches are made by compiled code (`compiled_batches`).

    Batches are the same without. It is loaded in the background.

    Returns:
      Whether compiled code is available.
    """
    return self._compiled.wait()
