"""The columns of a batch of transitions: one function for each.

A function gets the `Rows` of some transitions and returns an array with an entry for
each, which depends on its own row only. `Sampler.named_columns`, the replay memory and
`needs` of an agent know it by its name. A user's module adds its own by `column`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from batch_rl.dataset.sampling import compiled_batches, row_ranges, row_sampler
from batch_rl.utils import choices


class Column(NamedTuple):
  """A column: its function, and the dtype of its array, (n,)."""

  function: Callable[['Rows'], np.ndarray]
  dtype: type[np.generic]

  def __call__(self, at: 'Rows') -> np.ndarray:
    """Returns the column of some rows.

    Raises:
      ValueError: If the function does not return a number of its type for each row.
    """
    values = np.asarray(self.function(at))
    made = values.astype(self.dtype, copy=False)
    is_lossy = made.dtype.kind in 'iu' and (made != values).any()
    if values.shape != at.rows.shape or is_lossy:
      raise ValueError(
        f'The column {self.function.__name__} returned {values.dtype} {values.shape}: '
        f'expected numbers that {made.dtype} has, {at.rows.shape}.'
      )
    return made


COLUMNS: dict[str, Column] = {}

# Arrays of every batch in the graph.
STANDARD = (
  *('state', 'action', 'reward', 'next_state', 'next_action'),
  *('next_reward', 'terminal', 'indices'),
)
# What batches have besides own columns; the last ones are of `agents.Batch`.
_NAMES = {
  *(*STANDARD, *dir(compiled_batches.Batch)),
  *('columns', 'places', 'seed', 'seed_for', 'step'),
}


@dataclasses.dataclass(eq=False)
class Rows:
  """Rows of n transitions, and what several columns derive from them.

  Attributes:
    sampler: Sampler of the run.
    store: Store of the run.
    rows: Rows of the run, int64 (n,).
    discounts: Discount of each step of the n-step return, float32 (update_horizon,).
  """

  sampler: row_sampler.RowSampler
  rows: np.ndarray
  discounts: np.ndarray

  def __post_init__(self):
    self.store = self.sampler.store

  @functools.cached_property
  def to_end(self) -> np.ndarray:
    """Rows to the end of the episode, at most `update_horizon`: int64 (n,)."""
    horizon = len(self.discounts)
    # Of an unfinished episode, the end is not near.
    ends = np.append(self.store.ends, self.store.rows + horizon)
    return np.minimum(ends[ends.searchsorted(self.rows)] - self.rows, horizon)

  @functools.cached_property
  def steps(self) -> np.ndarray:
    """Number of rows from the state to the next state, int64 (n,)."""
    return np.minimum(self.to_end + 1, len(self.discounts))

  @functools.cached_property
  def following(self) -> np.ndarray:
    """Rows of the next states, int64 (n,)."""
    return np.minimum(self.rows + self.steps, self.store.rows - 1)

  @functools.cached_property
  def trajectory(self) -> np.ndarray:
    """Indices of the trajectories with the rows, int64 (n,)."""
    return self.sampler.trajectories.begin.searchsorted(self.rows, 'right') - 1


def check(names: Iterable[str]) -> tuple[str, ...]:
  """Checks the names of further columns.

  Returns:
    The names in the same order, each once, without the names in `STANDARD`.

  Raises:
    ValueError: If a column is unknown.
  """
  names = (names,) if isinstance(names, str) else tuple(names)
  for name in names:
    choices.choose('column', name, {*STANDARD, *COLUMNS})
  return tuple(name for name in dict.fromkeys(names) if name not in STANDARD)


def find(name: str) -> Column:
  """Returns a column by its name; raises a ValueError if it is unknown."""
  return COLUMNS[choices.choose('column', name, COLUMNS)]


def is_shipped(name: str) -> bool:
  """Returns whether a column is of this module: each value is of its row alone."""
  return COLUMNS[name].function.__module__ == __name__


def column(dtype: npt.DTypeLike) -> Callable[[Callable], Callable]:
  """Makes a function the column of its name.

  Args:
    dtype: Type of its values.

  Returns:
    A decorator. The function gets `Rows`: those of n transitions, `rows`, in the run
    `store`. It returns a value for each, (n,).

  Raises:
    TypeError: If `dtype` is not a dtype, e.g. a function, since `column` was used without
      ().
    ValueError: When it is applied, if the package has a column of this name, such as
      `reward`, or batches have another attribute of it, such as `count`.
  """

  scalar = np.dtype(dtype).type  # `float` is a dtype, too

  def register(function):
    name = function.__name__
    if function.__module__ == __name__:
      _NAMES.add(name)
    elif name in _NAMES:
      raise ValueError(
        f'{name} is an attribute of batches: give your column another name.'
      )
    COLUMNS[name] = Column(function, scalar)
    return function

  return register


@column(np.int64)
def rows(at: Rows) -> np.ndarray:
  """Row of the transition in the run."""
  return at.rows


@column(np.int32)
def action(at: Rows) -> np.ndarray:
  """Action."""
  return at.store.action[at.rows]


@column(np.float32)
def reward(at: Rows) -> np.ndarray:
  """n-step return: sum over j < steps of gamma^j r_{i+j}."""
  logged = at.store.reward
  total = np.zeros(at.rows.shape, np.float32)
  for j, discount in enumerate(at.discounts):
    later = discount * logged[np.minimum(at.rows + j, len(logged) - 1)]
    total += np.where(j < at.steps, later, 0) if j else later
  return total


@column(np.int32)
def next_action(at: Rows) -> np.ndarray:
  """Action in the next state."""
  return at.store.action[at.following]


@column(np.float32)
def next_reward(at: Rows) -> np.ndarray:
  """Reward of the action in the next state."""
  return at.store.reward[at.following]


@column(np.uint8)
def terminal(at: Rows) -> np.ndarray:
  """1 if the episode terminates within the steps, else 0."""
  return at.to_end < len(at.discounts)


@column(np.int64)
def steps(at: Rows) -> np.ndarray:
  """`update_horizon`, or fewer if the episode ends earlier."""
  return at.steps


@column(np.int64)
def timestep(at: Rows) -> np.ndarray:
  """Agent steps since the first logged step of the trajectory."""
  chosen = at.sampler.trajectories
  first = chosen.steps_begin[at.trajectory]
  # After a gap, only packed frames tell whether a trajectory begins with padding.
  late = np.flatnonzero(~chosen.at_reset[at.trajectory])
  if len(late):
    ranges = at.sampler._ranges
    late = late[ranges.contain(at.rows[late])]
    first[late] = ranges.first_step[ranges.of(at.rows[late])]
  return at.rows - first


@column(np.float32)
def return_to_go(at: Rows) -> np.ndarray:
  """Sum over j >= 0 of gamma^j r_{i+j}, to the end of the logged trajectory.

  If the log stops before the episode does, later rewards count as zero; see
  `discount_after_log`.
  """
  stops = at.sampler.trajectory_stops[at.trajectory]
  return at.sampler.returns_to_go.at(at.rows, stops)


@column(np.float32)
def discount_after_log(at: Rows) -> np.ndarray:
  """gamma^k, where the logged trajectory has k rows from here; 0 if it terminates.

  The discounted return is `return_to_go` plus this times the return after the log.
  """
  stops = at.sampler.trajectory_stops[at.trajectory]
  discounts = float(at.sampler.gamma) ** (stops - at.rows)
  terminals, last = at.store.terminals, stops - 1
  is_open = terminals.searchsorted(last) == terminals.searchsorted(stops)
  return np.where(is_open, discounts, 0)


@column(np.float32)
def trajectory_return(at: Rows) -> np.ndarray:
  """Sum of the logged rewards of the trajectory."""
  return at.sampler.trajectories.returns[at.trajectory]


@column(np.float32)
def weight(at: Rows) -> np.ndarray:
  """Weight by the trajectory's return, above 0 and at most 1, to weight a loss.

  See `row_ranges.return_weights`. The lowest and the highest return are those of the
  selected trajectories.
  """
  returns = at.sampler.trajectories.returns[at.trajectory]
  return row_ranges.return_weights(returns, at.sampler._return_range)
