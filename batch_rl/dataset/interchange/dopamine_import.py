"""Imports shards of Dopamine's format, found by `shard_discovery`, as a store."""

import os

from batch_rl.dataset.interchange import shard_discovery
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.dataset.store import store, store_directory
from batch_rl.utils import staging_directory


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
  game, run = ['unknown', 'unknown', *parts][-2:]
  # For temporary links under the format's names. The store is made in place.
  with staging_directory.StagingDirectory(
    directory, replace=True, suffix='.import'
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
    store_directory.StoreDirectory(directory).check_empty_or_of(logs)
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
