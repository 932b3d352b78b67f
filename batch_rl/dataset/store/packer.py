"""Packs the shards of a run on a thread of its own, for a `Store`."""

import concurrent.futures
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import psutil

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import packed_shard
from batch_rl.dataset.store.store_directory import StoreDirectory
from batch_rl.utils import machine

_log = logging.getLogger('absl')


class Packer:
  """Packs shards in the background, one after the other, each with all cores.

  Into memory, or into a directory; there, one process packs, and the others take
  what it has packed.

  Args:
    data_dir: the directory of the shards.
    directory: of the store; None for memory.
    suffixes: numbers of all shards of the store.
    rows: of each.
    digests: of each, `packed_shard.Columns.digest`.
    arrive: takes the number of a shard, the shard, and the dictionary.
    skip_damaged: whether to go on after a damaged shard.
    progress: called with numbers of rows that were packed.
  """

  def __init__(
    self,
    data_dir: str,
    directory: StoreDirectory | None,
    suffixes: Sequence[int],
    rows: Sequence[int],
    digests: Sequence[str],
    arrive: Callable[[int, packed_shard.PackedShard, bytes], None],
    skip_damaged: bool,
    progress: Callable[[int], None],
  ):
    self._data_dir = data_dir
    self._directory = directory
    self._suffixes = list(suffixes)
    self._rows = dict(zip(suffixes, rows, strict=True))
    self._digests = dict(zip(suffixes, digests, strict=True))
    self._give = arrive
    self._skip_damaged = skip_damaged
    self._progress = progress
    self._dictionary = b''
    self._preferred: list[int] = []
    self._changed = threading.Condition()
    self._error: Exception | None = None
    self._stopped = False
    self._done = {suffix: False for suffix in suffixes}
    self._damaged: set[int] = set()
    self._thread: threading.Thread | None = None

  def start(self, missing: Iterable[int], first: Iterable[int]) -> None:
    """Starts to pack.

    Args:
      missing: the shards to pack.
      first: those of them that go first.
    """
    missing = list(missing)
    self._preferred = list(first)
    for suffix in set(self._suffixes) - set(missing):
      self._done[suffix] = True
    self._thread = threading.Thread(
      target=self._run, args=(missing,), name='packer', daemon=True
    )
    self._thread.start()

  def prefer(self, suffixes: Iterable[int]) -> None:
    """Packs these shards next."""
    self._preferred = list(suffixes)

  def wait(self, suffixes: Iterable[int], count: int | None = None) -> None:
    """Waits until shards are packed.

    Args:
      suffixes: which.
      count: how many of them are enough; None for all.

    Raises:
      ValueError: if one cannot be.
    """
    if self._thread is None:
      raise ValueError(f'The store of {self._data_dir} was not started.')
    with self._changed:
      while True:
        # With skip_damaged, those that turn out damaged are not waited for.
        wanted = set(suffixes) - self._damaged
        packed = sum(self._done[suffix] for suffix in wanted)
        if packed >= min(count or len(wanted), len(wanted)):
          return
        self.raise_error()
        if self._stopped:
          raise ValueError(f'The store of {self._data_dir} was closed.')
        self._changed.wait()

  @property
  def damaged(self) -> frozenset[int]:
    """Shards that were skipped, as far as is known."""
    return frozenset(self._damaged)

  def raise_error(self) -> None:
    """Raises what went wrong, if anything did.

    Raises:
      DataError: if it is the data's fault.
    """
    if isinstance(self._error, ValueError):
      raise shard_reader.DataError(str(self._error)) from self._error
    if self._error is not None:
      raise self._error

  def stop(self) -> None:
    """Stops packing, after the shard that is under way."""
    self._stopped = True
    if self._thread is not None:
      self._thread.join()

  def _run(self, missing: list[int]) -> None:
    try:
      if self._directory is None:
        self._dictionary = self._train_dictionary()
        self._pack_in_turn(missing)
      else:
        self._pack_on_disk(self._directory, missing)
    except Exception as error:
      self._error = error
    finally:
      with self._changed:
        self._changed.notify_all()

  def _arrive(self, suffix: int, packed: packed_shard.PackedShard) -> None:
    self._give(suffix, packed, self._dictionary)
    with self._changed:
      self._done[suffix] = True
      self._changed.notify_all()

  def _pack_on_disk(
    self, directory: StoreDirectory, missing: list[int]
  ) -> None:
    """Packs into the directory, or waits for the process that does."""
    try:
      lock = None
      waiting = False
      while missing and not self._stopped:
        lock = directory.try_lock()
        if lock is not None:
          break
        if not waiting:
          holder = directory.lock_holder
          _log.info('Replay: %s is being packed by %s.', self._data_dir, holder)
        waiting = True
        directory.read()
        missing = self._collect(directory, missing)
        time.sleep(0.5)
      if lock is None:
        return
      with lock:
        directory.begin(self._data_dir, self._suffixes, self._train_dictionary)
        self._pack_in_turn(self._collect(directory, missing))
    except OSError as error:
      raise ValueError(
        f'{directory.path} cannot be written: {error.strerror}; what was packed '
        'before is kept.'
      ) from error

  def _collect(
    self, directory: StoreDirectory, missing: list[int]
  ) -> list[int]:
    """Takes what is packed in the directory by now; returns the rest."""
    self._dictionary = directory.dictionary
    rest = []
    for suffix in missing:
      packed = directory.find(suffix, self._data_dir, quiet=True)
      if packed is None:
        rest.append(suffix)
      else:
        self._arrive(suffix, packed)
    return rest

  def _pack_in_turn(self, missing: list[int]) -> None:
    left = list(missing)
    rows_done, bytes_done, started = 0, 0, time.monotonic()
    compress = packed_shard.compressor(self._dictionary)
    with concurrent.futures.ThreadPoolExecutor(
      machine.num_cpus(), thread_name_prefix='pack'
    ) as pool:
      while left and not self._stopped:
        preferred = [suffix for suffix in self._preferred if suffix in left]
        suffix = (preferred or left)[0]
        left.remove(suffix)
        try:
          packed = self._pack(suffix, compress, pool)
        except ValueError as error:
          if not self._skip_damaged:
            raise
          _log.warning('Shard %d is not used: %s', suffix, error)
          with self._changed:
            self._damaged.add(suffix)
            self._changed.notify_all()
          continue
        machine.return_freed_memory()
        self._arrive(suffix, packed)
        rows_done += packed.columns.rows
        bytes_done += packed.nbytes
        rows_left = sum(self._rows[suffix] for suffix in left)
        seconds = (time.monotonic() - started) / max(rows_done, 1)
        _log.info(
          'Replay: shard %d packed (%d of %d), %.0f bytes a row, %.2g million '
          'rows/min, %.0f min to go.',
          suffix,
          len(missing) - len(left),
          len(missing),
          bytes_done / max(rows_done, 1),
          60e-6 / seconds,
          seconds * rows_left / 60,
        )
        self._check_room(bytes_done / max(rows_done, 1) * rows_left)

  def _pack(
    self,
    suffix: int,
    compress: Callable[[Any], bytes],
    pool: concurrent.futures.ThreadPoolExecutor,
  ) -> packed_shard.PackedShard:
    columns = packed_shard.read_columns(self._data_dir, suffix)
    if columns.digest != self._digests[suffix]:
      raise ValueError(
        f'Shard {suffix} in {self._data_dir} has changed since it was opened.'
      )
    if self._directory is None:
      return packed_shard.pack_to_memory(
        self._data_dir, columns, compress, pool, self._progress
      )
    return packed_shard.pack_to_disk(
      self._data_dir,
      columns,
      self._dictionary,
      compress,
      self._directory.path,
      pool,
      self._progress,
    )

  def _check_room(self, needed: float) -> None:
    """Refuses early what would not fit."""
    if self._directory is None:
      available = machine.available_memory()
      where, remedy = 'of memory', 'set FixedReplayBuffer.cache_dir'
    else:
      available = psutil.disk_usage(self._directory.path).free
      where, remedy = f'in {self._directory.path}', 'make room'
    if needed > available:
      raise ValueError(
        f'The rest of {self._data_dir} needs {needed / 1e9:.1f} GB {where}, and '
        f'{available / 1e9:.1f} GB are free: {remedy}, or use fewer shards.'
      )

  def _train_dictionary(self) -> bytes:
    """Trains it on the first frames of shards from all of the run."""
    spread = np.linspace(0, len(self._suffixes) - 1, 8).round().astype(int)
    runs: list[np.ndarray] = []
    for i in np.unique(spread).tolist():
      suffix = self._suffixes[i]
      name = shard_files.file_name('observation', suffix)
      path = os.path.join(self._data_dir, name)
      # More than padding and a black screen.
      rows = min(self._rows[suffix], 1000)
      try:
        runs += [
          chunk.copy() for _, chunk in shard_reader.iterate_rows(path, rows)
        ]
      except ValueError:
        if not self._skip_damaged:
          raise
    return packed_shard.train_dictionary(runs) if runs else b''
