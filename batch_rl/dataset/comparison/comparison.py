"""Comparison of two copies of a run: whether, and where, their transitions differ."""

import dataclasses
from typing import Any

import numpy as np

from batch_rl.dataset.comparison import alignment, copies, hashed_rows

# Number of differences of each kind that are described.
_DESCRIBED = 3


@dataclasses.dataclass(frozen=True)
class OnlyInOne:
  """Transitions that one copy has and the other lacks.

  Attributes:
    transitions: Number of all of them.
    episodes: Number of episodes without any transition in the other copy.
    in_episodes: Number of transitions in these.
    last: Last transitions of terminated episodes that end one step earlier in the
      other copy.
    divided: Transitions at which the other copy divides an episode, or ends.
  """

  transitions: int = 0
  episodes: int = 0
  in_episodes: int = 0
  last: int = 0
  divided: int = 0


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Result of a comparison.

  Attributes:
    same: Whether the copies have the same transitions.
    in_order: Whether the transitions that both have are in the same order.
    with_frames: Whether frames were compared.
    equal: Number of transitions that both have.
    rows: Number of rows that differ, by column: 'frame', 'action', 'reward', 'end'.
    only: Transitions in only one of the copies, by 'a' and 'b'.
    first: First differences of each kind, JSON-able: `kind`, the places in `a` and
      `b`, and `values`, or the number of `transitions`.
  """

  same: bool
  in_order: bool
  with_frames: bool
  equal: int
  rows: dict[str, int]
  only: dict[str, OnlyInOne]
  first: list[dict[str, Any]]


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
  hashes_a, hashes_b = (copy.rows.hashes(with_frames) for copy in (a, b))
  if np.array_equal(hashes_a, hashes_b) and (
    with_frames or np.array_equal(a.rows.starts, b.rows.starts)
  ):
    return _same(len(hashes_a), with_frames, in_order=True)
  if with_frames and len(hashes_a) == len(hashes_b):
    if hashed_rows.total(hashes_a) == hashed_rows.total(hashes_b):
      return _same(len(hashes_a), with_frames, in_order=False)
  aligned = alignment.Alignment(a.rows, b.rows, hashes_a, hashes_b, with_frames)
  equal = aligned.is_equal()
  is_paired = aligned.partner >= 0
  in_order = bool((np.diff(aligned.partner[is_paired]) > 0).all())
  if equal.all() and (aligned.partner_of_b >= 0).all():
    return _same(len(equal), with_frames, in_order)
  return _describe(a, b, aligned, equal, in_order, with_frames)


def _same(equal: int, with_frames: bool, in_order: bool) -> Comparison:
  rows = dict.fromkeys(('frame', 'action', 'reward', 'end'), 0)
  only = {'a': OnlyInOne(), 'b': OnlyInOne()}
  return Comparison(True, in_order, with_frames, equal, rows, only, [])


def _describe(
  a: copies.Copy,
  b: copies.Copy,
  aligned: alignment.Alignment,
  equal: np.ndarray,
  in_order: bool,
  with_frames: bool,
) -> Comparison:
  """Counts the differences by kind, and describes the first ones."""
  counts = dict.fromkeys(('frame', 'action', 'reward', 'end'), 0)
  last, first = {'a': 0, 'b': 0}, []
  for start in range(0, len(equal), hashed_rows.CHUNK_ROWS):
    chunk = slice(start, start + hashed_rows.CHUNK_ROWS)
    differs = (aligned.partner[chunk] >= 0) & ~equal[chunk]
    i = start + np.flatnonzero(differs)
    pairs = _Pairs(a.rows, b.rows, aligned, i)
    last['a'] += int(pairs.ends_earlier_in_b.sum())
    last['b'] += int(pairs.ends_earlier_in_a.sum())
    for kind in counts:
      if kind == 'frame' and not with_frames:
        continue
      in_a, in_b = pairs.different(kind)
      described = min(counts[kind], _DESCRIBED)
      counts[kind] += len(in_a)
      first += [
        _describe_rows(kind, a, row_a, b, row_b)
        for row_a, row_b in zip(
          in_a[: _DESCRIBED - described].tolist(),
          in_b[: _DESCRIBED - described].tolist(),
          strict=True,
        )
      ]
  first.sort(key=lambda difference: list(counts).index(difference['kind']))
  only = {}
  for name, copy, other, partner in (
    ('a', a, b, aligned.partner),
    ('b', b, a, aligned.partner_of_b),
  ):
    only[name] = _count(copy.rows, other.rows, partner, last[name])
    first += _runs(name, copy, partner)
  return Comparison(
    False, in_order, with_frames, int(equal.sum()), counts, only, first
  )


class _Pairs:
  """Pairs of transitions that are not equal.

  Args:
    a: Rows of one copy.
    b: Rows of the other.
    aligned: Alignment of both.
    i: Transitions of `a`, int64 (n,).

  Attributes:
    ends_earlier_in_b: Whether a transition is terminal in `b` and the next to last
      one in `a`, bool (n,).
    ends_earlier_in_a: Likewise, the other way round.
  """

  def __init__(
    self,
    a: hashed_rows.HashedRows,
    b: hashed_rows.HashedRows,
    aligned: alignment.Alignment,
    i: np.ndarray,
  ):
    j = aligned.partner[i].astype(np.int64)
    self._a, self._b = a, b
    self._row_a, self._row_b = a.row_of(i), b.row_of(j)
    self._end_a, self._end_b = a.terminal[self._row_a], b.terminal[self._row_b]
    self.ends_earlier_in_b = (
      ~self._end_a & self._end_b & _precedes_free_end(a, aligned.partner, i)
    )
    self.ends_earlier_in_a = (
      self._end_a
      & ~self._end_b
      & _precedes_free_end(b, aligned.partner_of_b, j)
    )
    # Whether the following rows of the episode are another pair.
    after = np.minimum(i + 1, len(aligned.partner) - 1)
    self._goes_on = (
      (aligned.partner[after] == j + 1)
      & (a.episode_of(after) == a.episode_of(i))
      & (after > i)
    )

  def different(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of `a` and of `b` that differ in a column."""
    row_a, row_b = self._row_a, self._row_b
    if kind == 'end':
      shorter = self.ends_earlier_in_a | self.ends_earlier_in_b
      differs = (self._end_a != self._end_b) & ~shorter
      return row_a[differs], row_b[differs]
    of_a, of_b = getattr(self._a, kind), getattr(self._b, kind)
    differs = of_a[row_a] != of_b[row_b]
    if kind != 'frame':
      return row_a[differs], row_b[differs]
    # The frame of a row that is no transition, or in no pair, is a next frame here.
    last = np.flatnonzero(~(self._end_a | self._end_b | self._goes_on))
    next_a, next_b = row_a[last] + 1, row_b[last] + 1
    unlike = of_a[next_a] != of_b[next_b]
    found_a = np.append(row_a[differs], next_a[unlike])
    found_b = np.append(row_b[differs], next_b[unlike])
    order = np.argsort(found_a, kind='stable')
    return found_a[order], found_b[order]


