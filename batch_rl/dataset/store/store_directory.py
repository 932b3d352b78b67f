"""The directory of a store: its description, its shards and its lock.

store.json     version, origin and numbers of the shards
dictionary     compression dictionary
shard-0.bin, shard-0.json, ...   packed shards (see `packed_shard`)
manifest.json  manifest of the run, if it has one
.lock          lock of the process that writes

Each block of frames has a checksum, which is compared whenever the block is decoded.
"""

import contextlib
import copy
import hashlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from absl import logging

from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import packed_shard
from batch_rl.utils import files, locks

_FILE_NAME = 'store.json'
_DICTIONARY = 'dictionary'
_LOCK = '.lock'
_VERSION = 1


def is_store(directory: str) -> bool:
  """Returns whether a directory is a store rather than a run's shards."""
  return os.path.exists(os.path.join(directory, _FILE_NAME))


def list_shards(data_dir: str, skip_incomplete: bool = False) -> list[int]:
  """Returns the shard numbers in a directory of shards or a store, ascending.

  Args:
    data_dir: Directory of the shards, or a store.
    skip_incomplete: Whether to skip shards without all files, with a warning,
      rather than fail.

  Raises:
    ValueError: If there is no shard, or one is incomplete.
  """
  if not is_store(data_dir):
    return shard_files.list_suffixes(data_dir, skip_incomplete=skip_incomplete)
  return StoreDirectory(data_dir).shards(skip_incomplete)


def cache_name(data_dir: str) -> str:
  """Returns a run's folder name in a cache: game, run, and a hash of its path."""
  path = absolute(data_dir).rstrip('/')
  parts = [p for p in path.split('/') if p and p != shard_files.REPLAY_LOGS]
  digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
  return '-'.join([*parts[-2:], digest])


def in_cache(cache_dir: str, data_dir: str) -> str | None:
  """Returns a run's folder in a cache, after creating it; None for a store.

  Args:
    cache_dir: Directory of the packed shards of all runs.
    data_dir: Directory of the run's shards, or a store.

  Raises:
    ValueError: If the folder cannot be created.
  """
  if is_store(data_dir):
    text = 'cache_dir=%s has no effect: %s is a compressed run already.'
    logging.warning(text, cache_dir, data_dir)
    return None
  directory = os.path.join(os.path.expanduser(cache_dir), cache_name(data_dir))
  files.check_local(directory)
  try:
    os.makedirs(directory, exist_ok=True)
  except OSError as error:
    raise ValueError(
      f'cache_dir={cache_dir} cannot be written: {error.strerror}. Choose another one.'
    ) from error
  return directory


def absolute(path: str) -> str:
  """Returns the absolute path of a local directory, with links resolved.

  A remote path is returned unchanged.
  """
  return path if files.is_remote(path) else os.path.realpath(path)


