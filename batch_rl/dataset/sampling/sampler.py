"""Transitions of a run in batches; batch k is a function of (seed, k).

The transition at row `i` is valid if

- row `i` is not padding;
- its state, the `stack_size` frames up to row `i`, lies within one trajectory;
- its next state, `update_horizon` rows later, lies in the same trajectory, or the
  episode terminates earlier. A truncated episode (`Store.truncations`) does not
  terminate.

Transitions may span shards, but not gaps. The valid rows of a trajectory are one range
(`row_ranges`).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging

from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.dataset.sampling import compiled_batches, row_sampler, subsets
from batch_rl.dataset.sampling.compiled_batches import Batch
from batch_rl.dataset.store import store as store_lib

__all__ = ['Batch', 'Sampler']


class Sampler(row_sampler.RowSampler):
  """Draws transitions from a store.

  Args:
    store: Store of a run, which is being packed or is packed.
    stack_size: Number of frames in a state, at least 1.
    update_horizon: Number of steps in the n-step return, at least 1.
    gamma: Discount factor of the n-step return, in [0, 1].
    subset: Selection of trajectories or transitions, e.g.
      'random_trajectories(0.1)' (see `subsets`); None for the whole run.
    seed: Seed of the batches, an integer of at least 0 or several, such as [1, rank];
      None for a random one.
    weighting: Distribution of the transitions, as in `SequenceSampler`: 'steps'
      (uniform), 'trajectories' or 'returns'.
    temperature: Temperature of 'returns', above 0.

  Attributes:
    discounts: gamma^j for each step of the return, float32 (update_horizon,).

  Raises:
    ValueError: If a number is out of its range, or the subset cannot be parsed or is
      empty.
  """

  def __init__(
    self,
    store: store_lib.Store,
    stack_size: int,
    update_horizon: int = 1,
    gamma: float = 0.99,
    subset: str | None = None,
    seed: int | Sequence[int] | None = None,
    weighting: str = 'steps',
    temperature: float = 0.1,
  ):
    row_sampler.check_counts(
      stack_size=stack_size, update_horizon=update_horizon
    )
    row_sampler.check_gamma(gamma)
    padding = store.logged_padding
    if padding is not None and padding + 1 < stack_size:
      logging.warning(
        'The first %d steps of each episode in %s are not used: it was logged with '
        'stack_size=%d, not %d (AnyAgent.stack_size of agents).',
        *(stack_size - 1 - padding, store.data_dir, padding + 1, stack_size),
      )
    self.update_horizon = update_horizon
    self._rows_name = f'valid transition (update_horizon={update_horizon})'
    powers = [gamma**j for j in range(update_horizon)]
    self.discounts = np.array(powers, np.float32)
    super().__init__(
      store,
      stack_size,
      gamma,
      subset,
      seed,
      compiled_batches.CompiledBatches(store, stack_size, self.discounts),
      before=stack_size - 1,
      after=update_horizon,
      weighting=weighting,
      temperature=temperature,
    )

  # --- rows --------------------------------------------------------------------

  @property
  def num_transitions(self) -> int:
    """Number of transitions that can be drawn now."""
    return self._ranges.total

  @property
  def num_trajectories(self) -> int:
    """Number of trajectories in the subset, partial ones included.

    They are those in all shards, except the shards found damaged so far.
    """
    chosen = self.trajectories
    damaged = subsets.damaged_rows(self.store, chosen.first, chosen.stop)
    return int((damaged < chosen.lengths).sum())

  def num_selected(self, suffixes: Iterable[int]) -> int:
    """Returns the number of the subset's agent steps in shards, packed or not."""
    chosen = self.trajectories
    spans = (chosen.shard_rows[s] for s in suffixes if s in chosen.shard_rows)
    return sum(chosen.between(*span).num_steps for span in spans)

  def valid_rows(self) -> np.ndarray:
    """Returns all rows that can be drawn now, ascending: int64 (num_transitions,)."""
    ranges = self._ranges
    return ranges.rows(np.arange(ranges.total))

  def is_valid(self, rows: np.ndarray) -> np.ndarray:
    """Returns whether rows, int64 (n,), can be drawn now: bool (n,)."""
    return self._ranges.contain(rows)

  # --- batches -----------------------------------------------------------------

  def batch(self, number: int, count: int) -> Batch:
    """Returns batch `number` with `count` transitions; see `draw`."""
    [batch] = self.batches(number, count)
    return batch

  def batches(
    self,
    number: int,
    count: int,
    batches: int = 1,
    frames: str | None = 'windows',
  ) -> list[Batch]:
    """Returns consecutive batches of drawn transitions.

    With several batches in a call, threads wait less for the interpreter's lock.

    Args:
      number: Number of the first batch.
      count: Number of transitions in a batch.
      batches: Number of batches.
      frames: 'windows', or 'stacks' for states and next states with frames last; None
        for no frames.

    Raises:
      ValueError: As `draw`, or if `batches` is not an integer of at least 1, or `frames`
        is unknown.
    """
    row_sampler.check_counts(0, number=number, count=count)
    row_sampler.check_counts(batches=batches)
    ranges = self._current_ranges()
    if ranges.weights is None:  # Compiled code draws uniformly.
      draw = self._key, np.uint64(number), ranges.first, ranges.cumulative
      rows = np.empty(batches * count, np.int64)
      if made := self._compiled.make(rows, batches, frames, draw):
        return made
    rows = np.concatenate(
      [ranges.draw(self._key, number + i, count) for i in range(batches)]
    )
    return self.read(rows, batches, frames)

  def gather(self, rows: np.ndarray, frames: str | None = 'windows') -> Batch:
    """Returns the transitions at rows, int64 (n,), as one batch.

    Args:
      rows: Rows of the run.
      frames: Form of the frames, as in `batches`.

    Raises:
      ValueError: If a row cannot be drawn; see `valid_rows`.
    """
    rows = row_sampler.as_rows(rows)
    if len(outside := rows[~self.is_valid(rows)]):
      raise ValueError(
        f'Row {outside[0]} has no valid transition; see valid_rows().'
      )
    [batch] = self.read(rows, 1, frames)
    return batch

  def read(
    self, rows: np.ndarray, batches: int = 1, frames: str | None = 'windows'
  ) -> list[Batch]:
    """Returns what the run has at rows, valid or not, in batches of equal size.

    If a window begins before the run or before a gap, the frames from there on are zero.

    Args:
      rows: Rows of the run, int64 (n,).
      batches: Number of batches, a divisor of n.
      frames: Form of the frames, as in `batches`.

    Raises:
      ValueError: If the run has no such row, the rows do not divide into the batches,
        or `frames` is unknown.
    """
    rows = row_sampler.as_rows(rows)
    made = self._compiled.make(rows, batches, frames)
    return self.reference(rows, batches, frames) if made is None else made

  def reference(
    self, rows: np.ndarray, batches: int = 1, frames: str | None = 'windows'
  ) -> list[Batch]:
    """Returns what `read` does, without compiled code; tests compare both."""
    columns = self.named_columns(rows, compiled_batches.COLUMNS)
    # Actions have the dtype in which they are stored.
    columns['action'] = self.store.action[rows]
    made = []
    for part in np.split(np.arange(len(rows)), batches):
      own = {name: column[part] for name, column in columns.items()}
      batch = Batch(stack_size=self.stack_size, **own)
      if frames:
        before, length = self.stack_size - 1, self._compiled.length
        windows = self.store.windows(batch.rows - before, length)
        batch = batch._replace(windows=windows)
      made.append(batch.stacked() if frames == 'stacks' else batch)
    return made

  def named_columns(
    self, rows: np.ndarray, names: Sequence[str]
  ) -> dict[str, np.ndarray]:
    """Returns columns of transitions by name; see `batch_rl.dataset.sampling.columns`.

    Args:
      rows: Rows of the run, int64 (n,).
      names: Names of the columns; a string is one name.

    Raises:
      ValueError: If a column is unknown, or the run has no such row.
    """
    names = [names] if isinstance(names, str) else names
    rows = row_sampler.as_rows(rows)
    outside = rows[(rows < 0) | (rows >= self.store.rows)]
    if len(outside):
      raise ValueError(
        f'There is no row {outside[0]}: the run has {self.store.rows:,} rows.'
      )
    at = columns_lib.Rows(self, rows, self.discounts)
    return {name: columns_lib.find(name)(at) for name in names}
