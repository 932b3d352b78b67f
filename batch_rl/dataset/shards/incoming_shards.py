"""Adds fetched or imported files to a directory of shards.

A file is prepared in the folder `partial`, verified, synced, moved into place and
recorded in `manifest.json` with its hash. Files in place are therefore complete, and
a resumed fetch or import skips them.
"""

import collections
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from batch_rl.dataset.shards import digests as digests_lib
from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  stitching,
)
from batch_rl.utils import files, locks

_LOCK = '.lock'
# Keys of a manifest that describe the whole run, not single shards.
RUN_TOTALS = ('rows', 'safe_rows', 'episodes')


class IncomingShards:
  """Directory of a run's shards, written by one process at a time.

  A context manager: leaving it removes `partial` unless it holds unfinished files.

  Args:
    data_dir: Local directory of the shards, created if it does not exist.
    origin: Origin of the shards, written to the manifest.
    origin_manifest: Manifest of the origin, or empty. Its hashes are verified.

  Raises:
    ValueError: On entering, if another process is writing, or the directory has a
      manifest without an origin.
  """

  def __init__(
    self,
    data_dir: str,
    origin: Mapping[str, Any],
    origin_manifest: Mapping[str, Any] | None = None,
  ):
    self.data_dir = data_dir
    self._origin = dict(origin)
    self._origin_manifest = dict(origin_manifest or {})
    self._expected = manifest_files(self._origin_manifest)
    self._records: dict[str, dict[str, Any]] = {}
    self._manifest_lock = threading.Lock()
    self._lock: Any = None

  def __enter__(self) -> 'IncomingShards':
    os.makedirs(self.partial(''), exist_ok=True)
    self._lock = locks.acquire(self.partial(_LOCK), self.data_dir)
    self._records = recorded_files(self.data_dir)
    if not self._origin_manifest:
      # The origin's manifest may be gone; keep an earlier copy of it.
      manifest = manifests.read(self.data_dir)
      manifest.pop('origin', None)
      self._origin_manifest = manifest
    return self

  def __exit__(self, kind, error, traceback):
    if set(os.listdir(self.partial(''))) <= {_LOCK}:
      shutil.rmtree(self.partial(''))
    self._lock.close()

  def partial(self, name: str) -> str:
    """Returns the path at which a file is prepared."""
    return os.path.join(self.data_dir, shard_files.PARTIAL, name)

  def has(self, name: str) -> bool:
    """Returns whether a file is in place and recorded."""
    record = self._records.get(name, {})
    path = os.path.join(self.data_dir, name)
    return os.path.exists(path) and os.path.getsize(path) == record.get('bytes')

  def complete_suffixes(self) -> list[int]:
    """Returns the numbers of the shards with all their files in place."""
    shards = shard_files.missing_files(self.data_dir)
    return [suffix for suffix, missing in shards.items() if not missing]

  def accept(
    self,
    name: str,
    hashes: Mapping[str, str] | None = None,
    path: str | None = None,
  ) -> None:
    """Verifies a prepared file and moves it into place.

    Args:
      name: Name in the dataset's format.
      hashes: Expected hashes besides those of the origin's manifest; see
        `check_file`.
      path: Current path of the file; default: `partial(name)`.

    Raises:
      ValueError: If the file is damaged, or not the expected one.
    """
    sha256 = manifests.look_up(self._expected, name, 'sha256', kind=str)
    hashes = {**(hashes or {}), **({'sha256': sha256} if sha256 else {})}
    final = os.path.join(self.data_dir, name)
    path = path or self.partial(name)
    record = check_file(path, name, hashes)
    if path != final:
      files.sync(path)
      os.replace(path, final)
      files.sync(self.data_dir)
    self._records[name] = record
    self.finish()

  def finish(self) -> None:
    """Writes the manifest, even if no file was accepted."""
    with self._manifest_lock:
      manifests.write(self.data_dir, self._manifest())

  def _manifest(self) -> dict[str, Any]:
    by_suffix: dict[int, dict[str, Any]] = collections.defaultdict(dict)
    for name, record in list(self._records.items()):
      suffix = shard_files.suffix_of(name)
      path = os.path.join(self.data_dir, name)
      if suffix is not None and os.path.exists(path):
        by_suffix[suffix][name] = record
    origin = self._origin_manifest
    entries = {
      suffix: entry
      for entry in manifests.look_up(origin, 'shards', kind=list) or []
      if (suffix := manifests.look_up(entry, 'suffix', kind=int)) is not None
    }
    manifest: dict[str, Any] = {'manifest_version': 1, **origin}
    if set(entries) - set(by_suffix):
      for key in RUN_TOTALS:
        manifest.pop(key, None)
    manifest['origin'] = self._origin
    manifest['shards'] = [
      {
        'suffix': suffix,
        **entries.get(suffix, {}),
        'files': dict(sorted(records.items())),
      }
      for suffix, records in sorted(by_suffix.items())
    ]
    return manifest


def manifest_files(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Returns a manifest's records of shard files, by name."""
  records: dict[str, Any] = {}
  for entry in manifests.look_up(manifest, 'shards', kind=list) or []:
    records |= manifests.look_up(entry, 'files', kind=dict) or {}
  return {
    name: record
    for name, record in records.items()
    if shard_files.suffix_of(name) is not None and isinstance(record, dict)
  }


def recorded_files(data_dir: str) -> dict[str, dict[str, Any]]:
  """Returns the local manifest's records of fetched or imported files, by name.

  Raises:
    ValueError: If the shards were not fetched or imported, or the manifest cannot
      be read.
  """
  manifest = manifests.read(data_dir)
  if manifest and 'origin' not in manifest:
    raise ValueError(
      f'{data_dir} holds a run that was not fetched or imported, according to its '
      'manifest; choose another directory.'
    )
  return manifest_files(manifest)


def check_file(
  path: str, name: str, expected: Mapping[str, str] | None = None
) -> dict[str, Any]:
  """Verifies gzip checksum, format and hashes of a shard file in one pass.

  Args:
    path: Path of the file.
    name: Name in the dataset's format.
    expected: Expected hashes; see `digests.Digests`.

  Returns:
    `{'bytes', 'sha256'}` of the file.

  Raises:
    ValueError: If the file is damaged, or not the expected one.
  """
  digests = digests_lib.Digests(expected or {})
  column = shard_files.column_of(name)
  if column == 'observation':
    for _ in shard_reader.iterate_rows(path, digest=digests):
      pass
  elif column in shard_files.FILES:
    shard_reader.read_array(path, digest=digests)
  else:  # a pickle, which no reader opens
    digests.read(path)
  digests.check(path)
  return {'bytes': os.path.getsize(path), 'sha256': digests.sha256()}


def check_shards(
  data_dir: str, suffixes: Sequence[int]
) -> tuple[list[str], list[str]]:
  """Checks that complete shards belong together.

  Args:
    data_dir: Directory of the shards.
    suffixes: Numbers of the complete shards to check.

  Returns:
    Errors, and gaps and repetitions between the shards, one line each.
  """
  try:
    return [], stitching.place(data_dir, suffixes)[1]
  except ValueError as error:
    return [str(error)], []
