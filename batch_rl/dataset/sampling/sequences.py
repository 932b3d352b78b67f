"""Sequences of agent steps with returns to go; batch k is a function of (seed, k).

Made for models of sequences, such as the Decision Transformer (Chen et al., 2021, arXiv
2106.01345), from the same store as `sampler`. A sequence ends at a step of a trajectory
and has the steps before it, without a copy of the run. Every logged step can be its
last one, also a terminal one, and the last one of a truncated or unfinished episode,
because no next state is needed. Where the beginning of an episode is missing, the first
`stack_size - 1` steps are only context.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.sampling import compiled_batches, row_ranges, row_sampler
from batch_rl.dataset.store import store as store_lib


class SequenceBatch(NamedTuple):
  """A batch of n sequences of `length` agent steps, the earliest step first.

  Steps before the trajectory's or the subset's first one are padding: `mask` is False,
  `rows` -1, and the rest zero. Frames of padding are zero, too, except the earlier
  frames of the first step's stack.

  Attributes:
    rows: int64 (n, length), row of each step in the run.
    frames: (n, length + stack_size - 1, *frame_shape), consecutive frames. The state of
      step t is frames t to t + stack_size - 1.
    action: Integers (n, length).
    reward: float32 (n, length), rewards as logged.
    terminal: uint8 (n, length), 1 if the episode terminates with the step.
    timestep: int64 (n, length), agent steps since the trajectory's first logged step.
    return_to_go: float32 (n, length), sum over j >= 0 of gamma^j r_{t+j}, to the end
      of the logged trajectory. If the log stops before the episode does, later rewards
      are unknown and count as zero; `SequenceSampler` can exclude such trajectories.
    mask: bool (n, length), whether a step is in the trajectory.
  """

  rows: np.ndarray
  frames: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  timestep: np.ndarray
  return_to_go: np.ndarray
  mask: np.ndarray

  @property
  def state(self) -> np.ndarray:
    """Stacks of frames, (n, length, stack_size, *frame_shape): a read-only view."""
    stack_size = self.frames.shape[1] - self.rows.shape[1] + 1
    view = np.lib.stride_tricks.sliding_window_view
    return np.moveaxis(view(self.frames, stack_size, axis=1), -1, 2)


class SequenceSampler(row_sampler.RowSampler):
  """Draws sequences from a store.

  Args:
    store: Store of a run, which is being packed or is packed.
    length: Number of agent steps in a sequence, at least 1.
    stack_size: Number of frames in a state, at least 1.
    gamma: Discount factor of the returns to go, in [0, 1].
    weighting: Distribution of the sequences' last steps. 'steps': uniform over the
      steps. 'trajectories': uniform over the trajectories, then over the steps of one.
      'returns': each step of trajectory i has a probability proportional to
      exp(g_i / temperature), where g_i is the trajectory's undiscounted return,
      normalised so that the lowest is 0 and the highest 1: return weighting (RW) of
      Hong et al., 2023 (arXiv 2306.13085).
    temperature: Temperature of 'returns', above 0; the larger, the closer to 'steps'.
    complete_only: Whether to exclude trajectories that a gap in the log or its end cut
      off, whose returns are unknown.
    subset: Selection of trajectories or transitions, e.g. 'best_trajectories(0.1)' (see
      `subsets`); None for the whole run. Steps outside it are in no sequence. Timesteps
      and returns count from and to the ends of the whole trajectory.
    seed: Seed of the batches, an integer of at least 0 or several, such as [1, rank];
      None for a random one.

  Raises:
    ValueError: If an argument is out of its range, or the subset cannot be parsed or is
      empty.
  """

  def __init__(
    self,
    store: store_lib.Store,
    length: int,
    stack_size: int = 1,
    gamma: float = 1.0,
    weighting: str = 'steps',
    temperature: float = 0.1,
    complete_only: bool = False,
    subset: str | None = None,
    seed: int | Sequence[int] | None = None,
  ):
    row_sampler.check_counts(length=length, stack_size=stack_size)
    self.length = int(length)
    self._rows_name = f'step of a {"complete " * complete_only}trajectory'
    # A window has the frames of a sequence.
    window, discounts = int(length + stack_size - 1), np.zeros(0, np.float32)
    super().__init__(
      store,
      int(stack_size),
      gamma,
      subset,
      seed,
      compiled_batches.CompiledBatches(store, window, discounts),
      before=int(stack_size) - 1,
      after=0,
      pads=True,
      complete_only=complete_only,
      weighting=weighting,
      temperature=temperature,
    )

  @property
  def num_steps(self) -> int:
    """Number of steps at which a sequence can end now."""
    return self._ranges.total

  @property
  def num_trajectories(self) -> int:
    """Number of trajectories with such steps, partial ones included."""
    return len(self._ranges.first)

  def steps(self) -> np.ndarray:
    """Returns the rows of all such steps, ascending: int64 (num_steps,)."""
    ranges = self._ranges
    return ranges.rows(np.arange(ranges.total))

  def batch(self, number: int, count: int) -> SequenceBatch:
    """Returns batch `number` with `count` sequences; see `draw`."""
    row_sampler.check_counts(0, number=number, count=count)
    ranges = self._current_ranges()
    return self._gather(ranges, ranges.draw(self._key, number, count))

  def gather(self, rows: np.ndarray) -> SequenceBatch:
    """Returns the sequences that end at rows, int64 (n,), as one batch.

    Raises:
      ValueError: If a row is not in `steps()`.
    """
    rows, ranges = row_sampler.as_rows(rows), self._current_ranges()
    if len(outside := rows[~ranges.contain(rows)]):
      raise ValueError(f'No sequence ends at row {outside[0]}; see steps().')
    return self._gather(ranges, rows)

  def _gather(
    self, ranges: row_ranges.Ranges, rows: np.ndarray
  ) -> SequenceBatch:
    store, at = self.store, ranges.of(rows)
    first = ranges.first[at]
    trajectory = self.trajectories.begin.searchsorted(rows, 'right') - 1
    end = self.trajectory_stops[trajectory]
    context = np.maximum(ranges.begin[at], first - (self.stack_size - 1))
    frames = self._frames(rows, context, ranges.gapless[at])
    steps = rows[:, None] + np.arange(1 - self.length, 1)
    mask = steps >= first[:, None]
    padding = ~mask
    steps[padding] = 0
    action, reward = store.action[steps], store.reward[steps]
    timestep = steps - ranges.first_step[at][:, None]
    for column in (action, reward, timestep):
      column[padding] = 0
    steps[padding] = -1
    terminal = np.zeros(steps.shape, np.uint8)
    terminal[:, -1] = ranges.terminates[at] & (rows == end - 1)
    return SequenceBatch(
      steps,
      frames,
      action,
      reward.astype(np.float32, copy=False),
      terminal,
      timestep,
      self._sum_rewards(reward, mask, self.returns_to_go.at(rows, end)),
      mask,
    )

  def _sum_rewards(self, reward, mask, last) -> np.ndarray:
    """Returns the returns to go of sequences, given the returns to go of their last steps."""
    sums = np.empty((self.length, len(last)))
    sums[-1] = last
    columns = np.ascontiguousarray(reward.T, np.float64)
    for t in range(self.length - 2, -1, -1):
      sums[t] = columns[t] + self.gamma * sums[t + 1]
    return np.where(mask, sums.T, 0).astype(np.float32)

  def _frames(
    self, rows: np.ndarray, context: np.ndarray, gapless: np.ndarray
  ) -> np.ndarray:
    """Returns the frames up to rows, zero before `context`."""
    width = self._compiled.length
    begin = rows - (width - 1)
    made = self._compiled.make(rows, 1, 'windows')
    frames = (
      self.store.windows(begin, width) if made is None else made[0].windows
    )
    for i in np.flatnonzero(context > begin):
      if gapless[i] > begin[i]:  # Frames after the first gap were not read.
        frames[i] = self.store.frames(np.arange(begin[i], rows[i] + 1))
      frames[i, : context[i] - begin[i]] = 0
    return frames
