"""A batch of transitions, and its columns: one function for each.

A function gets the `Rows` of some transitions and returns an array with an entry for
each. To add a column, write its function here: samplers, PyTorch, JAX, the replay memory
and `needs` of an agent then know it by the function's name.
"""

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
  from batch_rl.dataset.sampling import sampler as sampler_lib


class Column(NamedTuple):
  """A column: its function, and the dtype of its array, (n,)."""

  function: Callable[['Rows'], np.ndarray]
  dtype: type[np.generic]

  def __call__(self, at: 'Rows') -> np.ndarray:
    """Returns the column of some rows."""
    return np.asarray(self.function(at), self.dtype)


class Batch(NamedTuple):
  """A batch of n transitions; w is `stack_size + update_horizon`.

  Its frames are windows, or stacks, or left out.

  Attributes:
    rows: int64 (n,), row of each transition in the run.
    action: Integers (n,).
    reward: float32 (n,), n-step return: sum over j < steps of gamma^j r_{i+j}.
    next_action: int32 (n,), action in the next state.
    next_reward: float32 (n,), reward of the action in the next state.
    terminal: uint8 (n,), 1 if the episode terminates within the steps.
    steps: int64 (n,), `update_horizon`, or fewer if the episode ends earlier.
    stack_size: Number of frames in a state.
    windows: (n, w, *frame_shape), consecutive frames. The state is the first
      `stack_size` of them; the next state begins at frame `steps`.
    stacks: States and next states, (n, *frame_shape, stack_size) each.
  """

  rows: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  next_action: np.ndarray
  next_reward: np.ndarray
  terminal: np.ndarray
  steps: np.ndarray
  stack_size: int
  windows: Any = None
  stacks: Any = None

  @property
  def state(self) -> np.ndarray:
    """States (n, stack_size, *frame_shape), oldest frame first: a view of `windows`.

    Those of `stacks` are (n, *frame_shape, stack_size).
    """
    if self.stacks is not None:
      return self.stacks[0]
    return self.windows[:, : self.stack_size]

  @property
  def next_state(self) -> np.ndarray:
    """Next states, as `state`; a copy if some episode ends within the steps."""
    if self.stacks is not None:
      return self.stacks[1]
    horizon = self.windows.shape[1] - self.stack_size
    if (self.steps == horizon).all():
      return self.windows[:, horizon:]
    frames = self.steps[:, None] + np.arange(self.stack_size)
    return self.windows[np.arange(len(frames))[:, None], frames]


# Columns of every batch, which compiled code makes in this order.
COMPILED = Batch._fields[:7]

COLUMNS: dict[str, Column] = {}

# Arrays of every batch in the graph.
STANDARD = (
  'state',
  'action',
  'reward',
  'next_state',
  'next_action',
  'next_reward',
  'terminal',
  'indices',
)


