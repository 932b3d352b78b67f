"""Where shards can be fetched from: HTTP servers, and what fsspec can read.

HTTP has no listing and drops connections, and what it gives must not be spliced out
of two versions of a file; hence requests, rather than fsspec's file for it. A name's
dollar signs are percent-encoded in its URL.
"""

import dataclasses
import email.utils
import html.parser
import itertools
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from batch_rl.utils import files

DROPPED = 'the connection was dropped'
# So much is lost of each file when a process is killed.
_CHUNK_BYTES = 1 << 16
_CONNECT_SECONDS = 10
# Worth another try: a timeout, too many requests, trouble of the server.
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
# What may be wrong with a HEAD request only.
_NO_HEAD = (400, 403, 405, 501)
# Of what fsspec's file systems say of a file, what changes with its contents; the
# best first.
_VERSION_KEYS = (
  'generation',
  'etag',
  'ETag',
  'mtime',
  'LastModified',
  'last_modified',
  'created',
)
_PACKAGES = {
  'gs': "'batch_rl[fetch]'",
  'gcs': "'batch_rl[fetch]'",
  's3': 's3fs',
}
_REFUSALS = ('forbidden', 'access denied', 'anonymous caller', 'credential')


class Refused(ValueError):
  """The source does not give something, e.g. `403 Forbidden`; it won't later.

  Attributes:
    code: of HTTP, if it has one.
  """

  def __init__(self, what: str, code: int | None = None):
    super().__init__(what)
    self.code = code


class Absent(Refused):
  """It does not have it, e.g. `404 Not Found`."""


class Interrupted(Exception):  # noqa: N818
  """Something that may go well at another try.

  Attributes:
    wait: seconds after which, if the source says so.
    progress: whether something was gained before.
  """

  def __init__(self, what: str, wait: float | None = None):
    super().__init__(what)
    self.wait = wait
    self.progress = False


@dataclasses.dataclass(frozen=True)
class Stat:
  """What a source says of a file.

  Attributes:
    size: in bytes; None if it does not say.
    version: changes with the contents, e.g. an ETag; None if it does not say.
    hashes: 'md5' or 'crc32c', in base64, as object stores give them.
  """

  size: int | None
  version: str | None = None
  hashes: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def same(self, other: 'Stat | None') -> bool:
    """Whether both are of the same contents, as far as that is said."""
    return (
      other is not None
      and None not in (self.size, other.size)
      and (self.size, self.version) == (other.size, other.version)
    )


class Source:
  """A place with folders of files. Paths are relative to it, with slashes.

  Attributes:
    name: for messages and manifests; without passwords and tokens.
  """

  name: str

  def list(self, folder: str) -> dict[str, int | None] | None:
    """Names in a folder, with sizes where they are told.

    Returns:
      None if the source does not list.

    Raises:
      Absent: if there is no such folder.
      Interrupted: if it failed.
    """
    raise NotImplementedError

  def stat(self, path: str) -> Stat:
    """What it says of a file; raises as `open` does."""
    raise NotImplementedError

  def open(
    self, path: str, start: int = 0, known: Stat | None = None
  ) -> tuple[Stat, int, Iterator[bytes]]:
    """Begins to read a file.

    Args:
      path: of the file.
      start: the first byte that is wanted.
      known: what the source said when the bytes before were read; if it says
        something else by now, they are of no use.

    Returns:
      What it says of the file; the first byte that follows, `start` or 0; and the
      bytes, whose iterator raises Interrupted.

    Raises:
      Refused: if it does not give it.
      Interrupted: if it failed.
    """
    raise NotImplementedError


def connect(url: str, timeout: float) -> Source:
  """The source at a URL or a local path.

  Args:
    url: of the root of a dataset.
    timeout: seconds without a byte after which a server is given up.

  Raises:
    ValueError: if that kind of URL is not known, or needs a package.
  """
  if url.startswith(('http://', 'https://')):
    return _HttpSource(url, timeout)
  return _FsspecSource(url)


def _without_secrets(url: str) -> str:
  """The URL, for messages and manifests: no user, password or query."""
  if '://' not in url:
    return url
  parts = urllib.parse.urlsplit(url)
  host = parts.netloc.rpartition('@')[2]
  return f'{parts.scheme}://{host}{parts.path}'.rstrip('/')


