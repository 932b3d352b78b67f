"""Local folders and fsspec file systems, e.g. `gs://`."""

import contextlib
import os
from collections.abc import Iterator

from batch_rl.dataset.fetch import remotes

# Keys of `info` that change with a file's contents, the most reliable first.
_VERSION_KEYS = (
  *('generation', 'etag', 'ETag', 'mtime'),
  *('LastModified', 'last_modified', 'created'),
)
_REFUSALS = ('forbidden', 'access denied', 'anonymous caller', 'credential')


class FsspecRemote(remotes.Remote):
  """A local folder, or a URL of a file system that fsspec supports.

  Args:
    url: URL, or path of a local folder.

  Raises:
    ValueError: If the folder does not exist, the kind of URL is unknown, or its
      package is missing.
  """

  def __init__(self, url: str):
    # gcsfs probes for special buckets and logs missing credentials at each
    # request, but public buckets need none.
    os.environ.setdefault('GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT', 'false')
    import fsspec.core

    protocol = url.partition('://')[0] if '://' in url else ''
    try:
      self._fs, self._root = fsspec.core.url_to_fs(url)
    except ImportError as error:
      raise ValueError(
        f'{protocol}:// needs a package that is not installed: {error}.'
      ) from None
    except ValueError as error:
      raise ValueError(f'{url} cannot be fetched from: {error}.') from None
    self.name = '::'.join(map(remotes.without_secrets, url.split('::')))
    if not protocol:
      self.name = os.path.abspath(os.path.expanduser(url))
      if not os.path.isdir(self.name):
        raise ValueError(f'{url} is not a directory.')

  def _path(self, path: str) -> str:
    return f'{self._root.rstrip("/")}/{path}'.rstrip('/')

  def stat(self, path: str) -> remotes.RemoteStat:
    """Describes a file, bypassing caches; see `Remote.stat`."""
    with _translated_errors():
      self._fs.invalidate_cache(self._path(path).rpartition('/')[0])
      info = self._fs.info(self._path(path))
    version = next((str(info[k]) for k in _VERSION_KEYS if info.get(k)), None)
    hashes = {'md5': info.get('md5Hash'), 'crc32c': info.get('crc32c')}
    known = {kind: value for kind, value in hashes.items() if value}
    return remotes.RemoteStat(info.get('size'), version, known)

  def open(
    self, path: str, start: int = 0, known: remotes.RemoteStat | None = None
  ) -> tuple[remotes.RemoteStat, int, Iterator[bytes]]:
    """Opens a file at an offset if it is unchanged; see `Remote.open`."""
    stat = self.stat(path)
    start = start if stat.matches(known) else 0
    return stat, start, self._chunks(path, start, stat)

  def _chunks(
    self, path: str, start: int, stat: remotes.RemoteStat
  ) -> Iterator[bytes]:
    with _translated_errors(), self._fs.open(self._path(path), 'rb') as file:
      file.seek(start)
      while chunk := file.read(16 * remotes.CHUNK_BYTES):
        yield chunk
    # The requests may have read different versions of the file.
    now = self.stat(path)
    if (now.size, now.version) != (stat.size, stat.version):
      raise remotes.TransientError('the file changed while it was read')


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
  """Translates errors of fsspec's file systems into those of `remotes`."""
  try:
    yield
  except (FileNotFoundError, NotADirectoryError) as error:
    raise remotes.NotFound('not found') from error
  except Exception as error:
    reason = remotes.root_cause(error)
    code = getattr(error, 'code', None)
    refused = code in (401, 403) or any(t in reason.lower() for t in _REFUSALS)
    if isinstance(error, PermissionError) or refused:
      forbidden = 'forbidden' in reason.lower() or code == 403
      raise remotes.PermanentError(
        '403 Forbidden' if forbidden else reason
      ) from error
    raise remotes.TransientError(reason) from error
