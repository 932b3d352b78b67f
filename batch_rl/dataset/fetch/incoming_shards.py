"""Shards that come from elsewhere, put into the folder of a run file by file.

A file is prepared in the folder `partial`, verified, synced, moved into place, and
noted in `manifest.json` with its hash. So what is in place is whole, and whoever was
stopped knows what is there.
"""

import base64
import collections
import concurrent.futures
import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from batch_rl.dataset.shards import (
  manifests,
  shard_files,
  shard_reader,
  stitching,
)
from batch_rl.utils import files, locks

_LOCK = '.lock'
# Of a manifest, what is said of a run as a whole.
OF_THE_WHOLE = ('rows', 'safe_rows', 'episodes')


class Arrivals:
  """The folder of a run's shards, while they arrive.

  A context manager: one process at a time is in a folder.

  Args:
    logs: the folder; local, made if it does not exist.
    origin: goes into the manifest: where the shards are from.
    described: the manifest at the origin, or empty. Its hashes have to hold.

  Raises:
    ValueError: by `with`, if another process is at it, or there are shards with
      a manifest that is not of an origin.
  """

  def __init__(
    self,
    logs: str,
    origin: Mapping[str, Any],
    described: Mapping[str, Any] | None = None,
  ):
    self.logs = logs
    self._origin = dict(origin)
    self._described = dict(described or {})
    self._promised = files_of(self._described)
    self._noted: dict[str, dict[str, Any]] = {}
    self._change = threading.Lock()
    self._lock: Any = None

  def __enter__(self) -> 'Arrivals':
    os.makedirs(self.partial(''), exist_ok=True)
    path = self.partial(_LOCK)
    self._lock = locks.try_lock(path)
    if self._lock is None:
      raise ValueError(
        f'{self.logs} is being written by {locks.lock_holder(path)}.'
      )
    self._noted = noted(self.logs)
    if not self._described:
      # The source says nothing (any more); what it said before is still true.
      before = manifests.read(self.logs)
      self._described = {k: v for k, v in before.items() if k != 'origin'}
    return self

  def __exit__(self, kind, error, traceback):
    if set(os.listdir(self.partial(''))) <= {_LOCK}:
      shutil.rmtree(self.partial(''))
    self._lock.close()

  def partial(self, name: str) -> str:
    """Where a file is prepared."""
    return os.path.join(self.logs, shard_files.PARTIAL, name)

  def has(self, name: str, identity: list[int] | None = None) -> bool:
    """Whether a file is in place, and noted.

    Args:
      name: of the file; that of the format.
      identity: what was given to `accept`, if that matters.
    """
    entry = self._noted.get(name, {})
    if identity is not None and entry.get('identity') != identity:
      return False
    path = os.path.join(self.logs, name)
    return os.path.exists(path) and os.path.getsize(path) == entry.get('bytes')

  def accept(
    self,
    name: str,
    hashes: Mapping[str, str] | None = None,
    come_from: str | None = None,
    path: str | None = None,
    identity: list[int] | None = None,
  ) -> None:
    """Verifies a file that was prepared, and moves it into place.

    Args:
      name: of the file; that of the format.
      hashes: what it has to have beside what the origin's manifest says; see
        `check_file`.
      come_from: the name it had, for the manifest.
      path: where it is, if it was not prepared in `partial`.
      identity: of the file that it was made of, for `has`.

    Raises:
      ValueError: if it is damaged, or not the file that it should be.
    """
    promised = manifests.look_up(self._promised, name, 'sha256', kind=str)
    hashes = {**(hashes or {}), **({'sha256': promised} if promised else {})}
    final = os.path.join(self.logs, name)
    path = path or self.partial(name)
    entry = check_file(path, name, hashes)
    if come_from:
      entry['from'] = come_from
    if identity:
      entry['identity'] = identity
    if path != final:
      sync(path)
      os.replace(path, final)
      self.remove(name)  # still there if both were links to one file
      files.sync_directory(self.logs)
    with self._change:
      self._noted[name] = entry
      self._write()

  def remove(self, name: str) -> None:
    """Forgets what was prepared of a file."""
    with contextlib.suppress(FileNotFoundError):
      os.remove(self.partial(name))

  def finish(self) -> None:
    """Writes the manifest, if no file has been the occasion."""
    with self._change:
      self._write()

  def _write(self) -> None:
    by_suffix: dict[int, dict[str, Any]] = collections.defaultdict(dict)
    for name, entry in self._noted.items():
      suffix = shard_files.suffix_of(name)
      if suffix is not None and os.path.exists(os.path.join(self.logs, name)):
        by_suffix[suffix][name] = entry
    entries = {
      suffix: entry
      for entry in manifests.look_up(self._described, 'shards', kind=list) or []
      if (suffix := manifests.look_up(entry, 'suffix', kind=int)) is not None
    }
    manifest: dict[str, Any] = {'manifest_version': 1, **self._described}
    if set(entries) - set(by_suffix):
      for key in OF_THE_WHOLE:
        manifest.pop(key, None)
    manifest['origin'] = self._origin
    manifest['shards'] = [
      {
        'suffix': suffix,
        **entries.get(suffix, {}),
        'files': dict(sorted(found.items())),
      }
      for suffix, found in sorted(by_suffix.items())
    ]
    files.write_json(os.path.join(self.logs, manifests.FILE_NAME), manifest)


