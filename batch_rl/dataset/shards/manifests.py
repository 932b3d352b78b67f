"""The manifest of a run: `manifest.json`, written beside its shards."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files, json_schema

FILE_NAME = 'manifest.json'
# Key of the rows at which an episode was truncated rather than terminated.
TRUNCATED_ROWS = 'truncated_rows'
# Padding rows of an episode in the DQN Replay Dataset, which has no manifests.
PADDING = 3

_COUNT = range(2**53)
_STATISTICS = {'mean': float, 'min': float, 'max': float}
# What is described of episodes.
_DESCRIBED = 'return', 'unclipped_return', 'agent_steps'
_EPISODES = {'count': _COUNT, **dict.fromkeys(_DESCRIBED, _STATISTICS)}
# Description of an environment, here and in the record of a run.
ENVIRONMENT_SCHEMA = {
  'game': str,
  'num_actions': range(2**31),
  'frame_skip': range(2**31),
  'max_num_frames_per_episode': range(2**53),
  'repeat_action_probability': float,
}
# The entries that this package reads; see `json_schema`.
SCHEMA = {
  'agent': str,
  'environment': ENVIRONMENT_SCHEMA,
  'rows': _COUNT,
  'safe_rows': _COUNT,
  'episodes': _EPISODES,
  'format': {
    'shard_capacity': _COUNT,
    'stack_size': range(2**16),
    'columns': {str: list},
  },
  'shards': [
    {
      'suffix': range(2**31),
      'first_row': _COUNT,
      'rows': _COUNT,
      'episodes': {**_EPISODES, 'unclipped_returns': [float]},
      'files': {str: {'bytes': _COUNT, 'sha256': str}},
      'doubts': {str: [_COUNT]},
      'indices': [int],
    }
  ],
  TRUNCATED_ROWS: [_COUNT],
}

# Advice for a damaged manifest.
REMEDY = 'restore it: without it, truncated episodes would seem to have ended'
_VERSION = 1
FILE_SCHEMA = {'manifest_version': json_schema.Required(_COUNT), **SCHEMA}
# The entries that a log writes itself.
OF_THE_LOG = {*FILE_SCHEMA, 'hash'} - {'agent', 'environment'}
# The entries that describe the whole run, not single shards.
RUN_TOTALS = ('rows', 'safe_rows', 'episodes')


def read(data_dir: str) -> dict[str, Any]:
  """Returns the manifest in a directory; empty if there is none.

  Args:
    data_dir: Directory of the shards, or a store; local or remote.

  Raises:
    ValueError: If the manifest cannot be read, or is damaged.
  """
  path = os.path.join(data_dir, FILE_NAME)
  manifest = files.read_json(path, FILE_SCHEMA, REMEDY)
  return {} if manifest is None else check_hash(path, manifest)


def check_hash(path: str, manifest: dict[str, Any]) -> dict[str, Any]:
  """Returns a manifest without its hash, which earlier versions did not write.

  Args:
    path: Path of the manifest, for the message.
    manifest: Parsed manifest.

  Raises:
    ValueError: If the hash differs from that of the other entries, or the manifest is
      of another version.
  """
  if (version := manifest['manifest_version']) != _VERSION:
    raise ValueError(
      f'{path} has version {version}, this package reads {_VERSION}: install a later '
      'batch_rl.'
    )
  if 'hash' in manifest and manifest != files.with_hash(manifest):
    raise ValueError(
      f'{path} is damaged: it differs from its hash; restore it, or remove its entry '
      '"hash" if you have edited it.'
    )
  return {key: value for key, value in manifest.items() if key != 'hash'}


def write(data_dir: str, manifest: dict[str, Any]) -> None:
  """Writes the manifest of a local directory, with its hash."""
  files.write_json(os.path.join(data_dir, FILE_NAME), files.with_hash(manifest))


def check_checkpoint(
  data_dir: str, metadata: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
  """Checks that a directory holds the log of a checkpoint.

  Args:
    data_dir: Directory of the log.
    metadata: Metadata of the log that restores the checkpoint.
    state: Result of `ReplayLog.checkpoint`. Earlier versions did not write `run_id`.

  Raises:
    ValueError: If the manifest or the checkpoint is of another run, or the finished
      shards of the checkpoint are not those of the manifest.
  """
  manifest = read(data_dir)
  finished = [shard.get('files') for shard in state.get('shards') or []]
  listed = [shard.get('files') for shard in manifest.get('shards') or []]
  run_id, found = metadata.get('run_id'), manifest.get('run_id')
  saved = state.get('run_id', run_id)
  reason = ''
  if not run_id == saved == found:
    reason = (
      f'the run has run_id={run_id!r}, the checkpoint is of run_id={saved!r}, the '
      f'manifest of run_id={found!r}'
    )
  elif finished != listed[: len(finished)]:
    reason = 'the shards of its manifest are not those of the checkpoint'
  if reason:
    raise ValueError(
      f'{data_dir} does not hold the log of the checkpoint: {reason}; restore a '
      'checkpoint in the directory that it was made in.'
    )


def look_up(content: Any, *keys: str, kind: Any) -> Any:
  """Returns a nested entry of a JSON object.

  Args:
    content: Parsed JSON.
    *keys: Keys from the outermost object to the entry.
    kind: Expected type of the entry.

  Returns:
    The entry, or None if it is missing or of another type.
  """
  for key in keys:
    content = content.get(key) if isinstance(content, dict) else None
  return content if isinstance(content, kind) else None


def file_records(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Returns a manifest's records of shard files, `{name: {'bytes', 'sha256'}}`."""
  return {
    name: record
    for entry in manifest.get('shards') or []
    for name, record in (entry.get('files') or {}).items()
    if record is not None and shard_files.suffix_of(name) is not None
  }


