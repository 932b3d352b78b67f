"""Imports shards of Dopamine's format, found by `shard_discovery`, as a store."""

import os
import shutil

from batch_rl.dataset.interchange import shard_discovery
from batch_rl.dataset.shards import digests, manifests, shard_files
from batch_rl.dataset.store import store, store_directory
from batch_rl.utils import machine, staging_directory, threads


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
    logs = work.join(*['unknown', *parts][-2:], shard_files.REPLAY_LOGS)
    # Runs of other folders may have the same game and number.
    existing, source = manifests.read(directory), shards.input_dir
    earlier = manifests.look_up(existing, 'origin', 'source', kind=str)
    if earlier and os.path.realpath(earlier) != os.path.realpath(source):
      raise ValueError(
        f'{directory} is the store of {earlier}, not of {source}; choose another '
        'directory.'
      )
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
    # Before anything is made; packing would find it, too.
    recorded = manifests.file_records(shards.manifest)

    def check_hash(link: str) -> None:
      name = os.path.basename(link)
      expected = manifests.look_up(recorded, name, 'sha256', kind=str)
      if expected is not None:
        digests.check_file(originals[link], {'sha256': expected})

    threads.parallel_map(check_hash, list(originals), machine.num_cpus())
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
