"""The files of a shard: names and directory listings.

A shard `N` is one gzipped `.npy` for each column, `$store$_<column>_ckpt.N.gz`
(the dollar signs are literal), and two counters, `<counter>_ckpt.N.gz`.
"""

import collections
import logging
import os
import re

from batch_rl.utils import files

OPTIONAL = 'episode_end_indices'  # a file that Dopamine adds, and nobody needs
# The folder in which files grow until they are whole.
PARTIAL = 'partial'
COLUMNS = ('observation', 'action', 'reward', 'terminal')
# `add_count` last: a shard is complete once it exists (see `ShardWriter`).
FILES = (*COLUMNS, 'invalid_range', 'add_count')
_FILE_PATTERN = re.compile(r'(?P<name>.+)_ckpt\.(?P<suffix>\d+)\.gz')


def file_name(name: str, suffix: int) -> str:
  """The name of one file of a shard; `name` is a column or a counter."""
  prefix = '$store$_' if name in COLUMNS else ''
  return f'{prefix}{name}_ckpt.{suffix}.gz'


def suffix_of(name: str) -> int | None:
  """The number of the shard that a file is of; None if it is of no shard."""
  match = _FILE_PATTERN.fullmatch(name)
  return int(match['suffix']) if match else None


def what_of(name: str) -> str:
  """The column or counter that a file of the format is named after."""
  match = _FILE_PATTERN.fullmatch(name)
  return match['name'].removeprefix('$store$_') if match else ''


def list_suffixes(
  data_dir: str, complete: bool = True, skip_incomplete: bool = False
) -> list[int]:
  """The numbers of the shards in a directory, ascending.

  Args:
    data_dir: the directory.
    complete: whether to insist on shards, and on all files of each.
    skip_incomplete: whether to leave out shards that lack a file, with a
      warning, rather than fail.

  Raises:
    ValueError: if the directory does not exist or holds no shard (the message
      lists what was found and the usual causes), or if a shard lacks a file.
  """
  names = files.list_directory(data_dir)
  found = collections.defaultdict(set)
  for name in names:
    if match := _FILE_PATTERN.fullmatch(name):
      found[int(match['suffix'])].add(name)
  if not complete:
    return sorted(found)
  if not found:
    raise ValueError(_explain_no_shards(data_dir, names))
  whole = []
  for suffix, present in sorted(found.items()):
    missing = {file_name(name, suffix) for name in FILES} - present
    if not missing:
      whole.append(suffix)
      continue
    message = (
      f'Shard {suffix} in {data_dir} is incomplete: missing '
      f'{", ".join(sorted(missing))}.'
    )
    if not skip_incomplete:
      raise ValueError(message)
    logging.getLogger('absl').warning('%s It is not used.', message)
  if not whole:
    raise ValueError(f'Every shard in {data_dir} is incomplete.')
  return whole


def _explain_no_shards(data_dir: str, names: list[str]) -> str:
  """Says what is there instead of shards, and which mistake that looks like."""
  if 'replay_logs' in names:
    cause = f'its replay_logs folder may be meant: {data_dir}/replay_logs'
  elif os.path.basename(os.path.normpath(data_dir)) == 'replay_logs':
    cause = (
      'the folder is there but empty of shards; was the download finished?'
    )
  elif names and all(name.isdigit() for name in names):
    cause = f'this is a game, its runs are {", ".join(sorted(names, key=int))}'
  else:
    cause = 'a shard is a set of files like $store$_observation_ckpt.0.gz'
  listing = ', '.join(sorted(names)[:8]) + (', ...' if len(names) > 8 else '')
  return f'No shards in {data_dir} (found: {listing or "nothing"}): {cause}.'


def replay_logs_dir(run_dir: str) -> str:
  """The folder of shards of a run, given as the run's directory.

  Args:
    run_dir: what `--replay_dir` takes, e.g. `$DATA_DIR/Pong/1`.

  Raises:
    ValueError: if there are no shards where they should be; the usual mistakes
      (the game's directory, the `replay_logs` folder itself) are named.
  """
  names = files.list_directory(run_dir)
  if 'replay_logs' in names:
    logs = os.path.join(run_dir, 'replay_logs')
    list_suffixes(logs)
    return logs
  if any(_FILE_PATTERN.fullmatch(name) for name in names):
    parent = os.path.dirname(os.path.normpath(run_dir)) or '.'
    raise ValueError(
      f'{run_dir} holds the shards themselves; give the run directory above '
      f'its replay_logs folder ({parent}).'
    )
  runs = sorted(name for name in names if name.isdigit())
  if runs:
    raise ValueError(
      f'{run_dir} is a game directory with runs {", ".join(runs)}; choose '
      f'one, e.g. {os.path.join(run_dir, runs[0])}.'
    )
  listing = ', '.join(sorted(names)[:8]) + (', ...' if len(names) > 8 else '')
  raise ValueError(
    f'{run_dir} has no replay_logs folder (found: {listing or "nothing"}); '
    'give a run directory, <root>/<Game>/<run>.'
  )
