"""Rows of a run with hashes in place of frames, by which copies of a run are compared.

Definitions:

- A *row* is a frame o_t, an action a_t, a reward r_t and whether it is terminal. Padding
  at the start of an episode does not count. Rewards of Atari are clipped to [-1, 1].
- A *transition* is a row that is terminal, or whose next frame o_{t+1} is known. The last
  row of an episode that was truncated, or cut at the end of a file, is not one: its frame
  counts, as the next frame of the transition before, but its action and reward do
  not.
- The *hash of a frame* is the XXH64, with seed 0, of its bytes.
- The *hash of a transition* is the XXH64 of 32 bytes, little-endian: hash of o_t (64
  bits), a_t (int32), r_t (float32), terminal (64 bits, 0 or 1), hash of o_{t+1} (64 bits;
  0 if terminal).
- The *sum* of transitions is the sum of their hashes modulo 2^64. It depends neither on
  their order nor on how they are divided into episodes, files or shards.

A next frame links each transition to the following one. So two copies with equal sums
have the same trajectories, too, except with a probability of about 2^-64.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from batch_rl.utils import row_hashes

# Rows hashed at a time.
_CHUNK_ROWS = 1 << 20
_FIELDS = ('frame', 'action', 'reward', 'terminal', 'next_frame')
_KINDS = ('<u8', '<i4', '<f4', '<u8', '<u8')
_TRANSITION = np.dtype([*zip(_FIELDS, _KINDS, strict=True)])


@dataclasses.dataclass
class HashedRows:
  """The stored rows of a copy, padding included: 11 to 17 B each.

  Attributes:
    frame: Hash of each frame, uint64 (rows,); zeros if frames were not read.
    action: Actions, integers (rows,).
    reward: Rewards, clipped in Atari, (rows,).
    terminal: Whether a row is terminal, bool (rows,).
    begin: First row of each episode, without padding, ascending: int64 (episodes,).
    stop: Row after the last of each episode, int64 (episodes,).
    parts: `(first, stop)` rows of each shard, by shard number.
    rows: Number of rows, without padding.
    transitions: Number of transitions.
    episodes: Number of episodes, or pieces of episodes.
  """

  frame: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  begin: np.ndarray
  stop: np.ndarray
  parts: Mapping[int, tuple[int, int]]

  def __post_init__(self):
    has_rows = self.begin < self.stop
    self.begin, self.stop = self.begin[has_rows], self.stop[has_rows]
    self.terminated = self.terminal[self.stop - 1]
    counts = self.stop - self.begin - ~self.terminated
    # Transitions are numbered without gaps: episode e has [starts[e], starts[e + 1]).
    self.starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    self.rows = int((self.stop - self.begin).sum())
    self.transitions = int(self.starts[-1])
    self.episodes = len(self.begin)

  def _episode_of(self, transitions: np.ndarray) -> np.ndarray:
    return np.searchsorted(self.starts[1:], transitions, side='right')

  def row_of(self, transitions: np.ndarray) -> np.ndarray:
    """Returns the rows of transitions: int64 (n,)."""
    episode = self._episode_of(transitions)
    return self.begin[episode] + transitions - self.starts[episode]

  def episode(self, number: int) -> dict[str, np.ndarray]:
    """Returns the columns of an episode.

    The last row of an unfinished episode has only a frame.
    """
    begin, stop = self.begin[number], self.stop[number]
    end = begin + self.starts[number + 1] - self.starts[number]
    columns = {'frame': self.frame[begin:stop]}
    for name in ('action', 'reward', 'terminal'):
      columns[name] = getattr(self, name)[begin:end]
    return columns

  def hashes(self, with_frames: bool = True) -> np.ndarray:
    """Returns the hash of each transition, uint64 (transitions,).

    Args:
      with_frames: Whether the hashes depend on the frames. If not, the step in the
        episode takes the place of the frame.
    """
    out = np.empty(self.transitions, np.uint64)
    for start in range(0, self.transitions, _CHUNK_ROWS):
      index = np.arange(start, min(start + _CHUNK_ROWS, self.transitions))
      rows = self.row_of(index)
      records = np.zeros(len(rows), _TRANSITION)
      records['action'] = self.action[rows]
      # Negative zero is zero.
      records['reward'] = self.reward[rows] + np.float32(0)
      records['terminal'] = self.terminal[rows]
      if with_frames:
        records['frame'] = self.frame[rows]
        goes_on = ~self.terminal[rows]
        records['next_frame'][goes_on] = self.frame[rows[goes_on] + 1]
      else:
        records['frame'] = index - self.starts[self._episode_of(index)]
      out[index] = row_hashes.hash_rows(records)
    return out

  def episode_hashes(self, with_frames: bool = True) -> dict[int, int]:
    """Returns the sum of the hashes of each episode with transitions.

    Args:
      with_frames: Whether the hashes depend on the frames.
    """
    episodes = np.flatnonzero(np.diff(self.starts))
    sums = np.add.reduceat(self.hashes(with_frames), self.starts[episodes])
    return dict(zip(episodes.tolist(), sums.tolist(), strict=True))
