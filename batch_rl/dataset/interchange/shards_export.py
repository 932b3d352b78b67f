"""Exports a run as shards in the layout of the DQN Replay Dataset.

All transitions are kept. An episode that a missing shard cuts is truncated there, and the
part after the gap starts without padding rows, unless it has all of the episode's steps.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from batch_rl.dataset.interchange import episode_export
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import manifests, replay_log, shard_files

# A shard takes its full length on disk and in memory, however few rows it holds.
_MOST_ROWS, _LEAST_ROWS = 1_000_000, 1_000


@contextlib.contextmanager
def open_writer(
  reader: episodes.Reader, directory: str
) -> Iterator[episode_export.Writer]:
  """Opens a log for the episodes; see `episode_export.OpenWriter`."""
  logs = os.path.join(directory, shard_files.REPLAY_LOGS)
  numbers = itertools.count(1)
  has_unclipped = True

  def write(episode: episodes.Episode) -> int:
    nonlocal has_unclipped
    steps, unclipped = len(episode.action), episode.unclipped_return
    # Only the last episode of the run may stop without an end.
    goes_on = next(numbers) == reader.count and not episode.truncated
    truncated = not episode.ended and not goes_on
    if episode.ended or truncated:
      has_unclipped &= unclipped is not None
    for i in range(steps):
      is_last = i == steps - 1
      log.add(
        episode.observation[i],
        episode.action[i],
        episode.reward[i],
        is_last and episode.ended,
        is_last and truncated,
        padded=episode.begins_at_reset,
        # The manifest has the sums of episodes only.
        unclipped_reward=is_last * (unclipped or 0.0),
      )
    return steps

  with replay_log.ReplayLog(
    logs,
    reader.frame_shape,
    reader.frame_dtype,
    _shard_rows(reader),
    reader.padding + 1,
    metadata=_metadata(reader),
  ) as log:
    yield write, {'format': 'shards'}
  if not has_unclipped:
    manifest = manifests.read(logs)
    for entry in (manifest, *manifest['shards']):
      for name in ('unclipped_return', 'unclipped_returns'):
        entry['episodes'].pop(name, None)
    manifests.write(logs, manifest)


def _shard_rows(reader: episodes.Reader) -> int:
  """Returns the rows of a shard: those of the run's shards, or fewer for all rows."""
  rows = reader.rows + reader.padding * reader.count + 1
  key = 'format', 'shard_capacity'
  logged = manifests.look_up(reader.manifest, *key, kind=int)
  return min(logged or _MOST_ROWS, max(rows, _LEAST_ROWS))


def _metadata(reader: episodes.Reader) -> dict[str, Any]:
  """Returns the manifest's entries about the run, and about the export."""
  manifest = reader.manifest
  others = {*manifests.OF_THE_LOG, 'run_id', 'origin'}
  return {
    **{key: manifest[key] for key in manifest if key not in others},
    'environment': episode_export.environment_of(reader),
    'exported_from': {'directory': reader.run.directory, 'hash': reader.hash},
  }
