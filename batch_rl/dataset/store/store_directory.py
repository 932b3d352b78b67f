"""The directory of a store: what its shards have in common, and who writes it.

store.json     version, source, numbers of the shards; see `StoreDirectory.begin`
dictionary     of the compression
shard-0.bin, shard-0.json, ...   see `packed_shard`
manifest.json  of the run, if it has one
.lock          held by the process that packs
"""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import packed_shard
from batch_rl.utils import files, locks

_ABOUT = 'store.json'
_DICTIONARY = 'dictionary'
_VERSION = 1
_log = logging.getLogger('absl')


def is_store(directory: str) -> bool:
  """Whether a directory is a store, rather than a run's shards."""
  return not files.is_remote(directory) and os.path.exists(
    os.path.join(directory, _ABOUT)
  )


def cache_name(data_dir: str) -> str:
  """The folder of a run in a cache: its game, run, and a hash of its path."""
  path = absolute(data_dir).rstrip('/')
  run = [part for part in path.split('/') if part and part != 'replay_logs'][
    -2:
  ]
  digest = hashlib.sha256(path.encode()).hexdigest()[:8]
  return '-'.join([*run, digest])


def absolute(path: str) -> str:
  """The path without links, if it is local."""
  return path if files.is_remote(path) else os.path.realpath(path)


class StoreDirectory:
  """A directory that holds a store, or will.

  Args:
    path: of the directory; local.
    preload: whether to read its shards into memory, rather than map them.

  Attributes:
    dictionary: of its compression; empty until there is one.

  Raises:
    ValueError: if there is a store of another version, or a damaged one.
  """

  def __init__(self, path: str, preload: bool = False):
    if files.is_remote(path):
      raise ValueError(f'{path} is remote; a store is a local directory.')
    self.path = path
    self._preload = preload
    self.dictionary = b''
    self._about: dict[str, Any] | None = None
    self.read()

  def read(self) -> None:
    """Reads what another process may have written by now."""
    path = os.path.join(self.path, _ABOUT)
    about = files.read_json(path)
    if about is None:
      return
    remedy = f'delete {self.path} to have it made again'
    try:
      about = files.check_hash(path, about)
      if about['version'] != _VERSION:
        raise ValueError(
          f'it is a store of version {about["version"]}, this package reads '
          f'{_VERSION}'
        )
      with open(os.path.join(self.path, _DICTIONARY), 'rb') as file:
        dictionary = file.read()
      if _hash(dictionary) != about['dictionary']:
        raise ValueError('its dictionary is damaged')
    except (OSError, ValueError) as error:
      raise ValueError(
        f'{self.path} cannot be used ({error}); {remedy}.'
      ) from error
    self.dictionary, self._about = dictionary, about

  @property
  def source(self) -> str | None:
    """The directory of the shards that it was made from."""
    return self._about['source'] if self._about else None

  def shards(self) -> list[int]:
    """Numbers of its shards, ascending.

    Raises:
      ValueError: if some are not there: a store is used as a whole.
    """
    suffixes = (self._about or {}).get('shards', [])
    missing = [
      str(suffix)
      for suffix in suffixes
      if not os.path.exists(packed_shard.paths(self.path, suffix)[1])
    ]
    if missing or not suffixes:
      raise ValueError(
        f'{self.path} is an incomplete store: shards {", ".join(missing)} are '
        f'missing; convert {self.source} again.'
      )
    return suffixes

  def open(self, suffix: int) -> packed_shard.PackedShard:
    """Opens one of its shards; see `packed_shard.open_packed`."""
    return packed_shard.open_packed(
      self.path, suffix, self.dictionary, self._preload
    )

  def find(
    self, suffix: int, data_dir: str, quiet: bool = False
  ) -> packed_shard.PackedShard | None:
    """A shard, if it is here, and is still that of `data_dir`.

    Args:
      suffix: its number.
      data_dir: the directory of the shards.
      quiet: whether to say nothing of one that cannot be used.
    """
    description = packed_shard.paths(self.path, suffix)[1]
    if self._about is None or not os.path.exists(description):
      return None
    try:
      packed = self.open(suffix)
    except ValueError as error:
      if not quiet:
        _log.warning('Shard %d is packed again: %s', suffix, error)
      return None
    if packed_shard.is_fresh(packed, data_dir, self.path):
      return packed
    if not quiet:
      _log.warning('Shard %d is packed again: it has changed.', suffix)
    return None

  # --- for the process that packs --------------------------------------------

  def try_lock(self) -> Any:
    """Takes the lock, or returns None; see `files.try_lock`.

    Raises:
      OSError: if the directory cannot be written.
    """
    os.makedirs(self.path, exist_ok=True)
    return locks.try_lock(self._lock_path)

  @property
  def lock_holder(self) -> str:
    """Who has the lock."""
    return locks.lock_holder(self._lock_path)

  @property
  def _lock_path(self) -> str:
    return os.path.join(self.path, '.lock')

  def begin(
    self,
    data_dir: str,
    suffixes: Sequence[int],
    train: Callable[[], bytes],
  ) -> None:
    """Writes what the shards have in common, and clears what was left behind.

    Args:
      data_dir: the directory of the shards.
      suffixes: that will be here.
      train: makes the dictionary, if there is none.

    Raises:
      OSError: if the directory cannot be written.
    """
    for name in os.listdir(self.path):
      if name.endswith('.tmp'):
        os.remove(os.path.join(self.path, name))
    self.read()
    if self._about is None:
      self.dictionary = train()
      files.write_bytes(os.path.join(self.path, _DICTIONARY), self.dictionary)
    manifest = files.read_json(os.path.join(data_dir, manifests.FILE_NAME))
    if manifest:
      files.write_json(os.path.join(self.path, manifests.FILE_NAME), manifest)
    there = (self._about or {}).get('shards', [])
    self._about = files.with_hash(
      {
        'version': _VERSION,
        'source': absolute(data_dir),
        'dictionary': _hash(self.dictionary),
        'shards': sorted({*there, *suffixes}),
      }
    )
    files.write_json(os.path.join(self.path, _ABOUT), self._about)

  def check_empty_or_of(self, data_dir: str) -> None:
    """Refuses a directory that holds something else than the store of a run.

    Raises:
      ValueError: if it does.
    """
    try:
      there = os.listdir(self.path)
    except FileNotFoundError:
      return
    except OSError as error:
      raise ValueError(f'{self.path}: {error.strerror}.') from error
    # What a conversion that was killed at its start may have left.
    ours = {_ABOUT, _DICTIONARY, manifests.FILE_NAME, '.lock'}
    if self._about is None and {n.removesuffix('.tmp') for n in there} - ours:
      raise ValueError(
        f'{self.path} holds something else; choose a new directory for the store.'
      )
    if self._about is not None and self.source != absolute(data_dir):
      raise ValueError(
        f'{self.path} is the store of {self.source}, not of {data_dir}; choose '
        'another directory.'
      )


def _hash(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
