"""Imports shards of Dopamine's format, found by `shard_discovery`, as a store."""

import contextlib
import gzip
import os

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
  for number in shards.contents:
    _check_ends(shards.path(number, 'terminal'), number)
  parts = [
    part
    for part in shards.input_dir.split(os.sep)
    if part not in ('', shard_files.REPLAY_LOGS, 'checkpoints')
  ]
  game, run = ['unknown', 'unknown', *parts][-2:]
  # For temporary links under the format's names. The store is made in place.
  with staging_directory.StagingDirectory(
    directory, replace=True, suffix=staging_directory.SUFFIXES[1]
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


def _check_ends(terminal: str, number: int) -> None:
  """Checks that episodes of a shard end with a terminal, for rows have no other end.

  Newer versions of Dopamine list the ends, also those at a time limit.

  Args:
    terminal: Path of the terminals.
    number: Number of the shard.

  Raises:
    ValueError: If an episode ends without one, or the terminals are damaged.
  """
  name = shard_files.file_name(shard_files.OPTIONAL, number)
  path, ends = os.path.join(os.path.dirname(terminal), name), list[int]()
  # Dopamine's own reader does without the file, too.
  with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
    with gzip.open(path) as file:
      ends = sorted(map(int, safe_pickle.loads(file.read(_MOST_BYTES))))
  if not ends:
    return
  terminals = shard_reader.read_array(terminal)
  if open_ends := [row for row in ends if not terminals[row : row + 1].all()]:
    raise ValueError(
      f'{path} lists ends of episodes without a terminal: {len(open_ends)}, the first is '
      f'row {open_ends[0]}. The next episodes would continue them: set their terminals '
      f'to 1 in {terminal}.'
    )