class _HttpSource(Source):
  """A web server."""

  def __init__(self, url: str, timeout: float):
    import requests

    self._requests = requests
    self._timeout = timeout
    self._url = urllib.parse.urlsplit(url)
    if not self._url.hostname:
      raise ValueError(f'{url} names no host.')
    # A token in the URL goes with every request, and nowhere else.
    self.name = _without_secrets(url)
    self._sessions = threading.local()

  def list(self, folder):
    # Web servers have pages with links for it, if anything.
    try:
      response = self._request('GET', f'{folder}/')
    except Refused:
      return None  # the files may be given all the same
    with response:
      if 'html' not in response.headers.get('Content-Type', ''):
        return None
      page = b''.join(self._chunks(response)).decode(errors='replace')
    links = _Links()
    links.feed(page)
    return dict.fromkeys(links.names) or None

  def stat(self, path):
    try:
      response = self._request('HEAD', path)
    except Refused as error:
      if error.code not in _NO_HEAD:
        raise
      response = self._request('GET', path, {'Range': 'bytes=0-0'})
    with response:
      if 'html' in response.headers.get('Content-Type', ''):
        raise Absent('a web page in its place')  # of those that answer anything
      return self._stat(response)

  def open(self, path, start=0, known=None):
    headers = {}
    if start:
      headers['Range'] = f'bytes={start}-'
      version = (known and known.version) or ''
      if version and not version.startswith('W/'):  # weak ones are refused
        headers['If-Range'] = version
    response = self._request('GET', path, headers)
    stat = self._stat(response)
    continues = (
      response.status_code == 206
      and _content_range(response)[0] == start
      and stat.same(known)
    )
    if response.status_code == 200:
      start = 0
    elif not continues:  # of another version, or there are not so many bytes
      response.close()
      start, response = 0, self._request('GET', path)
      stat = self._stat(response)
    return stat, start, self._chunks(response)

  def _session(self) -> Any:
    if not hasattr(self._sessions, 'session'):
      self._sessions.session = self._requests.Session()
    return self._sessions.session

  def _request(
    self, method: str, path: str, headers: Mapping[str, str] | None = None
  ) -> Any:
    url = self._url._replace(
      path=f'{self._url.path.rstrip("/")}/{urllib.parse.quote(path)}'
    ).geturl()
    try:
      response = self._session().request(
        method,
        url,
        # The bytes of the file, not a compressed form of them.
        headers={'Accept-Encoding': 'identity', **(headers or {})},
        stream=True,
        timeout=(_CONNECT_SECONDS, self._timeout),
        allow_redirects=True,
      )
    except self._requests.exceptions.SSLError as error:
      raise Refused(_innermost(error)) from error
    except ValueError:  # such a URL is no URL
      raise
    except self._requests.exceptions.RequestException as error:
      raise Interrupted(_innermost(error)) from error
    code = response.status_code
    if code < 400 or code == 416:
      return response
    response.close()
    what = f'{code} {response.reason}'.strip()
    if code in _TRY_AGAIN:
      raise Interrupted(what, _seconds(response.headers.get('Retry-After')))
    raise (Absent if code in (404, 410) else Refused)(what, code)

  def _stat(self, response: Any) -> Stat:
    headers = response.headers
    if response.status_code in (206, 416):
      size = _content_range(response)[1]
    else:
      length = headers.get('Content-Length', '')
      size = int(length) if length.isdigit() else None
    hashes = dict(
      part.strip().split('=', 1)
      for part in headers.get('x-goog-hash', '').split(',')
      if '=' in part
    )
    version = headers.get('ETag') or headers.get('Last-Modified')
    return Stat(size, version, hashes)

  def _chunks(self, response: Any) -> Iterator[bytes]:
    import urllib3

    try:
      with response:
        yield from response.raw.stream(_CHUNK_BYTES, decode_content=False)
    except urllib3.exceptions.ReadTimeoutError as error:
      raise Interrupted(f'no byte for {self._timeout} seconds') from error
    except urllib3.exceptions.ProtocolError as error:
      raise Interrupted(DROPPED) from error
    except (
      self._requests.exceptions.RequestException,
      urllib3.exceptions.HTTPError,
      OSError,
    ) as error:
      raise Interrupted(_innermost(error)) from error


def _content_range(response: Any) -> tuple[int | None, int | None]:
  """First byte and size of the file, from `bytes 5-9/10`."""
  text = response.headers.get('Content-Range', '')
  span, _, size = text.removeprefix('bytes').strip().partition('/')
  start = span.partition('-')[0]
  return (
    int(start) if start.isdigit() else None,
    int(size) if size.isdigit() else None,
  )


def _seconds(retry_after: str | None) -> float | None:
  """What a Retry-After header says: seconds, or a date."""
  if not retry_after:
    return None
  if retry_after.isdigit():
    return float(retry_after)
  try:
    date = email.utils.parsedate_to_datetime(retry_after)
  except ValueError:
    return None
  return max(date.timestamp() - time.time(), 0.0)


