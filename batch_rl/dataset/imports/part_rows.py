"""The rows of a part of an imported dataset, in the order of the log."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from batch_rl.dataset.imports import episode_import, png_frames
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import packed_columns, packed_shard

# Rows that a thread decodes and compresses at a time.
_ROWS_PER_TASK = 8 * packed_shard.BLOCK_ROWS
# Frames of an episode, and the number of one; None for padding.
Frame = tuple[png_frames.PngFrames, int] | None


class PartRows:
  """The rows of the episodes of a part, in the order of the log.

  Args:
    reader: Reader of the dataset.
    part: Part to read.
    last_step: Arguments of `StoredEpisode.rows_kept`.
  """

  def __init__(
    self,
    reader: episode_import.EpisodeReader,
    part: episode_import.Part,
    last_step: tuple[str, bool, bool],
  ):
    self._reader, self._part, self._last_step = reader, part, last_step
    self._rows = self._skipped = 0
    self._doubts: dict[str, list[int]] = {}  # numbers of episodes
    # Checkpoint, and the indices of the first and the last episode in it.
    self._indices: list[int] = []
    self._unclipped = False
    # One of each for an episode, padding included.
    self._actions: list[np.ndarray] = []
    self._rewards: list[np.ndarray] = []
    self._terminals: list[np.ndarray] = []
    self._truncated: list[int] = []
    # [last row, return, unclipped return, agent steps] of each episode.
    self._episodes: list[list] = []

  def tasks(
    self, progress: Callable[[int], None]
  ) -> Iterator[tuple[Callable[[], np.ndarray], int]]:
    """Yields functions that decode the frames of consecutive rows.

    Args:
      progress: Callback with the bytes read since the last call.

    Yields:
      The function, which returns (n, 84, 84), and the size of its result in bytes. n
      is `_ROWS_PER_TASK`, except in the last one.
    """
    rows = self._frames(progress)
    while task := list(itertools.islice(rows, _ROWS_PER_TASK)):
      size = len(task) * math.prod(png_frames.FRAME_SHAPE)
      yield functools.partial(decode, task), size

  def _frames(self, progress: Callable[[int], None]) -> Iterator[Frame]:
    """Adds the episodes of the part, and yields the frame of each row."""
    position = 0
    for episode in self._reader.read(self._part):
      padding, steps = self._add(episode)
      yield from itertools.repeat(None, padding)
      for number in range(steps):
        yield cast(png_frames.PngFrames, episode.frames), number
      progress(episode.position - position)
      position = episode.position
    progress(self._part.size - position)

  def _add(self, episode: episode_import.StoredEpisode) -> tuple[int, int]:
    """Adds an episode; returns its numbers of padding rows and of steps."""
    number = len(self._episodes) + self._skipped
    for doubt in episode.doubts:
      self._doubts.setdefault(doubt, []).append(number)
    if episode.index:
      self._indices = [*(self._indices or episode.index)[:2], episode.index[1]]
    steps = episode.rows_kept(*self._last_step)
    if not steps:
      self._skipped += 1
      return 0, 0
    padding = manifests.PADDING if episode.begins_at_reset else 0
    reward, unclipped = episode.reward[:steps], episode.unclipped[:steps]
    self._actions.append(np.pad(episode.action[:steps], (padding, 0)))
    self._rewards.append(np.pad(reward, (padding, 0)))
    self._terminals.append(np.arange(padding + steps) == padding + steps - 1)
    self._rows += padding + steps
    if not episode.terminal:
      self._truncated.append(self._rows - 1)
    self._unclipped |= bool(np.abs(unclipped).max() > 1)
    returns = (float(r.sum(dtype=np.float64)) for r in (reward, unclipped))
    self._episodes.append([self._rows - 1, *returns, steps])
    return padding, steps

  def columns(self) -> packed_columns.Columns:
    """Returns the small columns, once all rows were decoded.

    Raises:
      ValueError: If there are no transitions.
    """
    if not self._rows:
      raise ValueError(
        f'{self._part.name} in {self._reader.directory} has no transitions.'
      )
    columns = packed_columns.Columns(
      self._part.number,
      self._rows,
      self._rows,
      np.concatenate(self._actions),
      np.concatenate(self._rewards),
      np.concatenate(self._terminals),
      png_frames.FRAME_SHAPE,
      np.dtype(np.uint8),
      self._reader.files_of(self._part),
      truncated=tuple(self._truncated),
    )
    return packed_columns.compacted(columns)

  def entry(self, sources: Mapping[str, Mapping]) -> dict[str, Any]:
    """Returns the shard's entry of the manifest."""
    described = manifests.describe_shard_episodes(self._episodes)
    if not self._unclipped:  # Rewards were clipped before they were stored.
      for name in ('unclipped_return', 'unclipped_returns'):
        described.pop(name)
    return {
      'suffix': self._part.number,
      'rows': self._rows,
      'episodes': described,
      'truncated': len(self._truncated),
      'skipped': self._skipped,
      'doubts': self._doubts,
      'indices': self._indices,
      'files': {
        name: {key: source[key] for key in ('bytes', 'sha256')}
        for name, source in sources.items()
      },
    }


def decode(task: Sequence[Frame]) -> np.ndarray:
  """Returns the frames of rows, uint8 (n, 84, 84); zeros for padding."""
  out = np.zeros((len(task), *png_frames.FRAME_SHAPE), np.uint8)
  for row, frame in zip(out, task, strict=True):
    if frame is not None:
      frames, number = frame
      row[:] = frames[number]
  return out