def _precedes_free_end(
  rows: hashed_rows.HashedRows, partner: np.ndarray, i: np.ndarray
) -> np.ndarray:
  """Returns whether a terminal transition without a partner follows, bool (n,)."""
  after = np.minimum(i + 1, len(partner) - 1)
  is_end = rows.terminal[rows.row_of(after)] & (partner[after] < 0)
  return is_end & (rows.episode_of(after) == rows.episode_of(i)) & (after > i)


def _count(
  rows: hashed_rows.HashedRows,
  other: hashed_rows.HashedRows,
  partner: np.ndarray,
  last: int,
) -> OnlyInOne:
  """Counts the transitions without a partner by kind."""
  free_in = np.zeros(rows.episodes, np.int64)
  divided = 0
  for start in range(0, len(partner), hashed_rows.CHUNK_ROWS):
    chunk = partner[start : start + hashed_rows.CHUNK_ROWS]
    free = start + np.flatnonzero(chunk < 0)
    episode = rows.episode_of(free)
    free_in += np.bincount(episode, minlength=rows.episodes)
    # The transition before is the last one of an episode without an end.
    before = partner[free[free > rows.starts[episode]] - 1]
    before = before[before >= 0]
    piece = other.episode_of(before)
    ends = before + 1 == other.starts[1:][piece]
    divided += int((ends & ~other.terminated[piece]).sum())
  whole = (free_in > 0) & (free_in == np.diff(rows.starts))
  return OnlyInOne(
    int(free_in.sum()),
    int(whole.sum()),
    int(free_in[whole].sum()),
    last,
    divided,
  )


def _runs(
  name: str, copy: copies.Copy, partner: np.ndarray
) -> list[dict[str, Any]]:
  """Describes the first transitions that only one copy has."""
  rows, described = copy.rows, []
  # Enough for some episodes.
  free = np.flatnonzero(partner < 0)[: hashed_rows.CHUNK_ROWS]
  episode = rows.episode_of(free)
  begins = np.ones(len(free), bool)
  begins[1:] = (np.diff(free) > 1) | (np.diff(episode) > 0)
  starts = np.flatnonzero(begins)
  lengths = np.diff(np.append(starts, len(free)))
  for start, length in zip(
    starts[:_DESCRIBED].tolist(), lengths[:_DESCRIBED].tolist(), strict=True
  ):
    row = int(rows.row_of(free[start : start + 1])[0])
    described.append(
      {
        'kind': f'only_{name}',
        name: copy.place(row),
        'transitions': length,
      }
    )
  return described


def _describe_rows(
  kind: str, a: copies.Copy, row_a: int, b: copies.Copy, row_b: int
) -> dict[str, Any]:
  """Describes two rows that differ in a column."""
  return {
    'kind': kind,
    'a': a.place(row_a),
    'b': b.place(row_b),
    'values': _values(kind, a, row_a, b, row_b),
  }


def _values(
  kind: str, a: copies.Copy, row_a: int, b: copies.Copy, row_b: int
) -> Any:
  """Returns the values of both copies; of a frame, where they differ."""
  if kind == 'frame':
    frame_a, frame_b = np.asarray(a.frame(row_a)), np.asarray(b.frame(row_b))
    # Hashes are those of bytes: zero and negative zero differ.
    content_a, content_b = (
      np.frombuffer(frame.tobytes(), np.uint8).reshape(*frame.shape, -1)
      for frame in (frame_a, frame_b)
    )
    different = np.argwhere((content_a != content_b).any(axis=-1))
    if not len(different):
      raise ValueError(f'{a.path} or {b.path} has changed while it was read.')
    at = tuple(different[0].tolist())
    return {
      'differing': len(different),
      'of': int(frame_a.size),
      'first': list(at),
      'a': frame_a[at].item(),
      'b': frame_b[at].item(),
    }
  if kind == 'end':
    terminals = a.rows.terminal[row_a], b.rows.terminal[row_b]
    return dict(zip('ab', map(bool, terminals), strict=True))
  columns = getattr(a.rows, kind), getattr(b.rows, kind)
  return {'a': columns[0][row_a].item(), 'b': columns[1][row_b].item()}
