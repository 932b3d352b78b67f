"""Comparison of two copies of a run: which episodes differ, and where the first does."""

import dataclasses
from typing import Any

import numpy as np

from batch_rl.dataset.comparison import copies, hashed_rows


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Result of a comparison. Pieces of divided episodes count as episodes.

  Attributes:
    same: Whether the copies have the same episodes.
    in_order: Whether the episodes that both have are in the same order.
    with_frames: Whether frames were compared.
    equal: Number of episodes that both have.
    different: Number of the other episodes, by copy: 'a' and 'b'.
    first: First difference, JSON-able: the place in `a` and `b`, and the values of
      both by column ('frame', 'action', 'reward', 'terminal' or 'transitions', the
      length of the episode). Without `values` if only one copy has the episode.
  """

  same: bool
  in_order: bool
  with_frames: bool
  equal: int
  different: dict[str, int]
  first: dict[str, Any] | None


def prepare(a: copies.Copy, b: copies.Copy) -> None:
  """Prepares copies for reading: rewards are clipped in both, or in none.

  Raises:
    ValueError: If they cannot be copies of one run.
  """
  if a.game and b.game and a.game.lower() != b.game.lower():
    raise ValueError(
      f'{a.path} is a run of {a.game}, {b.path} one of {b.game}; choose two '
      'copies of one run.'
    )
  shapes = [f'{c.frame_dtype} {c.frame_shape}' for c in (a, b)]
  if shapes[0] != shapes[1]:
    raise ValueError(
      f'observations are {shapes[0]} in {a.path}, but {shapes[1]} in {b.path}; '
      'choose two copies of one run.'
    )
  known = [copy.is_atari for copy in (a, b) if copy.is_atari is not None]
  a.is_atari = b.is_atari = any(known) if known else None


def compare(
  a: copies.Copy, b: copies.Copy, with_frames: bool = True
) -> Comparison:
  """Compares two copies that have been read.

  Args:
    a: One copy.
    b: The other copy.
    with_frames: Whether frames were read.
  """
  episodes_a, hashes_a = a.rows.episode_hashes(with_frames)
  episodes_b, hashes_b = b.rows.episode_hashes(with_frames)
  equal_a, equal_b = _equal(hashes_a, hashes_b)
  different_a = np.delete(episodes_a, equal_a)
  different_b = np.delete(episodes_b, equal_b)
  different = {'a': len(different_a), 'b': len(different_b)}
  return Comparison(
    not any(different.values()),
    bool((np.diff(equal_b[np.argsort(equal_a)]) > 0).all()),
    with_frames,
    len(equal_a),
    different,
    _first_difference(a, b, different_a, different_b),
  )


def _equal(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the positions of equal hashes, the n-th of `a` with the n-th of `b`."""
  order_a = np.argsort(a, kind='stable')
  order_b = np.argsort(b, kind='stable')
  a, b = a[order_a], b[order_b]
  repetition = np.arange(len(a)) - np.searchsorted(a, a)
  at = np.searchsorted(b, a) + repetition
  found = np.flatnonzero(at < len(b))
  found = found[b[at[found]] == a[found]]
  return order_a[found], order_b[at[found]]


def _first_difference(
  a: copies.Copy,
  b: copies.Copy,
  different_a: np.ndarray,
  different_b: np.ndarray,
) -> dict[str, Any] | None:
  """Compares the first differing episode of `a` with the one of `b` most like it.

  Args:
    a: One copy.
    b: The other copy.
    different_a: Episodes that only `a` has, int64 (n,).
    different_b: Episodes that only `b` has, int64 (m,).
  """
  for name, copy, only, others in (
    ('a', a, different_a, different_b),
    ('b', b, different_b, different_a),
  ):
    if len(only) and not len(others):
      return {name: copy.place(int(copy.rows.begin[only[0]]))}
  if not len(different_a):
    return None
  episode_a = int(different_a[0])
  likeness = [
    _likeness(a.rows, episode_a, b.rows, episode)
    for episode in different_b.tolist()
  ]
  episode_b = int(different_b[np.argmax(likeness)])
  step, values = _first_row(a.rows, episode_a, b.rows, episode_b)
  return {
    'a': a.place(int(a.rows.begin[episode_a]) + step),
    'b': b.place(int(b.rows.begin[episode_b]) + step),
    'values': values,
  }


def _likeness(
  a: hashed_rows.HashedRows,
  episode_a: int,
  b: hashed_rows.HashedRows,
  episode_b: int,
) -> int:
  """Returns the number of equal frames and actions at equal steps."""
  begin_a, begin_b = a.begin[episode_a], b.begin[episode_b]
  count = min(a.stop[episode_a] - begin_a, b.stop[episode_b] - begin_b)
  rows_a = slice(begin_a, begin_a + count)
  rows_b = slice(begin_b, begin_b + count)
  frames = np.count_nonzero(a.frame[rows_a] == b.frame[rows_b])
  actions = np.count_nonzero(a.action[rows_a] == b.action[rows_b])
  return int(frames + actions)


def _first_row(
  a: hashed_rows.HashedRows,
  episode_a: int,
  b: hashed_rows.HashedRows,
  episode_b: int,
) -> tuple[int, dict[str, dict[str, Any]]]:
  """Returns the first step at which two episodes differ, and the values there."""
  begin_a, begin_b = int(a.begin[episode_a]), int(b.begin[episode_b])
  rows = min(int(a.stop[episode_a]) - begin_a, int(b.stop[episode_b]) - begin_b)
  counts = a.transitions_in(episode_a), b.transitions_in(episode_b)
  found: dict[str, int] = {}
  # The last row of an unfinished episode has only a frame.
  for column, count in (
    ('frame', rows),
    *((name, min(counts)) for name in ('action', 'reward', 'terminal')),
  ):
    values_a = getattr(a, column)[begin_a : begin_a + count]
    values_b = getattr(b, column)[begin_b : begin_b + count]
    differs = values_a != values_b
    if differs.any():
      found[column] = int(np.argmax(differs))
  if not found:
    lengths = dict(zip('ab', counts, strict=True))
    return min(counts) - 1, {'transitions': lengths}
  step = min(found.values())
  return step, {
    column: {
      'a': _value(a, column, begin_a + step),
      'b': _value(b, column, begin_b + step),
    }
    for column, first in found.items()
    if first == step
  }


def _value(rows: hashed_rows.HashedRows, column: str, row: int) -> Any:
  """Returns a value, JSON-able; the hash of a frame."""
  value = getattr(rows, column)[row].item()
  return f'{value:016x}' if column == 'frame' else value