def files_of(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """What a manifest says of each file of its shards, by name."""
  found = {}
  for entry in manifests.look_up(manifest, 'shards', kind=list) or []:
    for name, about in (
      manifests.look_up(entry, 'files', kind=dict) or {}
    ).items():
      if shard_files.suffix_of(name) is not None and isinstance(about, dict):
        found[name] = about
  return found


def noted(logs: str) -> dict[str, dict[str, Any]]:
  """What is noted of the files in a folder of shards that arrived; by name.

  Raises:
    ValueError: if its shards were made here, or its manifest cannot be read.
  """
  manifest = manifests.read(logs)
  if manifest and 'origin' not in manifest:
    raise ValueError(
      f'{logs} holds a run that was not fetched or imported, by its manifest; '
      'choose another directory.'
    )
  return files_of(manifest)


class Hashes:
  """Digests of a file by kind, to be compared with those that it should have.

  Args:
    expected: by kind: 'sha256' in hex; 'md5' and 'crc32c' in base64, as object
      stores give them. sha256 is always made; crc32c needs google-crc32c, which
      comes with gcsfs.
  """

  def __init__(self, expected: Mapping[str, str]):
    self._expected = dict(expected)
    self._digests: dict[str, Any] = {'sha256': hashlib.sha256()}
    if 'md5' in expected:
      self._digests['md5'] = hashlib.md5(usedforsecurity=False)
    if 'crc32c' in expected:
      with contextlib.suppress(ImportError):
        import google_crc32c

        self._digests['crc32c'] = google_crc32c.Checksum()

  def update(self, data: bytes) -> None:
    """Takes the next bytes of the file."""
    for digest in self._digests.values():
      digest.update(data)

  def sha256(self) -> str:
    """In hex."""
    return self._digests['sha256'].hexdigest()

  def check(self, path: str) -> None:
    """Compares.

    Raises:
      ValueError: if one is not as expected.
    """
    for kind, digest in self._digests.items():
      found = (
        digest.hexdigest()
        if kind == 'sha256'
        else base64.b64encode(digest.digest()).decode()
      )
      if found != self._expected.get(kind, found):
        raise ValueError(
          f'{path} is damaged: its {kind} is {found[:12]}..., not '
          f'{self._expected[kind][:12]}...'
        )


def check_file(
  path: str, name: str, expected: Mapping[str, str] | None = None
) -> dict[str, Any]:
  """Reads a file of a shard once, to its end: checksum, format, hashes.

  Args:
    path: where it is.
    name: what it is called in the format.
    expected: see `Hashes`.

  Returns:
    `{'bytes', 'sha256'}`.

  Raises:
    ValueError: if it is damaged, or not the file that it should be.
  """
  hashes = Hashes(expected or {})
  what = shard_files.column_of(name)
  if what in shard_files.COLUMNS:
    header = shard_reader.read_header(path)
    shape = header.shape if header.ndim else ()
    shard_reader.check_column(path, what, shape, header.dtype, header.shape[0])
    for _ in shard_reader.iterate_rows(path, digest=hashes):
      pass
  elif what in shard_files.FILES:
    values = shard_reader.read_array(path, digest=hashes)
    if what == 'add_count':
      shard_reader.check_add_count(path, values)
  else:  # a pickle, which no reader opens
    with open(path, 'rb') as file:
      while chunk := file.read(1 << 20):
        hashes.update(chunk)
  hashes.check(path)
  return {'bytes': os.path.getsize(path), 'sha256': hashes.sha256()}


def check_shards(
  logs: str, suffixes: Sequence[int]
) -> tuple[list[str], list[str]]:
  """Whether files that are whole make up shards of one run.

  Args:
    logs: the folder of the shards.
    suffixes: numbers of shards in it all of whose files are there.

  Returns:
    What is wrong; gaps and repetitions between the shards. A line each.
  """
  wrong = []
  for suffix in suffixes:
    rows = None
    for what in ('terminal', *shard_files.COLUMNS):
      path = os.path.join(logs, shard_files.file_name(what, suffix))
      try:
        header = shard_reader.read_header(path)
        rows = header.shape[0] if rows is None else rows
        shard_reader.check_column(path, what, header.shape, header.dtype, rows)
      except ValueError as error:
        wrong.append(str(error))
  if wrong or not suffixes:
    return wrong, []
  try:
    return [], stitching.place(logs, suffixes)[1]
  except ValueError as error:
    return [str(error)], []


def sync(path: str) -> None:
  """Makes the contents of a local file durable."""
  with open(path, 'rb') as file:
    os.fsync(file.fileno())


def on_each(
  function: Callable[[Any], Any],
  things: Iterable[Any],
  jobs: int,
  stop: Callable[[], None] = lambda: None,
) -> list[Any]:
  """Calls a function with each of many things, some at once.

  Args:
    function: what to call.
    things: with which.
    jobs: how many at once.
    stop: called at the first exception, or Ctrl-C, to end the others that are
      under way; what has not begun by then is left undone.

  Returns:
    What it returned, in order.
  """
  with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    futures = [pool.submit(function, thing) for thing in things]
    try:
      for future in concurrent.futures.as_completed(futures):
        future.result()
    except BaseException:
      stop()
      pool.shutdown(wait=False, cancel_futures=True)
      raise
  return [future.result() for future in futures]
