"""Comparison of two copies of a run: which episodes differ, and where the first does."""

import collections
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.comparison import copies


class Comparison(NamedTuple):
  """Result of a comparison. Pieces of divided episodes count as episodes.

  Attributes:
    same: Whether the copies have the same episodes.
    with_frames: Whether frames were compared.
    equal: Number of episodes that both have.
    different: Number of the other episodes, by copy: 'a' and 'b'.
    first: First difference, JSON-serialisable: the place in `a` and `b`, and values of
      both by column ('frame', 'action', 'reward', 'terminal' or 'transitions', the
      length of the episode). Without `values` if only one copy has the episode.
  """

  same: bool
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
  shapes = [f'{c.store.frame_dtype} {c.store.frame_shape}' for c in (a, b)]
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
  hashes_a = a.rows.episode_hashes(with_frames)
  hashes_b = b.rows.episode_hashes(with_frames)
  only_a = _without_partner(hashes_a, hashes_b)
  only_b = _without_partner(hashes_b, hashes_a)
  return Comparison(
    same=not only_a and not only_b,
    with_frames=with_frames,
    equal=len(hashes_a) - len(only_a),
    different={'a': len(only_a), 'b': len(only_b)},
    first=_first_difference(a, b, only_a, only_b),
  )


def _without_partner(own: dict[int, int], other: dict[int, int]) -> list[int]:
  """Returns the episodes of one copy that the other copy lacks.

  The n-th episode with some hash is the partner of the n-th one in the other copy.

  Args:
    own: Hash of each episode of the copy.
    other: Hash of each episode of the other copy.
  """
  free = collections.Counter(other.values())
  lacking = []
  for episode, value in own.items():
    if not free[value]:
      lacking.append(episode)
    free[value] -= free[value] > 0
  return lacking


def _first_difference(
  a: copies.Copy, b: copies.Copy, only_a: list[int], only_b: list[int]
) -> dict[str, Any] | None:
  """Compares the first differing episode of `a` with the one of `b` most like it.

  Args:
    a: One copy.
    b: The other copy.
    only_a: Episodes that only `a` has.
    only_b: Episodes that only `b` has.
  """
  if not only_a or not only_b:
    return {
      name: copy.place(only[0], 0)
      for name, copy, only in (('a', a, only_a), ('b', b, only_b))
      if only
    } or None
  columns_a = a.rows.episode(only_a[0])

  def likeness(episode: int) -> int:
    columns_b = b.rows.episode(episode)
    return sum(
      int(_is_equal(columns_a[name], columns_b[name]).sum())
      for name in ('frame', 'action')
    )

  most_similar = max(only_b, key=likeness)
  step, values = _first_row(columns_a, b.rows.episode(most_similar))
  places = {'a': a.place(only_a[0], step), 'b': b.place(most_similar, step)}
  return {**places, 'values': values}


def _is_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Returns whether the values of two episodes are equal, step by step."""
  count = min(len(a), len(b))
  return a[:count] == b[:count]


def _first_row(
  a: dict[str, np.ndarray], b: dict[str, np.ndarray]
) -> tuple[int, dict[str, dict[str, Any]]]:
  """Returns the first step at which two episodes differ, and the values there."""
  equal = {name: _is_equal(a[name], b[name]) for name in a}
  found = {n: int(np.argmin(x)) for n, x in equal.items() if not x.all()}
  if not found:
    lengths = {'a': len(a['action']), 'b': len(b['action'])}
    return min(lengths.values()) - 1, {'transitions': lengths}
  step = min(found.values())
  return step, {
    name: {'a': _value(name, a, step), 'b': _value(name, b, step)}
    for name in found
    if found[name] == step
  }


def _value(name: str, columns: dict[str, np.ndarray], step: int) -> Any:
  """Returns a value, JSON-serialisable; the hash of a frame."""
  value = columns[name][step].item()
  return f'{value:016x}' if name == 'frame' else value
