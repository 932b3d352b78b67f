"""Imports episodes straight into a store, one shard for each part of the dataset.

Each shard holds whole episodes, so the parts may come in any order, and any may be
missing. Frames are decoded and compressed at once, in all threads; nothing else is
written. A finished shard is not imported again.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from batch_rl import __version__
from batch_rl.dataset import game_names, run_directories
from batch_rl.dataset.imports import episode_import, part_rows, png_frames
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import (
  compression_dictionary,
  packed_shard,
  shard_packing,
  store_directory,
)
from batch_rl.utils import files, locks, machine, progress_bars

# LZ4 level: a quarter faster than `shard_packing`'s, for 3 % more bytes.
_LEVEL = 4
# Frames that the compression dictionary is trained on.
_TRAINING_FRAMES = 8000


class Identity(NamedTuple):
  """The run that a store is of.

  Attributes:
    game: Name of the game.
    run: Number of the run.
    format: Format of the dataset.
    source: Directory or URL of the dataset, for messages and the manifest.
    name: Full name of the dataset; None if unknown.
  """

  game: str
  run: str
  format: str
  source: str
  name: str | None = None

  def __str__(self) -> str:
    return f'run {self.run} of {self.game} ({self.name or self.format})'


class StoreImport:
  """A store that grows by one shard for each part of a dataset.

  It is written within `opened`. The store cannot be used until `finish` was called or
  all its shards are there; the same command continues it.

  Args:
    directory: Directory of the store, new or with a part of the same run.
    identity: Run of the dataset.
    command: Name of the command, for messages: 'import' or 'fetch'.
    last_step: Content of terminal steps, one of `LAST_STEPS`.
    own_names: Names that the command itself has in the directory.

  Raises:
    ValueError: If the directory cannot be written, is in use, or holds anything
      but a store of the same run, imported with the same `last_step`.
  """

  def __init__(
    self,
    directory: str,
    identity: Identity,
    command: str,
    last_step: str = 'auto',
    own_names: Collection[str] = (),
  ):
    self.directory = directory
    self._identity = identity
    self._command = command
    self._last_step = last_step
    self._store = store_directory.StoreDirectory(directory)
    self._store.check_unused(own_names)
    self._manifest: dict[str, Any] = {}
    self._planned: Collection[int] = ()
    self._read()

  @contextlib.contextmanager
  def opened(self, planned: Collection[int]) -> Iterator[None]:
    """Holds the store's lock.

    From the first `add` on, the store is incomplete until all planned shards are there.

    Args:
      planned: Numbers of the shards, those that are there already included.
    """
    with locks.acquire(self._store.lock_path, self.directory):
      self._store.read()
      self._read()
      self._planned = planned
      yield

  def _read(self) -> None:
    """Reads the manifest of a store that is there; checks that it is the same run."""
    if self._store.shards_dir is None:
      return
    self._manifest = manifests.read(self.directory)
    # An exported run keeps its source, but has other shards.
    is_exported = 'exported_from' in self._manifest
    known = {} if is_exported else self._manifest
    look_up = functools.partial(manifests.look_up, known, kind=str)
    found = Identity(
      game_names.canonical(look_up('environment', 'game') or '?'),
      look_up('source', 'run') or '?',
      look_up('source', 'format') or 'shards',
      self._identity.source,
      self._identity.name and look_up('source', 'name'),
    )
    if found != self._identity:
      kind = 'exported shards' if is_exported else found
      raise ValueError(
        f'{self.directory} is a store of {kind}, not of {self._identity}; choose '
        'another directory.'
      )
    if self._last_step not in ('auto', self._known_last_step):
      raise ValueError(
        f'{self.directory} was imported with --last_step={self._known_last_step}, '
        f'not {self._last_step}; choose another directory.'
      )

  @property
  def _known_last_step(self) -> str | None:
    return manifests.look_up(self._manifest, 'source', 'last_step', kind=str)

  @property
  def _last_step_assumed(self) -> bool:
    key = 'source', 'last_step_assumed'
    return bool(manifests.look_up(self._manifest, *key, kind=bool))

  @property
  def _entries(self) -> list[dict[str, Any]]:
    return manifests.look_up(self._manifest, 'shards', kind=list) or []

  def has(self, name: str, size: int | None) -> bool:
    """Returns whether a file has been imported.

    Args:
      name: Name of the file.
      size: Size of the file in bytes; None if unknown.

    Raises:
      ValueError: If the imported file had another size.
    """
    for entry in self._entries:
      path = packed_shard.paths(self.directory, entry['suffix'])[1]
      if name in entry['files'] and os.path.exists(path):
        imported = entry['files'][name]['bytes']
        if size not in (None, imported):
          raise ValueError(
            f'{name} has {size:,} B, but {self.directory} was made from a file of '
            f'that name with {imported:,} B; choose another directory.'
          )
        return True
    return False

  def add(
    self,
    reader: episode_import.EpisodeReader,
    part: episode_import.Part,
    progress: Callable[[int], None] = lambda count: None,
  ) -> None:
    """Imports a part of the dataset as the shard of its number.

    Args:
      reader: Reader of the dataset, or of this part only.
      part: Part to import.
      progress: Callback with the amount read since the last call, in the part's
        unit.

    Raises:
      LastStepError: If an episode contradicts the shards imported before.
      ValueError: If the part is damaged, has no transitions, or does not belong to
        the run.
      OSError: If the disk is full; no partial shard is left.
    """
    if not self._manifest:
      self._manifest = self._initial_manifest(reader, part)
    identity = self._identity
    self._store.begin(
      os.path.join(identity.source, identity.game, identity.run),
      [*self._planned, part.number],
      lambda: _train(reader, part),
      self._manifest,
      self._command,
    )
    dictionary = self._store.dictionary
    known, is_chosen = self._known_last_step, self._last_step != 'auto'
    last_step = cast(str, known), is_chosen, self._last_step_assumed
    rows = part_rows.PartRows(reader, part, last_step)

    def pack_blocks(write):
      with concurrent.futures.ThreadPoolExecutor(
        machine.num_cpus(), thread_name_prefix='import'
      ) as pool:
        offsets, checksums = shard_packing.write_blocks(
          rows.tasks(progress), dictionary, write, pool, _LEVEL
        )
      columns = rows.columns()
      self._check_new(part, columns.sources)
      return packed_shard.PackedShard(
        columns, packed_shard.NO_BLOCKS, offsets, checksums, manifests.PADDING
      )

    packed = shard_packing.write_shard(
      self.directory, part.number, dictionary, pack_blocks
    )
    self._record(rows.entry(packed.columns.sources))

  def _initial_manifest(
    self, reader: episode_import.EpisodeReader, part: episode_import.Part
  ) -> dict[str, Any]:
    last_step, assumed = episode_import.choose_last_step(
      reader, self._last_step, part
    )
    return {
      'manifest_version': 1,
      'agent': reader.agent,
      'environment': {**reader.environment, 'game': self._identity.game},
      'versions': {'batch_rl': __version__},
      'source': {
        'format': reader.format,
        'directory': self._identity.source,
        'name': reader.name,
        'order': reader.order,
        'run': self._identity.run,
        'last_step': last_step,
        'last_step_assumed': assumed,
      },
      'format': {'stack_size': manifests.PADDING + 1},
      'shards': [],
    }

  def _check_new(
    self, part: episode_import.Part, sources: Mapping[str, Mapping]
  ) -> None:
    """Raises a ValueError if a part is a copy of another."""
    hashes = {source['sha256'] for source in sources.values()}
    for entry in self._entries:
      for name, file in entry['files'].items():
        if entry['suffix'] != part.number and file['sha256'] in hashes:
          raise ValueError(
            f'{part.name} is a copy of {name}: fetch the file again.'
          )

  def _record(self, entry: dict[str, Any]) -> None:
    """Writes the manifest with the entry of a new shard."""
    others = [e for e in self._entries if e['suffix'] != entry['suffix']]
    entries = sorted([*others, entry], key=lambda e: e['suffix'])
    self._manifest |= {
      'rows': sum(e['rows'] for e in entries),
      'episodes': manifests.combine_episodes([e['episodes'] for e in entries]),
      'shards': entries,
    }
    self._store.write_manifest(self._manifest)

  def finish(self) -> dict[str, Any]:
    """Makes the store usable, without the shards that are missing.

    Returns:
      A summary of the store, JSON-serialisable.

    Raises:
      ValueError: If the store has no shard.
    """
    entries = self._entries
    # A killed import may have left a shard that the manifest lacks.
    self._store.keep_only([entry['suffix'] for entry in entries])
    if entries:  # It may have been killed before the store knew its manifest.
      self._store.write_manifest(self._manifest)
    imported = episodes.Reader(run_directories.find_runs(self.directory)[0])
    return {
      'destination': self.directory,
      'format': self._identity.format,
      'source': self._identity.source,
      'game': self._identity.game,
      'shards': len(entries),
      'episodes': sum(entry['episodes']['count'] for entry in entries),
      'steps': imported.rows,
      'truncated': sum(entry['truncated'] for entry in entries),
      'skipped': sum(entry['skipped'] for entry in entries),
      'last_step': self._known_last_step,
      'last_step_assumed': self._last_step_assumed,
      'order': manifests.look_up(self._manifest, 'source', 'order', kind=str),
      'hash': imported.hash,
      'doubts': self._doubts(),
    }

  def _doubts(self) -> list[str]:
    """Returns the oddities of the imported files, one line each."""
    doubts: dict[str, list[str]] = collections.defaultdict(list)
    for entry in self._entries:
      name = ', '.join(entry['files'])
      for kind, numbers in entry.get('doubts', {}).items():
        doubts[kind] += [f'episode {number} of {name}' for number in numbers]
    numbered = [entry for entry in self._entries if entry.get('indices')]
    for before, after in itertools.pairwise(numbered):
      checkpoint, first, last = before['indices']
      later, start, _ = after['indices']
      apart = after['suffix'] - before['suffix']
      # Episodes are numbered in each file or in the run, and one may be in two files.
      is_next = apart > 1 or start in (first, last, last + 1)
      if later - checkpoint != apart or not is_next:
        kind = 'gaps in checkpoint_idx or episode_idx between files'
        doubts[kind].append(', '.join(after['files']))
    return [
      f'{len(places):,} {kind}; the first is {places[0]}'
      for kind, places in doubts.items()
    ]


def _train(
  reader: episode_import.EpisodeReader, part: episode_import.Part
) -> bytes:
  """Trains the compression dictionary on the first frames of a part."""
  episodes_frames = (
    cast(png_frames.PngFrames, episode.frames) for episode in reader.read(part)
  )
  frames = ((found, i) for found in episodes_frames for i in range(len(found)))
  task = list(itertools.islice(frames, _TRAINING_FRAMES))
  return compression_dictionary.train([part_rows.decode(task)]) if task else b''


def import_parts(
  reader: episode_import.EpisodeReader,
  directory: str,
  game: str | None = None,
  last_step: str = 'auto',
) -> dict[str, Any]:
  """Imports all parts of a dataset; continues an interrupted import.

  Args:
    reader: Reader of the dataset.
    directory: Store to create or to continue.
    game: Name of the game; None for the dataset's.
    last_step: Content of terminal steps, one of `LAST_STEPS`.

  Returns:
    A summary of the store, JSON-serialisable; or `left_out`, with the reason for each
    damaged part by name. The store cannot be used then.

  Raises:
    ValueError: If the game is unknown or contradicts the dataset, episodes contradict
      `last_step`, or the directory has other content or cannot be written.
    OSError: If a file cannot be read or written, e.g. to a full disk.
  """
  game = episode_import.game_of(reader, game)
  identity = Identity(
    game, reader.run, reader.format, reader.directory, reader.name
  )
  store = StoreImport(directory, identity, 'import', last_step)
  with store.opened([part.number for part in reader.parts]):
    missing = [p for p in reader.parts if not store.has(p.name, p.size)]
    total = sum(part.size for part in missing)
    left_out = {}
    with progress_bars.meter(total, 'B', 'import') as bar:
      for part in missing:
        try:
          store.add(reader, part, bar.update)
        except episode_import.LastStepError:
          raise
        except ValueError as error:
          left_out[part.name] = str(error)
        except OSError as error:
          where = f'{error.filename}: ' if error.filename else ''
          raise OSError(
            f'The import of {directory} has stopped: {where}'
            f'{files.reason(error).rstrip(".")}; imported shards are kept, and the same '
            'command resumes.'
          ) from error
    return {'left_out': left_out} if left_out else store.finish()
