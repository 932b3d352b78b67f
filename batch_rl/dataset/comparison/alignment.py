"""Alignment of the transitions of two copies of a run.

First, equal transitions are paired: those that occur once in each copy, then those beside
them in the same episodes, then repeated ones in their order. So episodes may be in another
order, or divided in another way. Then each remaining transition is paired with the one
of the other copy at the same distance from a pair of its episode: there a value differs.
Episodes without an equal transition are paired by sequences of frames, or of actions.
Other episodes stay alone, except for transitions that are equal.
"""

from typing import TypeAlias

import numpy as np

from batch_rl.dataset.comparison import hashed_rows

# Number of transitions in the sequences by which rows are paired.
_LENGTH = 64
# Whether the key of a transition counts, None for all; the key of each, uint64.
_Keys: TypeAlias = tuple[np.ndarray | None, np.ndarray]


class Alignment:
  """Pairs of transitions of two copies.

  Takes about 25 B for each transition of both copies, beside their hashes.

  Args:
    a: Rows of one copy.
    b: Rows of the other.
    hashes_a: Hash of each transition of `a`, uint64.
    hashes_b: Hash of each transition of `b`, uint64.
    with_frames: Whether these hashes depend on the frames.

  Attributes:
    partner: Transition of `b` for each one of `a`, or -1: int32.
    partner_of_b: Transition of `a` for each one of `b`, or -1: int32.
  """

  def __init__(
    self,
    a: hashed_rows.HashedRows,
    b: hashed_rows.HashedRows,
    hashes_a: np.ndarray,
    hashes_b: np.ndarray,
    with_frames: bool = True,
  ):
    self._a, self._b = a, b
    self._hashes = hashes_a, hashes_b
    self.partner = np.full(a.transitions, -1, np.int32)
    self.partner_of_b = np.full(b.transitions, -1, np.int32)
    if with_frames:
      for once in (True, False):
        self._pair_equal((None, hashes_a), (None, hashes_b), once)
        self._follow(equal=True)
    else:
      self._pair_sequences(hashes_a.copy(), hashes_b.copy(), equal=True)
      self._join_pieces()
    self._follow(equal=False)
    # Then a whole column may differ, e.g. images of another size or other actions.
    for column in ('frame', 'action')[not with_frames :]:
      if self._is_incomplete:
        self._pair_sequences(a.column(column), b.column(column), equal=False)
    self._part_unrelated(with_frames)

  @property
  def _is_incomplete(self) -> bool:
    return bool((self.partner < 0).any() and (self.partner_of_b < 0).any())

  def is_equal(self) -> np.ndarray:
    """Returns whether each transition of `a` has an equal partner: bool."""
    hashes_a, hashes_b = self._hashes
    if not len(hashes_b):
      return self.partner >= 0
    return (self.partner >= 0) & (hashes_b[self.partner] == hashes_a)

  def _add(self, i: np.ndarray, j: np.ndarray) -> None:
    """Adds pairs. If several have the same transition, the last one counts."""
    self.partner_of_b[j] = i
    last = self.partner_of_b[j] == i
    i, j = i[last], j[last]
    self.partner[i] = j
    self.partner_of_b[j[self.partner[i] != j]] = -1

  def _pair_equal(self, in_a: _Keys, in_b: _Keys, once: bool) -> None:
    """Pairs transitions with equal keys, the n-th without a partner in each copy.

    Args:
      in_a: Keys of `a`.
      in_b: Keys of `b`.
      once: Whether to use only keys that occur once in each copy.
    """
    # Sorting takes memory, so a part of the keys is sorted at a time.
    parts = 1 if len(in_a[1]) < hashed_rows.CHUNK_ROWS else 16
    for part in range(parts):
      chosen = []
      for (counts, keys), partner in (
        (in_a, self.partner),
        (in_b, self.partner_of_b),
      ):
        low_byte = keys.astype('<u8', copy=False).view(np.uint8)[::8]
        wanted = low_byte % parts == part
        wanted &= partner < 0
        if counts is not None:
          wanted &= counts
        index = np.flatnonzero(wanted)
        chosen.append((index, keys[index]))
      (i, keys_a), (j, keys_b) = chosen
      at_i, at_j = _equal_keys(keys_a, keys_b, once)
      self._add(i[at_i], j[at_j])

  def _pair_sequences(
    self, keys_a: np.ndarray, keys_b: np.ndarray, equal: bool
  ) -> None:
    """Pairs transitions at which equal sequences of keys begin.

    Args:
      keys_a: Key of each transition of `a`; changed.
      keys_b: Key of each transition of `b`; changed.
      equal: Whether to pair equal transitions beside them only.
    """
    sequences = []
    for rows, keys in ((self._a, keys_a), (self._b, keys_b)):
      rows.hash_sequences(keys, _LENGTH)
      # A short sequence tells nothing, unless it is a whole episode.
      sequences.append((rows.begins_sequence(_LENGTH), keys))
    for once in (True, False):
      self._pair_equal(sequences[0], sequences[1], once)
      self._follow(equal)

  def _join_pieces(self) -> None:
    """Pairs a short piece of an episode by the other piece, its neighbour.

    The transition between two pieces is missing where the episode was divided.
    """
    for rows, partner, other in (
      (self._a, self.partner, self.partner_of_b),
      (self._b, self.partner_of_b, self.partner),
    ):
      cut = np.flatnonzero(~rows.terminated[:-1])
      before, after = rows.starts[cut + 1] - 1, rows.starts[cut + 1]
      for known, wanted, step in ((before, after, 2), (after, before, -2)):
        valid = (known >= 0) & (known < len(partner))
        valid &= (wanted >= 0) & (wanted < len(partner))
        known, wanted = known[valid], wanted[valid]
        target = partner[known].astype(np.int64) + step
        valid = (partner[known] >= 0) & (partner[wanted] < 0)
        valid &= (target >= 0) & (target < len(other))
        wanted, target = wanted[valid], target[valid]
        valid = other[target] < 0
        pair = wanted[valid], target[valid]
        i, j = pair if rows is self._a else pair[::-1]
        equal = self._hashes[0][i] == self._hashes[1][j]
        self._add(i[equal], j[equal])
    self._follow(equal=True)

  def _follow(self, equal: bool) -> None:
    """Pairs the transitions beside pairs, in the same episodes.

    Args:
      equal: Whether to pair equal transitions only.
    """
    for step in (1, -1):
      paired = np.flatnonzero(self.partner >= 0).astype(np.int32)
      free = np.flatnonzero(self.partner < 0).astype(np.int32)
      if not len(paired):
        return
      for start in range(0, len(free), hashed_rows.CHUNK_ROWS):
        chunk = free[start : start + hashed_rows.CHUNK_ROWS].astype(np.int64)
        self._follow_pairs(chunk, paired, step, equal)

  def _follow_pairs(
    self, i: np.ndarray, paired: np.ndarray, step: int, equal: bool
  ) -> None:
    """Pairs transitions of `a` by the nearest pair before (1) or after (-1) each."""
    near = np.searchsorted(paired, i) - (step > 0)
    exists = (near >= 0) & (near < len(paired))
    i, near = i[exists], paired[near[exists]]
    near_j = self.partner[near]
    j = near_j + i - near
    valid = (j >= 0) & (j < len(self.partner_of_b))
    i, j, near, near_j = i[valid], j[valid], near[valid], near_j[valid]
    valid = self.partner_of_b[j] < 0
    if equal:
      valid &= self._hashes[0][i] == self._hashes[1][j]
    valid &= self._a.episode_of(i) == self._a.episode_of(near)
    valid &= self._b.episode_of(j) == self._b.episode_of(near_j)
    self._add(i[valid], j[valid])

  def _part_unrelated(self, with_frames: bool) -> None:
    """Undoes pairs of episodes that have some rows in common, such as their start.

    In most pairs of other episodes, the frame or the action is the same.
    """
    a, b = self._a, self._b
    alike = np.zeros(a.episodes, np.int64)
    chunks = range(0, len(self.partner), hashed_rows.CHUNK_ROWS)

    def pairs(start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
      chunk = self.partner[start : start + hashed_rows.CHUNK_ROWS]
      i = start + np.flatnonzero(chunk >= 0)
      return i, self.partner[i], a.episode_of(i)

    for start in chunks:
      i, j, episode = pairs(start)
      row_a, row_b = a.row_of(i), b.row_of(j)
      same = a.action[row_a] == b.action[row_b]
      if with_frames:
        same |= a.frame[row_a] == b.frame[row_b]
      alike += np.bincount(episode, np.where(same, 1, -1), a.episodes).astype(
        np.int64
      )
    for start in chunks if (alike < 0).any() else ():
      i, j, episode = pairs(start)
      undone = alike[episode] < 0
      undone &= self._hashes[0][i] != self._hashes[1][j]
      self.partner[i[undone]] = -1
      self.partner_of_b[j[undone]] = -1


def _equal_keys(
  a: np.ndarray, b: np.ndarray, once: bool = False
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the positions of equal keys: the n-th in `a` and the n-th in `b`.

  Args:
    a: Keys, (n,).
    b: Keys, (m,).
    once: Whether to use only keys that occur once in each array.
  """
  order_a, a = _sort(a, once)
  order_b, b = _sort(b, once)
  at = np.searchsorted(b, a)
  if not once:
    at += np.arange(len(a)) - np.searchsorted(a, a)
  found = np.flatnonzero(at < len(b))
  found = found[b[at[found]] == a[found]]
  return order_a[found], order_b[at[found]]


def _sort(keys: np.ndarray, once: bool) -> tuple[np.ndarray, np.ndarray]:
  """Returns the order of keys, and the keys in that order.

  Args:
    keys: Keys, (n,).
    once: Whether to leave out keys that occur several times.
  """
  order = np.argsort(keys, kind='stable')
  keys = keys[order]
  if once:
    differs = np.ones(len(keys) + 1, bool)
    differs[1:-1] = keys[1:] != keys[:-1]
    single = differs[1:] & differs[:-1]
    order, keys = order[single], keys[single]
  return order, keys