class StoreDirectory:
  """A directory for a store, which may not exist yet.

  Args:
    path: Local path of the directory.
    preload: Whether to read shards into memory rather than map them.

  Attributes:
    path: Local path of the directory.
    preload: Whether shards are read into memory rather than mapped.
    lock_path: Path of the lock file.
    dictionary: Compression dictionary; empty until the store has one.

  Raises:
    ValueError: If the path is remote, or the store is damaged or of another
      version.
  """

  def __init__(self, path: str, preload: bool = False):
    files.check_local(path, 'a store is a local directory')
    self.path = path
    self.preload = preload
    self.lock_path = os.path.join(path, _LOCK)
    self.dictionary = b''
    self._description: dict[str, Any] = {}  # Empty until there is a store.
    self.read()

  def read(self) -> None:
    """Reads the description, which another process may have written since."""
    path = os.path.join(self.path, _FILE_NAME)
    remedy = 'delete the store, and make it again'
    if (description := files.read_json(path, remedy=remedy)) is None:
      return
    try:
      description = files.check_hash(path, description)
      if description['version'] != _VERSION:
        raise ValueError(
          f'it has version {description["version"]}, this package reads {_VERSION}'
        )
      dictionary = files.read_bytes(os.path.join(self.path, _DICTIONARY))
      if hashlib.sha256(dictionary).hexdigest() != description['dictionary']:
        raise ValueError('its dictionary is damaged')
    except (OSError, ValueError) as error:
      shard_reader.raise_failed_read(error, self.path)
      reason = error.strerror if isinstance(error, OSError) else error
      raise ValueError(
        f'{self.path} cannot be used ({reason}); delete it, and run the command that made '
        'it again.'
      ) from error
    self.dictionary, self._description = dictionary, description

  @property
  def shards_dir(self) -> str | None:
    """Directory of the shards that the store was made from."""
    return self._description.get('source')

  @property
  def remedy(self) -> str:
    """Advice to run the store's command again, for messages."""
    if made_by := self._description.get('made_by'):
      return f'run the same {made_by} again'
    return f'convert {self.shards_dir} again'

  def planned_shards(self) -> list[int]:
    """Returns the numbers of all shards, missing ones included, ascending."""
    return self._description.get('shards', [])

  def shards(self, skip_missing: bool = False) -> list[int]:
    """Returns the shard numbers of a complete store, ascending.

    Args:
      skip_missing: Whether to skip missing shards, with a warning, rather than
        fail.

    Raises:
      ValueError: If a shard is missing; with `skip_missing`, if all are. Or if the
        manifest is missing, or of another run.
    """
    suffixes, present = self.planned_shards(), self.present_shards()
    if present == suffixes and present:
      self._check_manifest()
      return present
    missing = ', '.join(str(s) for s in suffixes if s not in present)
    message = (
      f'{self.path} is an incomplete store: shards {missing} are missing; '
      f'{self.remedy}.'
    )
    if not (skip_missing and present):
      raise ValueError(message)
    logging.warning('%s The others are used.', message)
    return present

  def _check_manifest(self):
    for _ in range(3):
      found = self._manifest_hash()
      # Stores of earlier versions do not record it; one without a hash was edited.
      if found in ('', self._description.get('manifest', found)):
        return
      time.sleep(0.1)  # Another process may be writing both.
      self.read()
    problem = 'is not the one that the store was made with'
    raise ValueError(
      f'{os.path.join(self.path, manifests.FILE_NAME)} '
      f'{"is missing" if found is None else problem}; restore it, or delete the store and '
      f'{self.remedy}.'
    )

  def _manifest_hash(self):
    """Returns the hash that the manifest has, or ''; None without a manifest."""
    path = os.path.join(self.path, manifests.FILE_NAME)
    manifest = files.read_json(path, {}, manifests.REMEDY)
    return None if manifest is None else manifest.get('hash', '')

  def present_shards(self) -> list[int]:
    """Returns the numbers of the packed shards, ascending."""
    return [
      suffix
      for suffix in self.planned_shards()
      if os.path.exists(packed_shard.paths(self.path, suffix)[1])
    ]

  def open(self, suffix: int) -> packed_shard.PackedShard:
    """Opens a packed shard.

    Raises:
      ValueError: If the shard is missing, incomplete, damaged, or of another
        store.
      ReadError: If a file cannot be read at the moment.
    """
    return packed_shard.open_packed(
      self.path, suffix, self.dictionary, self.preload
    )

  def find(
    self, suffix: int, data_dir: str, quiet: bool = False
  ) -> packed_shard.PackedShard | None:
    """Returns a packed shard if it is present, intact and up to date.

    Args:
      suffix: Shard number.
      data_dir: Directory of the shards.
      quiet: Whether to skip the warning about an unusable packed shard.

    Returns:
      The packed shard, or None.

    Raises:
      ReadError: If a file cannot be read at the moment.
    """
    description_path = packed_shard.paths(self.path, suffix)[1]
    if not self._description or not os.path.exists(description_path):
      return None
    try:
      packed = self.open(suffix)
      before = copy.deepcopy(packed.columns.sources)
      if packed_shard.is_fresh(packed, data_dir):
        if packed.columns.sources != before:
          self._rewrite_sources(description_path, packed.columns.sources)
        return packed
      problem = 'it has changed.'
    except ValueError as error:
      reason = error.__cause__ or error
      problem = f'{getattr(reason, "strerror", None) or reason}.'
    if not quiet:
      logging.warning('Shard %d is packed again: %s', suffix, problem)
    return None

  # --- writing ---------------------------------------------------------------

  def _rewrite_sources(self, path: str, sources: Mapping[str, Any]) -> None:
    """Writes `sources` again, so that the next start need not hash the files.

    Does nothing if the lock is held, or the directory cannot be written.
    """
    with contextlib.suppress(OSError, ValueError):
      if (lock := self.try_lock()) is not None:
        with lock:
          content = packed_shard.read_description(path) | {'sources': sources}
          files.write_json(path, files.with_hash(content))

  def try_lock(self) -> Any:
    """Acquires the directory's lock without waiting (see `locks.try_lock`).

    Returns:
      The lock, or None if another process holds it.

    Raises:
      OSError: If the directory cannot be written.
    """
    os.makedirs(self.path, exist_ok=True)
    return locks.try_lock(self.lock_path)

  def begin(
    self,
    data_dir: str,
    suffixes: Sequence[int],
    train: Callable[[], bytes],
    manifest: dict[str, Any],
    made_by: str | None = None,
  ) -> None:
    """Writes the description and removes files of an interrupted process.

    The caller holds the lock, so no temporary file is in use.

    Args:
      data_dir: Directory of the shards, or another path that ends with the game
        and the run.
      suffixes: Numbers of the shards to be packed, or packed already.
      train: Function that makes the dictionary, called if there is none.
      manifest: Manifest of the run, or empty.
      made_by: Command that makes the store; None for `convert`.

    Raises:
      OSError: If the directory cannot be written.
    """
    for name in os.listdir(self.path):
      if name.endswith('.tmp'):
        os.remove(os.path.join(self.path, name))
    self.read()
    if not self._description:
      self.dictionary = train()
      files.write_bytes(os.path.join(self.path, _DICTIONARY), self.dictionary)
    if manifest:
      manifests.write(self.path, manifest)
    description = {
      'version': _VERSION,
      'source': absolute(data_dir),
      'dictionary': hashlib.sha256(self.dictionary).hexdigest(),
      'shards': sorted({*self.planned_shards(), *suffixes}),
    }
    self._write(description | ({'made_by': made_by} if made_by else {}))

  def write_manifest(self, manifest: dict[str, Any]) -> None:
    """Writes the manifest of the run; the caller holds the lock."""
    manifests.write(self.path, manifest)
    self._write(self._description)

  def keep_only(self, suffixes: Collection[int]) -> None:
    """Removes other shards from the description; the caller holds the lock."""
    kept = [n for n in self.present_shards() if n in suffixes]
    if kept != self.planned_shards():
      self._write({**self._description, 'shards': kept})

  def _write(self, description: dict[str, Any]) -> None:
    manifest = {'manifest': self._manifest_hash()}
    self._description = files.with_hash(description | manifest)
    files.write_json(os.path.join(self.path, _FILE_NAME), self._description)

  def check_unused(self, own_names: Collection[str] = ()) -> None:
    """Checks that the directory is missing, empty, or a store.

    Args:
      own_names: Names that may be in the directory besides.

    Raises:
      ValueError: If the directory has other content or cannot be listed.
    """
    if not os.path.lexists(self.path):
      return
    names = files.list_directory(self.path)
    # A process killed at its start may leave these files.
    own = {_FILE_NAME, _DICTIONARY, manifests.FILE_NAME, _LOCK, *own_names}
    if not self._description and {*map(files.final_name, names)} - own:
      raise ValueError(
        f'{self.path} holds something else; choose a new directory for the store.'
      )
