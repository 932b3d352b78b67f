"""Opens a run, and packs its shards on a background thread."""

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
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
  store_directory,
)
from batch_rl.utils import locks, machine, progress_bars

# Frames that the dictionary is trained on; more than 8 x 1,000 of Atari.
_DICTIONARY_BYTES = 1 << 26


class PackedRun(frame_blocks.RunFrames):
  """A run whose shards are packed in the background, one at a time, on all cores.

  Shards are packed into memory or into a directory. One process packs into a
  directory, and the others use its packed shards.

  Args:
    data_dir: Directory of the shards (`<run>/replay_logs`), or a store.
    suffixes: Number or numbers of the shards to use, ascending; None for all.
    directory: Directory to keep packed shards in, for other runs and processes
      too; None for memory only.
    max_rows: Number of rows to use from the start of each shard's ring; None for
      all.
    preload: Whether to read shards packed on disk into memory rather than map
      them.
    skip_damaged: Whether to skip damaged shards, with a warning, rather than
      fail.
    pack: Whether to start packing at once (see `start`).
    made_by: Command that makes the directory; see `StoreDirectory.begin`.

  Attributes:
    requested: Numbers of the requested shards, damaged ones included.
    is_on_disk: Whether packed shards are kept in a directory.
    damaged: Numbers of the shards skipped because their frames are damaged.

  Raises:
    ValueError: If a shard is missing or damaged, has a reward that is not finite,
      or these are not shards of one run.
    ReadError: If a file cannot be read at the moment.
  """

  def __init__(
    self,
    data_dir: str,
    suffixes: int | Sequence[int] | None = None,
    directory: str | None = None,
    max_rows: int | None = None,
    preload: bool = False,
    skip_damaged: bool = False,
    pack: bool = True,
    made_by: str | None = None,
  ):
    self.data_dir = data_dir
    self._skip_damaged = skip_damaged
    self._progress: Callable[[int], Any] = lambda rows: None
    self._made_by = made_by
    self._preferred: list[int] = []
    self.damaged: frozenset[int] = frozenset()
    self._changed = threading.Condition()
    self._error: Exception | None = None
    self._stopped = False
    self._thread: threading.Thread | None = None
    self._is_converted = store_directory.is_store(data_dir)
    path = data_dir if self._is_converted else directory
    self._directory = (
      store_directory.StoreDirectory(path, preload) if path else None
    )
    self.is_on_disk = self._directory is not None
    available = store_directory.list_shards(data_dir, skip_damaged)
    chosen: Any = available if suffixes is None else suffixes
    if isinstance(chosen, bool | float):
      raise ValueError(f'shards={chosen}: give a number, or several.')
    is_one = isinstance(chosen, int | np.integer)
    self.requested = [chosen] if is_one else list(chosen)
    if not self.requested or sorted(set(self.requested)) != self.requested:
      raise ValueError(
        f'shards={self.requested}: give at least one number, in ascending order.'
      )
    # Opening skips incomplete ones.
    known = shard_files.missing_files(data_dir) if skip_damaged else {}
    for suffix in self.requested:
      if suffix not in available and suffix not in known:
        raise ValueError(f'There is no shard {suffix!r} in {data_dir}.')
    self.requested = [*map(int, self.requested)]  # JSON has no NumPy integers.
    self._recorded = manifests.file_records(manifests.read(data_dir))
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
      opened = [*filter(None, pool.map(self._open_shard, self.requested))]
    if not opened:
      raise ValueError(f'Every shard in {self.data_dir} is damaged.')
    first, last = self.requested[0], self.requested[-1]
    columns = [columns for columns, _ in opened]
    listed = [suffix for suffix in available if first <= suffix <= last]
    super().__init__(data_dir, columns, listed, max_rows)
    self._check_rewards(self.reward, last)
    for suffix, (_, packed) in zip(self.suffixes, opened, strict=True):
      if packed is not None and self._directory is not None:
        self.add(suffix, packed, self._directory.dictionary)
    if pack:
      self.start()

  def _open_shard(self, suffix):
    """Returns a shard's small columns, and the shard if it is packed already."""
    try:
      directory, packed = self._directory, None
      if directory is not None and self._is_converted:
        packed = directory.open(suffix)
      elif directory is not None:
        packed = directory.find(suffix, self.data_dir)
      columns = (
        packed.columns if packed else packed_columns.read(self.data_dir, suffix)
      )
      # The ring's last row may be stale; it is checked below if it is in the run.
      count = columns.rows if self._skip_damaged else columns.prefix
      self._check_rewards(columns.reward[:count], suffix)
      manifests.check_files(self.data_dir, self._recorded, columns.sources)
      return columns, packed
    except ValueError as error:
      if not self._skip_damaged:
        raise
      logging.warning('Shard %d is not used: %s', suffix, error)
      return None

  def _check_rewards(self, rewards, suffix):
    if rewards.dtype.kind != 'f':  # most runs: no pass over all rows
      return
    if len(wrong := rewards[~np.isfinite(rewards)]):
      raise ValueError(
        f'Shard {suffix} in {self.data_dir} has reward {wrong[0]}; run `batch-rl '
        f'dataset verify {self.data_dir}` to check all files.'
      )

  def _name_and_remedy(self, suffix: int) -> tuple[str, str]:
    """See the base class."""
    if self._directory is None:
      return f'Shard {suffix} of {self.data_dir}, in memory,', 'start again'
    remedy = self._directory.remedy if self._is_converted else 'start again'
    path, _ = packed_shard.paths(self._directory.path, suffix)
    return path, f'delete it and {remedy}'

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

  def pack(self, title: str = 'packing', show_progress: bool = True) -> None:
    """Packs the remaining shards, with a progress bar; raises the errors of `wait`.

    Args:
      title: Title of the progress bar.
      show_progress: Whether to show it in a terminal.
    """
    total = sum(map(self.capacity, self._missing()))
    off = None if show_progress and total else True
    with progress_bars.meter(total, 'row', title, disable=off, delay=1) as bar:
      self._progress = bar.update
      self.start()
      with contextlib.closing(self):
        self.wait()

  def prefer(self, suffixes: Iterable[int]) -> None:
    """Packs these shards next."""
    self._preferred = list(suffixes)

  def wait(self, suffixes: Iterable[int] | None = None) -> None:
    """Waits until shards are packed.

    Args:
      suffixes: Numbers of the shards; None for all.

    Raises:
      ValueError: If a shard cannot be packed, or packing was not started or was
        stopped.
    """
    if self._thread is None:
      raise ValueError(
        f'Packing of {self.data_dir} has not begun: call start(), or open it with '
        'pack=True.'
      )
    shards = set(self.suffixes if suffixes is None else suffixes)
    with self._changed:
      # With skip_damaged, no caller waits for a shard known to be damaged.
      while shards - self.damaged - {*self.packed}:
        self.raise_packing_error()
        if self._stopped:
          raise ValueError(
            f'Packing of {self.data_dir} was stopped by close(): open it again.'
          )
        if not self._thread.is_alive():
          raise ValueError(
            f'{self.data_dir} is packed by the process that this one was forked from: '
            'fork after wait(), or open it here.'
          )
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

  def close(self, wait: bool = True) -> None:
    """Stops packing after the current shard; packed shards remain usable.

    Args:
      wait: Whether to wait for the current shard.
    """
    self._stopped = True
    if self._thread is not None and wait:
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
    return sorted({*self.suffixes} - {*self.packed})

  def _publish(
    self, suffix: int, packed: packed_shard.PackedShard, dictionary: bytes
  ) -> None:
    self.add(suffix, packed, dictionary)
    with self._changed:
      self._changed.notify_all()

  def _pack_on_disk(self, directory: store_directory.StoreDirectory) -> None:
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
            self._collect(directory)
            self._pack_in_turn(directory.dictionary)
          return
        text = 'Replay: %d shards of %s are being packed by %s.'
        holder = locks.lock_holder(directory.lock_path)
        logging.log_every_n_seconds(
          logging.INFO, text, 60, len(missing), self.data_dir, holder
        )
        directory.read()
        self._collect(directory)
        time.sleep(0.5)
    except shard_reader.ReadError:
      raise
    except OSError as error:
      raise ValueError(
        f'{directory.path} cannot be written: {error.strerror}; the shards packed '
        'so far are kept.'
      ) from error

  def _collect(self, directory: store_directory.StoreDirectory) -> None:
    """Publishes shards that another process has packed."""
    for suffix in self._missing():
      packed = directory.find(suffix, self.data_dir, quiet=True)
      if packed is not None:
        self.check_unchanged(suffix, packed.columns.digest)
        self._publish(suffix, packed, directory.dictionary)

  def _pack_in_turn(self, dictionary: bytes) -> None:
    left = self._missing()
    count, rows_done, bytes_done = len(left), 0, 0
    rows = dict(zip(self.suffixes, self.rows_kept.tolist(), strict=True))
    path = self._directory.path if self._directory else None
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
          self.check_unchanged(suffix, columns.digest)
          packed = shard_packing.pack(
            self.data_dir, columns, dictionary, pool, self._progress, path
          )
          if self._directory and self._directory.preload:
            packed = self._directory.open(suffix)
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

  def _check_room(self, needed: float) -> None:
    """Fails early if the remaining shards will not fit."""
    if self._directory is None:
      available = machine.available_memory()
      where = 'of memory'
      remedy = 'set cache_dir (FixedReplayBuffer, open) or offline_cache_dir'
    else:
      available = psutil.disk_usage(self._directory.path).free
      where, remedy = f'in {self._directory.path}', 'make room'
    if needed > available:
      raise ValueError(
        f'The rest of {self.data_dir} needs {needed / 1e9:.3g} GB {where}, but '
        f'only {available / 1e9:.3g} GB are free: {remedy}, or use fewer shards.'
      )

  def _train_dictionary(self) -> bytes:
    """Trains the dictionary on the first frames of shards across the run."""
    places = np.linspace(0, len(self.suffixes) - 1, 8).round()
    spread = np.unique(places.astype(int))
    frames: list[np.ndarray] = []
    for i in spread.tolist():
      path = shard_files.path(self.data_dir, 'observation', self.suffixes[i])
      # Enough to go beyond padding and a black first screen.
      most = _DICTIONARY_BYTES // (len(spread) * self._frame_bytes)
      rows = min(self.rows_kept[i], 1000, max(1, most))
      try:
        for _, chunk in shard_reader.iterate_rows(path, rows):
          frames.append(chunk.copy())
      except ValueError:
        if not self._skip_damaged:
          raise
    return compression_dictionary.train(frames) if frames else b''
