"""Packs the shards of a run on a background thread."""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import psutil
from absl import logging

from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import (
  compression_dictionary,
  frame_blocks,
  packed_columns,
  packed_shard,
  shard_packing,
)
from batch_rl.dataset.store.store_directory import StoreDirectory
from batch_rl.utils import machine

# Frames that the dictionary is trained on; more than 8 x 1,000 of Atari.
_DICTIONARY_BYTES = 1 << 26


class PackedRun(frame_blocks.RunFrames):
  """A run whose shards are packed in the background, one at a time, on all cores.

  Shards are packed into memory or into a directory. One process packs into a
  directory, and the others use its packed shards.

  Args:
    directory: Directory of the store; None for memory.
    skip_damaged: Whether to skip damaged shards rather than fail.
    progress: Callback that receives the number of rows packed each time.
    made_by: Command that makes the directory; see `StoreDirectory.begin`.
    *run: Arguments of `RunFrames`.

  Attributes:
    damaged: Numbers of the shards skipped because their frames are damaged.
  """

  def __init__(
    self,
    directory: StoreDirectory | None,
    skip_damaged: bool,
    progress: Callable[[int], None],
    made_by: str | None,
    *run: Any,
  ):
    super().__init__(*run)
    self._directory: Any = directory
    self._skip_damaged = skip_damaged
    self._progress = progress
    self._made_by = made_by
    self._preferred: list[int] = []
    self.damaged: frozenset[int] = frozenset()
    self._changed = threading.Condition()
    self._error: Exception | None = None
    self._stopped = False
    self._thread: threading.Thread | None = None

  def start(self, first: Iterable[int] = ()) -> None:
    """Starts packing the remaining shards in the background.

    Args:
      first: Numbers of the shards to begin with.
    """
    self.prefer(first)
    self._thread = threading.Thread(
      target=self._pack_all, name='packer', daemon=True
    )
    self._thread.start()

  def prefer(self, suffixes: Iterable[int]) -> None:
    """Packs these shards next."""
    self._preferred = list(suffixes)

  def wait(
    self, suffixes: Iterable[int] | None = None, count: int | None = None
  ) -> None:
    """Waits until shards are packed.

    Args:
      suffixes: Numbers of the shards; None for all.
      count: Number of these shards to wait for; None for all.

    Raises:
      ValueError: If a shard cannot be packed, or packing was not started or was
        stopped.
    """
    if self._thread is None:
      raise ValueError(f'The store of {self.data_dir} was not started.')
    shards = set(self.suffixes if suffixes is None else suffixes)
    with self._changed:
      while True:
        # With skip_damaged, no caller waits for a shard known to be damaged.
        wanted = shards - self.damaged
        packed = len(wanted.intersection(self.packed))
        if packed >= min(count or len(wanted), len(wanted)):
          return
        self.raise_packing_error()
        if self._stopped:
          raise ValueError(f'The store of {self.data_dir} was closed.')
        self._changed.wait()

  def raise_packing_error(self) -> None:
    """Raises the error of packing, if there was one.

    Raises:
      DataError: If data turned out damaged, or too large.
    """
    if isinstance(self._error, ValueError):
      raise shard_reader.DataError(str(self._error)) from self._error
    if self._error is not None:
      raise self._error

  def raise_error(self) -> None:
    """Raises the error of packing or decoding, if there was one.

    Raises:
      DataError: If data turned out damaged, or too large.
    """
    if self._fault is not None:
      raise self._fault
    self.raise_packing_error()

  def close(self) -> None:
    """Stops packing after the current shard; packed shards remain usable."""
    self._stopped = True
    if self._thread is not None:
      self._thread.join()

  def _pack_all(self) -> None:
    try:
      if self._directory is None:
        self._pack_in_turn(self._train_dictionary())
      else:
        self._pack_on_disk(self._directory)
    except Exception as error:
      self._error = error
    finally:
      with self._changed:
        self._changed.notify_all()

  def _missing(self) -> list[int]:
    packed = set(self.packed)
    return [suffix for suffix in self.suffixes if suffix not in packed]

  def _publish(
    self, suffix: int, packed: packed_shard.PackedShard, dictionary: bytes
  ) -> None:
    self.add(suffix, packed, dictionary)
    with self._changed:
      self._changed.notify_all()

  def _pack_on_disk(self, directory: StoreDirectory) -> None:
    """Packs into the directory, or waits for another process that does."""
    try:
      while (missing := self._missing()) and not self._stopped:
        lock = directory.try_lock()
        if lock is not None:
          with lock:
            directory.begin(
              self.data_dir,
              self.suffixes,
              self._train_dictionary,
              manifests.read(self.data_dir),
              self._made_by,
            )
            self._collect(directory, missing)
            self._pack_in_turn(directory.dictionary)
          return
        logging.log_every_n_seconds(
          logging.INFO,
          'Replay: %d shards of %s are being packed by %s.',
          60,
          len(missing),
          self.data_dir,
          directory.lock_holder,
        )
        directory.read()
        self._collect(directory, missing)
        time.sleep(0.5)
    except shard_reader.ReadError:
      raise
    except OSError as error:
      raise ValueError(
        f'{directory.path} cannot be written: {error.strerror}; the shards packed '
        'so far are kept.'
      ) from error

  def _collect(self, directory: StoreDirectory, missing: Iterable[int]) -> None:
    """Publishes shards that another process has packed."""
    for suffix in missing:
      packed = directory.find(suffix, self.data_dir, quiet=True)
      if packed is not None:
        self._check_unchanged(packed.columns)
        self._publish(suffix, packed, directory.dictionary)

  def _pack_in_turn(self, dictionary: bytes) -> None:
    left = self._missing()
    count, rows_done, bytes_done = len(left), 0, 0
    rows = dict(zip(self.suffixes, self.rows_kept.tolist(), strict=True))
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(
      machine.num_cpus(), thread_name_prefix='pack'
    ) as pool:
      while left and not self._stopped:
        preferred = [suffix for suffix in self._preferred if suffix in left]
        suffix = (preferred or left)[0]
        left.remove(suffix)
        try:
          columns = packed_columns.read(self.data_dir, suffix)
          self._check_unchanged(columns)
          packed = shard_packing.pack(
            self.data_dir,
            columns,
            dictionary,
            pool,
            self._progress,
            self._directory.path if self._directory else None,
          )
        except ValueError as error:
          if not self._skip_damaged:
            raise
          logging.warning('Shard %d is not used: %s', suffix, error)
          with self._changed:
            self.damaged |= {suffix}
            self._changed.notify_all()
          continue
        machine.return_freed_memory()
        self._publish(suffix, packed, dictionary)
        rows_done += rows[suffix]
        bytes_done += len(packed.blocks)
        rows_left = sum(rows[suffix] for suffix in left)
        row_bytes = bytes_done / max(rows_done, 1)
        rate = rows_done / (time.monotonic() - started)
        logging.info(
          'Replay: shard %d packed (%d of %d), %.0f bytes a row, %.2g million '
          'rows/min, %.0f s to go.',
          suffix,
          count - len(left),
          count,
          row_bytes,
          60e-6 * rate,
          rows_left / max(rate, 1e-9),
        )
        self._check_room(row_bytes * rows_left)

  def _check_unchanged(self, columns: packed_columns.Columns) -> None:
    packed_columns.check_unchanged(
      columns, self.data_dir, self.digest(columns.suffix)
    )

  def _check_room(self, needed: float) -> None:
    """Fails early if the remaining shards will not fit."""
    if self._directory is None:
      available = machine.available_memory()
      where, remedy = 'of memory', 'set FixedReplayBuffer.cache_dir'
    else:
      available = psutil.disk_usage(self._directory.path).free
      where, remedy = f'in {self._directory.path}', 'make room'
    if needed > available:
      raise ValueError(
        f'The rest of {self.data_dir} needs {needed / 1e9:.1f} GB {where}, but '
        f'only {available / 1e9:.1f} GB are free: {remedy}, or use fewer shards.'
      )

  def _train_dictionary(self) -> bytes:
    """Trains the dictionary on the first frames of shards across the run."""
    spread = np.unique(
      np.linspace(0, len(self.suffixes) - 1, 8).round().astype(int)
    )
    frames: list[np.ndarray] = []
    for i in spread.tolist():
      suffix = self.suffixes[i]
      path = shard_files.path(self.data_dir, 'observation', suffix)
      # Enough to go beyond padding and a black first screen.
      rows = min(self.rows_kept[i], 1000)
      room = _DICTIONARY_BYTES // len(spread)
      try:
        for _, chunk in shard_reader.iterate_rows(path, rows):
          frames.append(chunk.copy())
          room -= chunk.nbytes
          if room <= 0:
            break
      except ValueError:
        if not self._skip_damaged:
          raise
    return compression_dictionary.train(frames) if frames else b''
