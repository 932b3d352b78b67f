"""A reader of episodes in memory."""

import hashlib

import numpy as np

from batch_rl.dataset.imports import episode_import, png_frames
from batch_rl.tests import interchange_runs as runs


class ListReader(episode_import.EpisodeReader):
  """Reads episodes `(observation, action, reward)` from memory.

  Args:
    parts: Episodes of each part, by the part's number.
    kinds: Kind of some episodes, by part and place in it: 'truncated', or 'late'
      (its beginning is missing).

  Attributes:
    reads: Names of the parts that were read.
  """

  directory = 'list'
  name = 'list'
  game = 'Pong'
  run = '1'
  manifest = {
    'agent': 'dqn',
    'environment': runs.ENVIRONMENT,
    'source': {'format': 'list', 'order': 'time'},
  }
  last_step = 'transition'

  def __init__(self, parts, kinds=None):
    self.parts = [
      episode_import.Part(number, f'part {number}', len(episodes))
      for number, episodes in parts.items()
    ]
    self.episodes = parts
    self.kinds = kinds or {}
    self.reads = []

  def read(self, part, frames=True):
    """See the base class."""
    self.reads.append(part.name)
    for i, episode in enumerate(self.episodes[part.number]):
      name, (observation, action, reward) = (
        f'episode {i} of {part.name}',
        episode,
      )
      kind = self.kinds.get((part.number, i))
      yield episode_import.StoredEpisode(
        name,
        kind != 'late',
        kind != 'truncated',
        action.astype(np.int32),
        np.clip(reward, -1, 1),
        reward,
        None,
        encode(name, observation) if frames else None,
        i + 1,
      )

  def files_of(self, part):
    """See the base class."""
    content = b''.join(
      c.tobytes() for e in self.episodes[part.number] for c in e
    )
    digest = hashlib.sha256(content).hexdigest()
    return {part.name: {'bytes': part.size, 'mtime_ns': 0, 'sha256': digest}}


def encode(name, observation):
  """Returns frames, uint8 (n, 84, 84), encoded."""
  images = [png_frames.encode_png(frame) for frame in observation]
  return png_frames.PngFrames(name, images)