class Rows:
  """Rows of n transitions, and what several columns derive from them.

  Attributes:
    sampler: Sampler of the run.
    store: Store of the run.
    rows: Rows of the run, int64 (n,).
  """

  def __init__(self, sampler: 'sampler_lib.Sampler', rows: np.ndarray):
    self.sampler = sampler
    self.store = sampler.store
    self.rows = rows

  @functools.cached_property
  def to_end(self) -> np.ndarray:
    """Rows to the end of the episode, at most `update_horizon`: int64 (n,)."""
    ends, horizon = self.store.ends, self.sampler.update_horizon
    if not len(ends):
      return np.full(self.rows.shape, horizon)
    at = ends.searchsorted(self.rows)
    to_end = ends.take(at, mode='clip') - self.rows
    # Rows after the last end are negative, or they belong to an unfinished episode.
    return np.where(at < len(ends), np.minimum(to_end, horizon), horizon)

  @functools.cached_property
  def steps(self) -> np.ndarray:
    """Number of rows from the state to the next state, int64 (n,)."""
    return np.minimum(self.to_end + 1, self.sampler.update_horizon)

  @functools.cached_property
  def following(self) -> np.ndarray:
    """Rows of the next states, int64 (n,)."""
    return np.minimum(self.rows + self.steps, self.store.rows - 1)

  @functools.cached_property
  def ring(self) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the shards in `Store.suffixes`, and positions in their rings."""
    return self.store.ring_of(self.rows)

  @functools.cached_property
  def trajectory(self) -> np.ndarray:
    """Indices of the trajectories with the rows, int64 (n,)."""
    return self.sampler.trajectories.begin.searchsorted(self.rows, 'right') - 1


def check(names: Iterable[str]) -> tuple[str, ...]:
  """Checks the names of further columns.

  Returns:
    The names in the same order, each once, without those of `STANDARD`.

  Raises:
    ValueError: If a column is unknown.
  """
  names = (names,) if isinstance(names, str) else tuple(names)
  for name in names:
    if name not in COLUMNS and name not in STANDARD:
      raise ValueError(
        f'There is no column {name!r}; the columns are '
        f'{", ".join(sorted({*STANDARD, *COLUMNS}))}.'
      )
  return tuple(name for name in dict.fromkeys(names) if name not in STANDARD)


def _column(dtype: type[np.generic]):
  """Registers a function as the column of its name."""

  def register(function):
    COLUMNS[function.__name__] = Column(function, dtype)
    return function

  return register


@_column(np.int64)
def rows(at: Rows) -> np.ndarray:
  """Row of the transition in the run."""
  return at.rows


@_column(np.int32)
def action(at: Rows) -> np.ndarray:
  """Action."""
  return at.store.action[at.rows]


@_column(np.float32)
def reward(at: Rows) -> np.ndarray:
  """n-step return: sum over j < steps of gamma^j r_{i+j}."""
  logged, discounts = at.store.reward, at.sampler.discounts
  total = np.zeros(at.rows.shape, np.float32)
  for j, discount in enumerate(discounts):
    later = discount * logged[np.minimum(at.rows + j, len(logged) - 1)]
    total += np.where(j < at.steps, later, 0) if j else later
  return total


@_column(np.int32)
def next_action(at: Rows) -> np.ndarray:
  """Action in the next state."""
  return at.store.action[at.following]


@_column(np.float32)
def next_reward(at: Rows) -> np.ndarray:
  """Reward of the action in the next state."""
  return at.store.reward[at.following]


@_column(np.uint8)
def terminal(at: Rows) -> np.ndarray:
  """1 if the episode terminates within the steps, else 0."""
  return at.to_end < at.sampler.update_horizon


@_column(np.int64)
def steps(at: Rows) -> np.ndarray:
  """`update_horizon`, or fewer if the episode ends earlier."""
  return at.steps


@_column(np.int64)
def shard(at: Rows) -> np.ndarray:
  """Index of the row's shard in `Store.suffixes`."""
  return at.ring[0]


@_column(np.int64)
def ring(at: Rows) -> np.ndarray:
  """Position of the row in its shard's ring."""
  return at.ring[1]


@_column(np.int64)
def timestep(at: Rows) -> np.ndarray:
  """Agent steps since the first logged step of the trajectory."""
  return at.rows - at.sampler.trajectories.steps_begin[at.trajectory]


@_column(np.float32)
def return_to_go(at: Rows) -> np.ndarray:
  """Sum over j >= 0 of gamma^j r_{i+j}, to the end of the logged trajectory.

  If the log stops before the episode does, later rewards count as zero.
  """
  stops = at.sampler.trajectory_stops[at.trajectory]
  return at.sampler.returns_to_go.at(at.rows, stops)


@_column(np.float32)
def trajectory_return(at: Rows) -> np.ndarray:
  """Sum of the logged rewards of the trajectory."""
  return at.sampler.trajectories.returns[at.trajectory]


@_column(np.float32)
def weight(at: Rows) -> np.ndarray:
  """Weight by the trajectory's return, above 0 and at most 1, to weight a loss.

  It is exp((g - 1) / 0.1), where g is the return, normalised so that the lowest of all
  selected trajectories is 0 and the highest 1: return weighting of Hong et al., 2023.
  """
  return at.sampler.return_weights[at.trajectory]
