"""Imports shards of Dopamine's format, found in any directory layout."""

import gzip
import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
from isal import igzip

from batch_rl.dataset.interchange import shard_discovery
from batch_rl.dataset.shards import incoming_shards, manifests, shard_files
from batch_rl.dataset.store import store, store_directory
from batch_rl.utils import files, machine, staging_directory, threads


def import_shards(
  shards: shard_discovery.DiscoveredShards,
  logs: str,
  progress: Callable[[int], None] = lambda count: None,
  symlinks: bool = False,
) -> list[str]:
  """Puts shards into a folder under the format's file names, with a manifest.

  The input files are kept. They are linked, copied where links are impossible, and
  compressed if they were not. Each file is verified. Files that an earlier call
  imported are kept.

  Args:
    shards: Shards to import.
    logs: Folder of the imported shards, `<Game>/<run>/replay_logs`.
    progress: Callback with the number of files imported since the last call.
    symlinks: Whether to use symbolic links where hard links are impossible.

  Returns:
    Gaps and repetitions between the shards, one line each.

  Raises:
    ValueError: If a file is damaged, or the folder holds other files.
  """
  origin: dict[str, Any] = {'how': 'import', 'source': shards.input_dir}
  if shards.assumed:
    origin['assumed'] = shards.assumed
  files.check_local(logs)
  _check_target(shards, logs)
  with incoming_shards.IncomingShards(
    logs, origin, _valid_manifest(shards)
  ) as target:
    target.finish()  # claims the folder for this import

    def import_file(task: tuple[int, str]) -> None:
      number, column = task
      name = shard_files.file_name(column, number)
      file = shards.contents[number][column]
      original = identity = None  # for an inferred counter
      if isinstance(file, shard_discovery.ShardFile):
        original, identity = file.name, file.identity()
      if identity is None or not target.has(name, identity):
        target.remove(name)
        _prepare(file, target.partial(name), symlinks)
        try:
          target.accept(name, original_name=original, identity=identity)
        except ValueError as error:
          target.remove(name)
          path = getattr(file, 'path', name)
          raise ValueError(
            str(error).replace(target.partial(name), path)
          ) from None
      progress(1)

    tasks = [
      (number, column)
      for number in sorted(shards.contents)
      for column in shard_files.FILES
    ]
    threads.parallel_map(import_file, tasks, machine.num_cpus())
  wrong, notes = incoming_shards.check_shards(logs, sorted(shards.contents))
  if wrong:
    raise ValueError(f'{shards.input_dir}: {"; ".join(wrong)}')
  return notes


def _valid_manifest(
  shards: shard_discovery.DiscoveredShards,
) -> dict[str, Any]:
  """Returns the input's manifest without shards whose files will differ."""

  def unchanged(entry: Any) -> bool:
    number = manifests.look_up(entry, 'suffix', kind=int)
    return all(
      isinstance(file, shard_discovery.ShardFile) and file.zipped
      for file in shards.contents.get(number, {}).values()
    )

  entries = manifests.look_up(shards.manifest, 'shards', kind=list) or []
  return {**shards.manifest, 'shards': [e for e in entries if unchanged(e)]}


def _check_target(shards: shard_discovery.DiscoveredShards, logs: str) -> None:
  """Refuses a folder that holds anything but an import of the same input."""
  if not os.path.isdir(logs):
    return
  manifest = manifests.read(logs)
  imported = manifests.look_up(manifest, 'origin', 'source', kind=str)
  others = set(os.listdir(logs)) - {shard_files.PARTIAL}
  if imported != shards.input_dir and others:
    raise ValueError(
      f'{logs} holds other files than shards of {shards.input_dir}; choose '
      'another destination.'
    )


def _prepare(
  file: shard_discovery.ShardFile | np.ndarray, path: str, symlinks: bool
) -> None:
  """Links, copies or compresses a file, or writes an inferred counter."""
  if not isinstance(file, shard_discovery.ShardFile):
    with gzip.open(path, 'wb') as out:
      np.save(out, file, allow_pickle=False)
    return
  if not file.zipped:
    with open(file.path, 'rb') as raw, igzip.open(path, 'wb') as zipped:
      shutil.copyfileobj(raw, zipped, 1 << 20)
    return
  original = os.path.realpath(file.path)
  try:
    os.link(original, path)
  except OSError:  # another file system, or another user's file
    if symlinks:
      os.symlink(original, path)
    else:
      shutil.copyfile(original, path)


def import_store(
  shards: shard_discovery.DiscoveredShards,
  directory: str,
  progress: Callable[[int], None],
) -> list[str]:
  """Packs shards into a store.

  Args:
    shards: Shards to import.
    directory: Directory of the store.
    progress: Callback with the number of rows packed since the last call.

  Returns:
    Gaps and repetitions between the shards, one line each.

  Raises:
    ValueError: If a file is damaged, the directory holds other files, or its links
      cannot be in `<directory>.import`.
  """
  parts = [
    part
    for part in shards.input_dir.split(os.sep)
    if part not in ('', shard_files.REPLAY_LOGS, 'checkpoints')
  ]
  # For temporary links. The store is made in place.
  with staging_directory.StagingDirectory(
    directory, replace=True, suffix='.import'
  ) as work:
    source = os.path.realpath(shards.input_dir)
    if os.path.commonpath([source, work.path]) == work.path:
      raise ValueError(
        f'{shards.input_dir} is in the folder for links of an import to {directory}; '
        'import the original files.'
      )
    # The store takes its game from the end of this path.
    logs = work.join(*parts[-2:], shard_files.REPLAY_LOGS)
    store_directory.StoreDirectory(directory).check_empty_or_of(logs)
    notes = import_shards(shards, logs, symlinks=True)
    store.convert(logs, directory, progress, made_by='import')
    shutil.rmtree(work.path)
  return notes
