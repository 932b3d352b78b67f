"""Stitching: the time order of a run's rows across the rings of its shards."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batch_rl.dataset.shards import shard_reader


class Placement(NamedTuple):
  """The rows that a shard adds to the run, and whether they continue it.

  In time order they are at ring positions `(start + j) % capacity`, `j < rows`.

  Attributes:
    suffix: Shard number.
    capacity: Number of rows in the shard's ring.
    start: Ring position of the shard's oldest row that no earlier shard has.
    rows: Number of rows added to the run; 0 if the shard only repeats rows.
    follows: Whether the rows directly continue those before them in the run. If not,
      no transition may span the two.
  """

  suffix: int
  capacity: int
  start: int
  rows: int
  follows: bool


def in_time_order(array: np.ndarray, placement: Placement) -> np.ndarray:
  """Returns the rows of a ring that its shard adds to the run, oldest first."""
  return np.roll(array, -placement.start, axis=0)[: placement.rows]


def stitch(
  suffixes: Sequence[int], add_counts: Sequence[int], capacities: Sequence[int]
) -> tuple[list[Placement], list[str]]:
  """Places the shards of a run end to end, in time order.

  A shard whose ring has wrapped holds rows `[add_count - capacity, add_count)`
  of the run. In the last shard the count may be the cursor instead; then it
  continues the previous shard, dumped at cursor `capacity - 1`.

  Args:
    suffixes: Shard numbers of one run, ascending.
    add_counts: Number of rows added before each shard's dump.
    capacities: Number of rows in each shard's ring.

  Returns:
    One placement for each shard, and one line for each gap or repetition of rows
    between neighbouring shards.

  Raises:
    ValueError: If these cannot be shards of one run.
  """
  placements: list[Placement] = []
  problems = []
  end = 0  # Number of rows in the run after the previous shard.
  before = None
  for i, (suffix, count, capacity) in enumerate(
    zip(suffixes, add_counts, capacities, strict=True)
  ):
    cursor, begin = count % capacity, max(0, count - capacity)
    start = cursor if count >= capacity else 0
    rows, follows = count - begin, False
    if before is not None:
      if capacity != capacities[i - 1]:
        raise ValueError(
          f'shards {before} and {suffix} have {capacities[i - 1]} and '
          f'{capacity} rows: are these two runs in one directory?'
        )
      neighbours = suffix == before + 1
      restarted = count < capacity and count < end
      if restarted and i == len(suffixes) - 1:
        if neighbours and end % capacity == capacity - 1:
          start, rows, follows = capacity - 1, count + 1, True
      elif count < end:
        raise ValueError(
          f'add_count falls from {add_counts[i - 1]} in shard {before} to '
          f'{count} in shard {suffix}: are these two runs in one directory?'
        )
      elif begin > end:
        if neighbours:
          problems.append(
            f'{begin - end} rows are missing between shards {before} and '
            f'{suffix} (add_count is {add_counts[i - 1]} and {count}, the ring '
            f'has {capacity} rows)'
          )
      else:
        repeated = end - begin
        if repeated:
          problems.append(
            f'shard {suffix} repeats {repeated} rows of shard {before} '
            f'(add_count is {add_counts[i - 1]} and {count}); they are used once'
          )
        start = (start + repeated) % capacity
        rows, follows = rows - repeated, end > 0
    placements.append(Placement(suffix, capacity, start, rows, follows))
    end, before = count, suffix
  return placements, problems


def join_whole_episodes(
  suffixes: Sequence[int], rows: Sequence[int]
) -> tuple[list[Placement], list[str]]:
  """Places shards that begin and end with an episode; see `stitch`.

  Each is a ring that is just full. One follows another even if shards between them
  are missing, since no episode spans the two.

  Args:
    suffixes: Shard numbers, ascending.
    rows: Number of rows of each shard.
  """
  return [
    Placement(suffix, count, 0, count, follows=any(rows[:i]))
    for i, (suffix, count) in enumerate(zip(suffixes, rows, strict=True))
  ], []


def find_missing(suffixes: Sequence[int]) -> list[str]:
  """Returns one line for each gap between ascending shard numbers."""
  return [
    f'no shard between {a} and {b}'
    for a, b in itertools.pairwise(suffixes)
    if b != a + 1
  ]


def find_problems(data_dir: str, suffixes: Sequence[int]) -> list[str]:
  """Returns one line for each gap or repetition, from the counters of shards.

  Args:
    data_dir: Directory of the shards.
    suffixes: Shard numbers, ascending.

  Raises:
    ValueError: If a file cannot be read, or the shards are not of one run.
  """
  counts, capacities = [], []
  for suffix in suffixes:
    counts.append(shard_reader.read_add_count(data_dir, suffix))
    headers = shard_reader.read_headers(data_dir, suffix)
    capacities.append(headers['terminal'].rows)
  try:
    _, problems = stitch(suffixes, counts, capacities)
  except ValueError as error:
    raise ValueError(f'{data_dir}: {error}') from None
  problems = find_missing(suffixes) + problems
  return [f'{data_dir}: {problem}.' for problem in problems]
