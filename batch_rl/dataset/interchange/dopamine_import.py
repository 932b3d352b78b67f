"""Imports shards of Dopamine's format, found by `shard_discovery`, as a store."""

import contextlib
import gzip
import os

import numpy as np

from batch_rl.dataset.interchange import shard_discovery
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import store
from batch_rl.utils import safe_pickle, staging_directory

_MOST_BYTES = 1 << 26  # of a list of ends


def import_store(
  shards: shard_discovery.DiscoveredShards, directory: str
) -> list[str]:
  """Packs shards into a store.

  Args:
    shards: Shards to import.
    directory: Directory of the store.

  Returns:
    Missing and repeated rows, one line each.

  Raises:
    ValueError: If a file is damaged or differs from the manifest of the input, an
      episode ends without a terminal, or the directory or `<directory>.import`, for
      links, holds other files.
  """
  _check_ends(shards)
  ignored = '', shard_files.REPLAY_LOGS, 'checkpoints'
  parts = [p for p in shards.input_dir.split(os.sep) if p not in ignored]
  game, run = ['unknown', 'unknown', *parts][-2:]
  # For temporary links under the format's names. The store is made in place.
  with staging_directory.StagingDirectory(
    directory, replace=True, suffix=staging_directory.IMPORT
  ) as work:
    # The store takes its game from the end of this path.
    logs = os.path.join(work.create(game), run, shard_files.REPLAY_LOGS)
    # Runs of other folders may have the same game and number.
    existing, source = manifests.read(directory), shards.input_dir
    earlier = manifests.look_up(existing, 'origin', 'source', kind=str)
    if earlier and os.path.realpath(earlier) != os.path.realpath(source):
      raise ValueError(
        f'{directory} is the store of {earlier}, not of {source}; choose another '
        'directory.'
      )
    os.makedirs(logs)
    originals = {
      shard_files.path(logs, column, number): shards.path(number, column)
      for number, group in shards.contents.items()
      for column in group
    }
    for link, path in originals.items():
      os.symlink(os.path.realpath(path), link)
    manifest = {'manifest_version': 1, **shards.manifest}
    if shards.left_out:
      for key in manifests.RUN_TOTALS:
        manifest.pop(key, None)
    origin = {'how': 'import', 'source': shards.input_dir}
    manifests.write(logs, manifest | {'origin': origin})
    try:
      made = store.convert(logs, directory, made_by='import')
    except ValueError as error:
      message = str(error)
      for link, path in [*originals.items(), (logs, shards.input_dir)]:
        message = message.replace(link, path)
      raise ValueError(message) from None
    work.remove()
  problems = [p.replace(logs, shards.input_dir) for p in made.problems]
  return shards.unfinished + problems


def _check_ends(shards: shard_discovery.DiscoveredShards) -> None:
  """Checks that episodes end with a terminal, for rows have no other end.

  Newer versions of Dopamine list the ends, also those at a time limit.

  Raises:
    ValueError: If an episode ends without one, or the terminals are damaged.
  """
  found: dict[str, list[int]] = {}
  for number in shards.contents:
    path = shards.path(number, 'terminal')
    name, ends = shard_files.file_name(shard_files.OPTIONAL, number), set[int]()
    # Dopamine's own reader does without the file, too, and it may be damaged.
    with contextlib.suppress(Exception):
      with gzip.open(os.path.join(os.path.dirname(path), name)) as file:
        ends = {*map(int, safe_pickle.loads(file.read(_MOST_BYTES)))}
    if ends:
      terminal = np.flatnonzero(shard_reader.read_array(path))
      found[path] = sorted(ends.difference(terminal.tolist()))
  if count := sum(map(len, found.values())):
    path, rows = next((path, rows) for path, rows in found.items() if rows)
    raise ValueError(
      f'{count} episodes end without a terminal, e.g. at row {rows[0]} of {path}, so the '
      'next ones would continue them: set these terminals to 1. The rows of a shard are '
      f'in its {shard_files.OPTIONAL}_ckpt file.'
    )