def check_files(
  data_dir: str,
  recorded: Mapping[str, Mapping[str, Any]],
  found: Mapping[str, Mapping[str, Any]],
) -> None:
  """Compares files of a shard with those of the manifest.

  Args:
    data_dir: Directory of the shards, or their store.
    recorded: Result of `file_records`.
    found: Files by name, with `sha256`.

  Raises:
    ValueError: If a file is another one.
  """
  for name, file in found.items():
    expected = look_up(recorded, name, 'sha256', kind=str)
    if expected not in (None, file['sha256']):
      raise ValueError(
        f'{os.path.join(data_dir, name)} is not the file that manifest.json describes: '
        f'its sha256 is {file["sha256"][:12]}..., not {expected[:12]}.... Restore the '
        'wrong one, or remove the entry in manifest.json if you have changed the file on '
        'purpose.'
      )


def padding(manifest: Any) -> int | None:
  """Returns the number of padding rows at the start of each episode.

  Args:
    manifest: Manifest of a run.

  Returns:
    The logger's `stack_size - 1`; None if the manifest lacks it.
  """
  stack_size = look_up(manifest, 'format', 'stack_size', kind=int)
  return None if stack_size is None else max(stack_size - 1, 0)


def atari_if_known(manifest: Any) -> bool | None:
  """Returns whether a run is of an Atari game; None if its manifest does not tell.

  Args:
    manifest: Manifest of a run.
  """
  # Every log has a format, and those of the ALE its sticky actions.
  key = 'repeat_action_probability'
  if look_up(manifest, 'environment', key, kind=(int, float)) is not None:
    return True
  return None if look_up(manifest, 'format', kind=dict) is None else False


def describe_episodes(episodes: list[list]) -> dict[str, Any]:
  """Returns the number of episodes, and statistics of their returns and lengths.

  Args:
    episodes: `[last row, return, unclipped return, agent steps]` of each.
  """
  statistics: dict[str, Any] = {'count': len(episodes)}
  if episodes:
    columns = zip(_DESCRIBED, np.array(episodes)[:, 1:].T, strict=True)
    statistics |= {name: describe_values(values) for name, values in columns}
  return statistics


def combine_episodes(described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the `describe_episodes` of a run from those of its parts.

  A value that one part lacks is left out.
  """
  found = [part for part in described if part['count']]
  total = sum(part['count'] for part in found)
  combined: dict[str, Any] = {'count': total}
  for name in _DESCRIBED:
    if found and all(name in part for part in found):
      combined[name] = {
        'mean': sum(p['count'] * p[name]['mean'] for p in found) / total,
        'min': min(p[name]['min'] for p in found),
        'max': max(p[name]['max'] for p in found),
      }
  return combined


def describe_values(values: np.ndarray) -> dict[str, float]:
  """Returns the mean, the smallest and the largest of at least one value."""
  return {name: float(getattr(values, name)()) for name in _STATISTICS}


def describe_shard_episodes(episodes: list[list]) -> dict[str, Any]:
  """Returns the statistics, and the unclipped return of each episode.

  Args:
    episodes: Arguments of `describe_episodes`, of those that end in a shard.
  """
  unclipped = [unclipped for _, _, unclipped, _ in episodes]
  return {**describe_episodes(episodes), 'unclipped_returns': unclipped}


def describe_file(path: str) -> dict[str, Any]:
  """Returns the size in bytes and the SHA-256 of a file."""
  return {'bytes': os.path.getsize(path), 'sha256': files.sha256(path)}
