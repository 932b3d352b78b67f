"""Names of a shard's files, and listings of the shards in a directory.

Shard `N` has one gzipped `.npy` for each column, `$store$_<column>_ckpt.N.gz`
(the dollar signs are literal), and two for the state of its ring,
`add_count_ckpt.N.gz` and `invalid_range_ckpt.N.gz`.
"""

import collections
import os
import re

from absl import logging

from batch_rl.utils import files

# Folder of a run's shards, `<root>/<Game>/<run>/replay_logs`.
REPLAY_LOGS = 'replay_logs'
# Dopamine may write this file too; only an import reads it.
OPTIONAL = 'episode_end_indices'
# Folder of the files of an unfinished shard.
PARTIAL = 'partial'
# Remark about a directory with that folder.
UNFINISHED = (
  f'has a folder `{PARTIAL}`: the run is under way or was stopped, and its last rows '
  'are not in a shard yet'
)
COLUMNS = ('observation', 'action', 'reward', 'terminal')
# `add_count` is written last: a shard with it is complete (see `ShardWriter`).
FILES = (*COLUMNS, 'invalid_range', 'add_count')
_FILE_PATTERN = re.compile(r'(?P<name>.+)_ckpt\.(?P<suffix>[0-9]{1,9})\.gz')


def file_name(name: str, suffix: int) -> str:
  """Returns a shard's file name for a column or a counter."""
  prefix = '$store$_' if name in COLUMNS else ''
  return f'{prefix}{name}_ckpt.{suffix}.gz'


def path(directory: str, name: str, suffix: int) -> str:
  """Returns the path of a shard's file for a column or a counter."""
  return os.path.join(directory, file_name(name, suffix))


def suffix_of(name: str) -> int | None:
  """Returns the shard number in a file name; None for other files."""
  match = _FILE_PATTERN.fullmatch(name)
  return int(match['suffix']) if match else None


def column_of(path: str) -> str:
  """Returns the column or counter in the path of a shard's file; '' for others."""
  match = _FILE_PATTERN.fullmatch(os.path.basename(path))
  return match['name'].removeprefix('$store$_') if match else ''


def check_game(name: str) -> None:
  """Raises a ValueError if a game cannot be the name of a folder."""
  if name in ('', '.', '..') or not name.isprintable() or '/' in name:
    raise ValueError(
      f"{name!r} cannot be the name of a game's folder, such as Pong"
    )
  if len(name.encode(errors='replace')) > 255:
    raise ValueError(f'the name of the game is too long: {name[:20]}...')


def missing_files(data_dir: str) -> dict[int, list[str]]:
  """Returns the names of the files that each shard lacks, ascending by shard.

  Args:
    data_dir: Directory of the shards.

  Raises:
    ValueError: If the directory cannot be listed.
  """
  files.check_local(data_dir, 'fetch it first')
  present = collections.defaultdict(set)
  for name in files.list_directory(data_dir):
    if (suffix := suffix_of(name)) is not None:
      present[suffix].add(name)
  return {
    suffix: sorted({file_name(name, suffix) for name in FILES} - names)
    for suffix, names in sorted(present.items())
  }


def list_suffixes(data_dir: str, skip_incomplete: bool = False) -> list[int]:
  """Returns the shard numbers in a directory, ascending.

  Args:
    data_dir: Directory of the shards.
    skip_incomplete: Whether to skip shards without all files, with a warning,
      rather than fail.

  Raises:
    ValueError: If the directory cannot be listed or has no shard (the message names
      the likely cause), or a file is missing.
  """
  shards = missing_files(data_dir)
  if not shards:
    names = files.list_directory(data_dir)
    if REPLAY_LOGS in names:
      cause = f'try its {REPLAY_LOGS} folder: {data_dir}/{REPLAY_LOGS}'
    elif PARTIAL in names:
      cause = f'the log is not closed, its rows are still in `{PARTIAL}`'
    else:
      cause = 'a shard has files such as $store$_observation_ckpt.0.gz'
    listing = files.format_names(names)
    raise ValueError(f'No shards in {data_dir} (found: {listing}): {cause}.')
  for suffix, missing in shards.items():
    if missing:
      message = (
        f'Shard {suffix} in {data_dir} is incomplete: missing '
        f'{", ".join(missing)}.'
      )
      if not skip_incomplete:
        raise ValueError(message)
      logging.warning('%s It is not used.', message)
  usable = [suffix for suffix, missing in shards.items() if not missing]
  if not usable:
    raise ValueError(f'Every shard in {data_dir} is incomplete.')
  return usable