class _Links(html.parser.HTMLParser):
  """The names that a page links to, of what is right below it."""

  def __init__(self) -> None:
    super().__init__()
    self.names: list[str] = []

  def handle_starttag(self, tag, attrs):
    href = dict(attrs).get('href') if tag == 'a' else None
    path = urllib.parse.unquote(urllib.parse.urlsplit(href or '').path)
    name = path.rstrip('/').rpartition('/')[2]
    if name not in ('', '.', '..'):
      self.names.append(name)


class _FsspecSource(Source):
  """A local folder, or what fsspec has a file system for."""

  def __init__(self, url: str):
    # What gcsfs has for special buckets complains, at each request, of missing
    # credentials, which public buckets do not need.
    os.environ.setdefault('GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT', 'false')
    import fsspec.core

    protocol = url.partition('://')[0] if '://' in url else ''
    try:
      self._fs, self._root = fsspec.core.url_to_fs(url)
    except ImportError as error:
      package = _PACKAGES.get(protocol)
      remedy = f'pip install {package}' if package else f'{error}'
      raise ValueError(
        f'{protocol}:// needs a package that is not installed: {remedy}.'
      ) from None
    except ValueError as error:
      raise ValueError(f'{url} cannot be fetched from: {error}.') from None
    self.name = '::'.join(map(_without_secrets, url.split('::')))
    if not protocol:
      self.name = os.path.abspath(os.path.expanduser(url))
      if not os.path.isdir(self.name):
        raise ValueError(f'{url} is not a directory.')

  def _path(self, path: str) -> str:
    return f'{self._root.rstrip("/")}/{path}'.rstrip('/')

  def list(self, folder):
    try:
      with _translated():
        found = self._fs.ls(self._path(folder), detail=True)
    except Absent:
      raise
    except Refused:
      return None  # the files may be given all the same
    return {
      entry['name'].rstrip('/').rpartition('/')[2]: entry.get('size')
      for entry in found
    }

  def stat(self, path):
    with _translated():
      self._fs.invalidate_cache(self._path(path).rpartition('/')[0])
      info = self._fs.info(self._path(path))
    version = next((info[k] for k in _VERSION_KEYS if info.get(k)), None)
    hashes = {'md5': info.get('md5Hash'), 'crc32c': info.get('crc32c')}
    return Stat(
      info.get('size'),
      None if version is None else str(version),
      {kind: value for kind, value in hashes.items() if value},
    )

  def open(self, path, start=0, known=None):
    stat = self.stat(path)
    start = start if stat.same(known) else 0
    return stat, start, self._chunks(path, start, stat)

  def _chunks(self, path: str, start: int, stat: Stat) -> Iterator[bytes]:
    with _translated():
      with self._fs.open(self._path(path), 'rb') as file:
        file.seek(start)
        while chunk := file.read(16 * _CHUNK_BYTES):
          yield chunk
    # It is read by many requests: was it one file all along?
    if not self.stat(path).same(stat):
      raise Interrupted('it was changed while it was read')


class _translated:  # noqa: N801 (a context manager)
  """Turns what fsspec's file systems raise into Refused, Absent, Interrupted."""

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    if not isinstance(error, Exception) or isinstance(error, Refused):
      return
    text = _innermost(error)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
      raise Absent('not found') from error
    code = getattr(error, 'code', None)
    refused = code in (401, 403) or any(t in text.lower() for t in _REFUSALS)
    if isinstance(error, PermissionError) or refused:
      forbidden = 'forbidden' in text.lower() or code == 403
      raise Refused('403 Forbidden' if forbidden else text) from error
    raise Interrupted(text) from error


def _innermost(error: BaseException) -> str:
  """What is the matter, out of exceptions inside exceptions, in a line."""
  for _ in range(10):
    inner = error.__cause__ or error.__context__
    if inner is None:
      break
    error = inner
  text = files.reason(error) if isinstance(error, Exception) else str(error)
  return ' '.join(text.split())[:200] or type(error).__name__


def try_again(
  function: Callable[[], Any],
  retries: int,
  sleep: Callable[[float], Any],
  first_wait: float = 1.0,
) -> Any:
  """Calls a function until it is not interrupted.

  Args:
    function: raises Interrupted; after progress, retries count anew.
    retries: how often to try again.
    sleep: takes the seconds to wait: doubled each time, at most a minute.
    first_wait: the first of them.

  Raises:
    Interrupted: that of the last try.
  """
  failures = 0
  for _ in itertools.count():
    try:
      return function()
    except Interrupted as error:
      failures = 1 if error.progress else failures + 1
      if failures > retries:
        raise
      wait = first_wait * 2 ** (failures - 1)
      sleep(min(error.wait if error.wait is not None else wait, 60.0))
