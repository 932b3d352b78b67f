"""Shards in the layout of the DQN Replay Dataset, `<Game>/<run>/replay_logs`."""

import collections
import contextlib
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from batch_rl.dataset.fetch import fetched_run, partial_file
from batch_rl.dataset.shards import digests as digests_lib
from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  stitching,
)
from batch_rl.dataset.store import store_directory
from batch_rl.utils import files, locks

# Number of shards to ask for without a listing; no run of the dataset has more.
_MAX_SHARDS = 51
_LOCK = '.lock'


class ShardRun(fetched_run.FetchedRun):
  """Shards of six files; they are fetched as they are.

  A file is prepared in the folder `partial`, verified, synced, moved into place and
  recorded in `manifest.json` with its hash. Files in place are therefore complete, and
  a resumed fetch skips them. At the end `partial` is removed, unless it holds
  unfinished files.

  Raises:
    ValueError: If the directory is a store, or has shards that were not fetched or
      imported.
  """

  unit = 'shard'
  advice = (
    "The dataset's public bucket, gs://atari-replay-datasets/dqn, has refused many "
    'users since 2025. Alternatives: RL Unplugged, the same runs of 46 games (`fetch '
    'gs://rl_unplugged --layout=unplugged`), local copies, in any layout (`python -m '
    'batch_rl.dataset import`), the RLDS copy, rlu_atari_checkpoints_ordered '
    '(`import` reads it), and your own data (`python -um batch_rl.baselines.train`).'
  )

  def __init__(self, source: str, game: str, number: int, directory: str):
    super().__init__(source, game, number, directory)
    self.folder = f'{game}/{number}/{shard_files.REPLAY_LOGS}'
    if store_directory.is_store(directory):
      raise ValueError(
        f'{directory} is a store, not a directory of shards; choose another --data_dir.'
      )
    self._data_dir = os.path.join(directory, shard_files.REPLAY_LOGS)
    self._manifest_lock = threading.Lock()
    # The manifest in the directory, and its records of files in place, by name.
    self._local: dict[str, Any] = {}
    self._records: dict[str, dict[str, Any]] = {}
    if os.path.isdir(self._data_dir):
      self._read_manifest()

  def _read_manifest(self) -> None:
    self._local = manifests.read(self._data_dir)
    if self._local and 'origin' not in self._local:
      raise ValueError(
        f'{self._data_dir} holds a run that was not fetched or imported, according to '
        'its manifest; choose another directory.'
      )
    self._records = manifests.file_records(self._local)

  def names(self, number: int) -> list[str]:
    """See the base class."""
    return [shard_files.file_name(name, number) for name in shard_files.FILES]

  def all_numbers(self, found: Collection[int]) -> Sequence[int]:
    """See the base class."""
    return sorted(found) or range(_MAX_SHARDS)

  def has(self, name: str, size: int | None) -> bool:
    """See the base class."""
    final = os.path.join(self._data_dir, name)
    if not os.path.exists(final):
      return False
    sha256 = self._expected_hash(name)
    local_size = os.path.getsize(final)
    record = self._records.get(name)
    differs = record and sha256 not in (None, record.get('sha256'))
    if differs or size not in (None, local_size):
      raise ValueError(
        f'{final} ({local_size:,} B) is not the file that {self.source} has '
        f'({"?" if size is None else f"{size:,}"} B): does it belong to another run? '
        'Move it away, or choose another --data_dir.'
      )
    return True

  def _expected_hash(self, name: str) -> str | None:
    """Returns the SHA-256 of a file in the remote's manifest, if it has one."""
    return manifests.file_records(self.manifest).get(name, {}).get('sha256')

  def partial(self, name: str) -> str:
    """See the base class."""
    return os.path.join(self._data_dir, shard_files.PARTIAL, name)

  def open(self, stack: contextlib.ExitStack) -> None:
    """See the base class."""
    lock = locks.acquire(self.partial(_LOCK), self._data_dir)
    stack.enter_context(lock)
    stack.callback(self._remove_empty, lock)
    self._read_manifest()

  def _remove_empty(self, lock: locks.Lock) -> None:
    if set(os.listdir(self.partial(''))) <= {_LOCK}:
      lock.remove()

  def accept(
    self, file: fetched_run.FilePlan, partial: partial_file.PartialFile
  ) -> None:
    """See the base class."""
    final = os.path.join(self._data_dir, file.name)
    if file.there:
      recorded = self._records.get(file.name, {}).get('bytes')
      if os.path.exists(final) and os.path.getsize(final) == recorded:
        return
      try:
        record = self._check_file(file.name, final, partial.hashes)
      except ValueError as error:
        raise ValueError(f'{error} Move it away and fetch again.') from None
    else:
      path = self.partial(file.name)
      record = self._check_file(file.name, path, partial.hashes)
      files.sync(path)
      # Before the move: later fetches skip a file in place.
      partial.remove_note()
      os.replace(path, final)
      files.sync(self._data_dir)
    self._records[file.name] = record
    self._write_manifest()

  def _check_file(
    self, name: str, path: str, hashes: Mapping[str, str]
  ) -> dict[str, Any]:
    """Verifies gzip checksum, format and hashes of a file in one pass.

    Returns:
      `{'bytes', 'sha256'}` of the file.

    Raises:
      ValueError: If the file is damaged, or not the expected one.
    """
    expected = {**hashes, 'sha256': self._expected_hash(name)}
    digests = digests_lib.Digests(expected)
    for _ in shard_reader.iterate_rows(path, digest=digests):
      pass
    digests.check(path)
    return {'bytes': os.path.getsize(path), 'sha256': digests.sha256()}

  def finish(self) -> tuple[list[str], list[str], None]:
    """See the base class."""
    self._write_manifest()
    shards = shard_files.missing_files(self._data_dir)
    complete = [suffix for suffix, missing in shards.items() if not missing]
    try:
      return [], stitching.find_problems(self._data_dir, complete), None
    except ValueError as error:
      return [str(error)], [], None

  def _write_manifest(self) -> None:
    """Writes the manifest; without one at the remote, an earlier copy is kept."""
    with self._manifest_lock:
      by_suffix: dict[int, dict[str, Any]] = collections.defaultdict(dict)
      for name, record in list(self._records.items()):
        suffix = shard_files.suffix_of(name)
        path = os.path.join(self._data_dir, name)
        if suffix is not None and os.path.exists(path):
          by_suffix[suffix][name] = record
      described = self.manifest or self._local
      entries = {e.get('suffix'): e for e in described.get('shards') or []}
      manifest: dict[str, Any] = {'manifest_version': 1, **described}
      if set(entries) - {None, *by_suffix}:
        for key in manifests.RUN_TOTALS:
          manifest.pop(key, None)
      manifest['origin'] = {'how': 'fetch', 'source': self.source}
      manifest['shards'] = [
        {
          'suffix': suffix,
          **entries.get(suffix, {}),
          'files': dict(sorted(records.items())),
        }
        for suffix, records in sorted(by_suffix.items())
      ]
      manifests.write(self._data_dir, manifest)
