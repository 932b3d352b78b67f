"""Imports shards of Dopamine's format, found by `shard_discovery`."""

import os
import shutil
from collections.abc import Callable

from batch_rl.dataset.interchange import shard_discovery
from batch_rl.dataset.shards import (
  digests,
  incoming_shards,
  manifests,
  shard_files,
)
from batch_rl.dataset.store import store, store_directory
from batch_rl.utils import files, machine, staging_directory, threads


def import_shards(
  shards: shard_discovery.DiscoveredShards,
  logs: str,
  progress: Callable[[int], None] = lambda count: None,
) -> list[str]:
  """Puts shards into a folder under the format's file names, with a manifest.

  The input files are kept. They are linked, or copied where links are impossible. Each
  file is verified. Files that an earlier call imported are kept.

  Args:
    shards: Shards to import.
    logs: Folder of the imported shards, `<Game>/<run>/replay_logs`.
    progress: Callback with the number of files imported since the last call.

  Returns:
    Gaps and repetitions between the shards, one line each.

  Raises:
    ValueError: If a file is damaged, or the folder holds other files.
  """
  files.check_local(logs)
  if os.path.isdir(logs):
    manifest = manifests.read(logs)
    imported = manifests.look_up(manifest, 'origin', 'source', kind=str)
    others = set(os.listdir(logs)) - {shard_files.PARTIAL}
    if imported != shards.input_dir and others:
      raise ValueError(
        f'{logs} holds other files than shards of {shards.input_dir}; choose '
        'another destination.'
      )
  with incoming_shards.IncomingShards(
    logs, _origin(shards), {'shards': [], **shards.manifest}
  ) as target:
    target.finish()  # claims the folder for this import

    def import_file(task: tuple[int, str]) -> None:
      number, column = task
      name = shard_files.file_name(column, number)
      path = shards.path(number, column)
      stat = os.stat(path)
      identity = [stat.st_size, stat.st_mtime_ns]
      if not target.has(name, identity):
        target.remove(name)
        _link(path, target.partial(name))
        try:
          target.accept(
            name,
            original_name=shards.contents[number][column],
            identity=identity,
          )
        except ValueError as error:
          target.remove(name)
          raise ValueError(
            str(error).replace(target.partial(name), path)
          ) from None
      progress(1)

    tasks = [
      (number, column)
      for number in shards.contents
      for column in shard_files.FILES
    ]
    threads.parallel_map(import_file, tasks, machine.num_cpus())
  wrong, notes = incoming_shards.check_shards(logs, list(shards.contents))
  if wrong:
    raise ValueError(f'{shards.input_dir}: {"; ".join(wrong)}')
  return notes


def _origin(shards: shard_discovery.DiscoveredShards) -> dict[str, str]:
  return {'how': 'import', 'source': shards.input_dir}


def _link(path: str, target: str) -> None:
  """Links a file, or copies it where that is impossible."""
  original = os.path.realpath(path)
  try:
    os.link(original, target)
  except OSError:  # another file system, or another user's file
    shutil.copyfile(original, target)


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
    ValueError: If a file is damaged or differs from the manifest of the input, or the
      directory or `<directory>.import`, for links, holds other files.
  """
  parts = [
    part
    for part in shards.input_dir.split(os.sep)
    if part not in ('', shard_files.REPLAY_LOGS, 'checkpoints')
  ]
  # For temporary links under the format's names. The store is made in place.
  with staging_directory.StagingDirectory(
    directory, replace=True, suffix='.import'
  ) as work:
    # The store takes its game from the end of this path.
    logs = work.join(*parts[-2:], shard_files.REPLAY_LOGS)
    store_directory.StoreDirectory(directory).check_empty_or_of(logs)
    shutil.rmtree(logs, ignore_errors=True)
    os.makedirs(logs)
    originals = {
      os.path.join(logs, shard_files.file_name(column, number)): shards.path(
        number, column
      )
      for number, group in shards.contents.items()
      for column in group
    }
    for link, path in originals.items():
      os.symlink(os.path.realpath(path), link)
    recorded = incoming_shards.manifest_files(shards.manifest)

    def check_hash(link: str) -> None:
      name = os.path.basename(link)
      expected = manifests.look_up(recorded, name, 'sha256', kind=str)
      if expected is not None:
        found = digests.Digests({'sha256': expected})
        found.read(link)
        found.check(originals[link])

    threads.parallel_map(check_hash, list(originals), machine.num_cpus())
    manifest = {'manifest_version': 1, **shards.manifest}
    if shards.left_out:
      for key in incoming_shards.RUN_TOTALS:
        manifest.pop(key, None)
    manifests.write(logs, manifest | {'origin': _origin(shards)})
    try:
      made = store.convert(logs, directory, progress, made_by='import')
    except ValueError as error:
      message = str(error)
      for link, path in originals.items():
        message = message.replace(link, path)
      raise ValueError(message) from None
    shutil.rmtree(work.path)
  return made.problems
