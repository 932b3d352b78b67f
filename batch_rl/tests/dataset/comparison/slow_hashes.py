"""XXH64 and the hashes of transitions, transcribed from their descriptions."""

import struct

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
  11400714785074694791,
  14029467366897019727,
  1609587929392839161,
  9650029242287828579,
  2870177450012600261,
)


def _rotate(x, bits):
  return (x << bits | x >> (64 - bits)) & _MASK


def _round(accumulator, lane):
  return _rotate((accumulator + lane * _P2) & _MASK, 31) * _P1 & _MASK


def slow_xxh64(content):
  """Returns the XXH64 of bytes, with seed 0."""
  size, at = len(content), 0
  if size >= 32:
    state = [_P1 + _P2 & _MASK, _P2, 0, -_P1 & _MASK]
    while at + 32 <= size:
      lanes = struct.unpack_from('<4Q', content, at)
      state = [_round(s, lane) for s, lane in zip(state, lanes, strict=True)]
      at += 32
    x = sum(map(_rotate, state, (1, 7, 12, 18))) & _MASK
    for s in state:
      x = ((x ^ _round(0, s)) * _P1 + _P4) & _MASK
  else:
    x = _P5
  x = (x + size) & _MASK
  while at + 8 <= size:
    (lane,) = struct.unpack_from('<Q', content, at)
    x = (_rotate(x ^ _round(0, lane), 27) * _P1 + _P4) & _MASK
    at += 8
  if at + 4 <= size:
    (lane,) = struct.unpack_from('<I', content, at)
    x = (_rotate(x ^ (lane * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
    at += 4
  for byte in content[at:]:
    x = _rotate(x ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
  x = (x ^ x >> 33) * _P2 & _MASK
  x = (x ^ x >> 29) * _P3 & _MASK
  return x ^ x >> 32


def transition_hashes(episodes):
  """Returns the hashes of the transitions of `small_copies.Episode`s, in order."""
  hashes = []
  for episode in episodes:
    frames = [slow_xxh64(struct.pack('<I', number)) for number in episode.frame]
    n = len(frames)
    for i in range(n if episode.terminated else n - 1):
      terminal = episode.terminated and i == n - 1
      after = 0 if terminal else frames[i + 1]
      action, reward = episode.action[i], episode.reward[i]
      fields = frames[i], action, reward, terminal, after
      hashes.append(slow_xxh64(struct.pack('<QifQQ', *fields)))
  return hashes
