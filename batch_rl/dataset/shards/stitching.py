"""The rows of a run in time order, from the rings of its shards."""

import dataclasses
import itertools
import os
from collections.abc import Sequence

import numpy as np

from batch_rl.dataset.shards import shard_files, shard_reader


def time_order(add_count: int, capacity: int) -> np.ndarray:
  """Ring positions, oldest first, of the rows that a ring holds.

  A ring that has wrapped is whole and starts at its cursor; one that has not ends
  there, and what lies beyond is stale.

  Returns:
    int64 (n,).
  """
  cursor = add_count % capacity
  if add_count < capacity:
    return np.arange(cursor)
  return np.roll(np.arange(capacity), -cursor)


@dataclasses.dataclass(frozen=True)
class Placement:
  """Which rows of a shard belong to the run, and whether they follow on.

  In time order they are at ring positions `(start + j) % capacity`, `j < rows`.

  Attributes:
    suffix: the number of the shard.
    capacity: rows of its ring.
    start: ring position of its oldest row that no shard before it has.
    rows: how many it adds to the run; 0 if it only repeats.
    follows: whether its oldest row comes right after the last one of the shard
      before it. If not, no transition may cross the seam.
  """

  suffix: int
  capacity: int
  start: int
  rows: int
  follows: bool


def stitch(
  suffixes: Sequence[int], add_counts: Sequence[int], capacities: Sequence[int]
) -> tuple[list[Placement], list[str]]:
  """Lays the shards of a run end to end, in time order.

  A shard whose ring has wrapped holds rows `[add_count - capacity, add_count)`
  of the run. The last shard's counter may have started over: it is the cursor
  then, and the shard follows on from one that was dumped at `capacity - 1`.

  Args:
    suffixes: shards of one run, ascending.
    add_counts: of each.
    capacities: rows of the ring of each.

  Returns:
    A placement for each shard; the rows that are missing between neighbours, or
    there twice, a line each.

  Raises:
    ValueError: if these cannot be shards of one run.
  """
  placements: list[Placement] = []
  problems = []
  end = 0  # run row after the last one placed
  before = None
  for i, (suffix, count, capacity) in enumerate(
    zip(suffixes, add_counts, capacities, strict=True)
  ):
    cursor, begin = count % capacity, max(0, count - capacity)
    start, rows, follows = (
      cursor if count >= capacity else 0,
      count - begin,
      False,
    )
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
        again = end - begin
        if again:
          problems.append(
            f'shard {suffix} repeats {again} rows of shard {before} (add_count '
            f'is {add_counts[i - 1]} and {count}); they are used once'
          )
        start, rows, follows = (start + again) % capacity, rows - again, True
    placements.append(Placement(suffix, capacity, start, rows, follows))
    end, before = count, suffix
  return placements, problems


def find_missing(suffixes: Sequence[int]) -> list[str]:
  """Says which numbers are missing between those of shards, a line each."""
  return [
    f'no shard between {a} and {b}'
    for a, b in itertools.pairwise(suffixes)
    if b != a + 1
  ]


def place(
  data_dir: str, suffixes: Sequence[int]
) -> tuple[list[Placement], list[str]]:
  """Reads the counters of shards and stitches them; see `stitch`.

  Args:
    data_dir: the directory of the files.
    suffixes: shards in it, ascending.

  Raises:
    ValueError: if a file cannot be read, or these are not of one run.
  """
  counts, capacities = [], []
  for suffix in suffixes:
    counts.append(shard_reader.read_add_count(data_dir, suffix))
    path = os.path.join(data_dir, shard_files.file_name('terminal', suffix))
    capacities.append(shard_reader.read_header(path).shape[0])
    if not capacities[-1]:
      raise ValueError(f'{path} has no rows.')
  try:
    placements, problems = stitch(suffixes, counts, capacities)
  except ValueError as error:
    raise ValueError(f'{data_dir}: {error}') from None
  problems = find_missing(suffixes) + problems
  return placements, [f'{data_dir}: {problem}.' for problem in problems]
