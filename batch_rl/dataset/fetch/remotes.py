"""Remote copies of the dataset: their interface, errors and retries."""

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from batch_rl.utils import files

DROPPED = 'the connection was dropped'
# Read unit of HTTP remotes; fsspec's file systems read 16 units at a time.
CHUNK_BYTES = 1 << 16
_MAX_SMALL_FILE = 1 << 24
_FIRST_WAIT = 1.0  # seconds, before the first retry
_LONGEST_WAIT = 60.0


class RemoteError(Exception):
  """A failed request to a remote."""


class PermanentError(RemoteError):
  """A request that will keep failing, e.g. `403 Forbidden`."""


class NotFound(PermanentError):
  """A missing file or folder, e.g. `404 Not Found`."""


class TransientError(RemoteError):
  """A failure that may not recur, e.g. a dropped connection.

  Attributes:
    wait: Seconds to wait before a retry, if the remote gives them.
  """

  def __init__(self, reason: str, wait: float | None = None):
    super().__init__(reason)
    self.wait = wait


class RemoteStat(NamedTuple):
  """A remote's description of a file.

  Attributes:
    size: Size in bytes; None if unknown.
    version: Label that changes with the contents, e.g. an ETag; None if unknown.
    hashes: Hashes in base64 by kind, 'md5' or 'crc32c', given by object stores.
  """

  size: int | None
  version: str | None = None
  hashes: Mapping[str, str] = {}

  def matches(self, other: 'RemoteStat | None') -> bool:
    """Returns whether size and version are equal; False if a size is unknown."""
    if other is None or None in (self.size, other.size):
      return False
    return (self.size, self.version) == (other.size, other.version)


class Remote:
  """A file tree to fetch from. Paths are relative to its root, with slashes.

  Attributes:
    name: URL for messages and manifests, without passwords and tokens.
  """

  name: str

  def stat(self, path: str) -> RemoteStat:
    """Returns the description of a file; raises the errors of `open`."""
    raise NotImplementedError

  def open(
    self, path: str, start: int = 0, known: RemoteStat | None = None
  ) -> tuple[RemoteStat, int, Iterator[bytes]]:
    """Opens a file for reading.

    Args:
      path: Path of the file.
      start: Offset of the first byte to read.
      known: Description of the file when the bytes before `start` were read. If
        it has changed since, reading begins at 0.

    Returns:
      Description of the file; offset of the first byte, `start` or 0; iterator
      over the bytes, which may raise TransientError.

    Raises:
      PermanentError: If the remote refuses the file.
      TransientError: If the request failed.
    """
    raise NotImplementedError


def join(chunks: Iterator[bytes]) -> bytes:
  """Returns the content of a small file: a manifest.

  Raises:
    PermanentError: If it is too large.
  """
  content = bytearray()
  for chunk in chunks:
    content += chunk
    if len(content) > _MAX_SMALL_FILE:
      raise PermanentError(f'the file is longer than {_MAX_SMALL_FILE:,} B')
  return bytes(content)


def without_secrets(url: str) -> str:
  """Strips user, password and query from a URL."""
  if '://' not in url:
    return url
  parts = urllib.parse.urlsplit(url)
  host = parts.netloc.rpartition('@')[2]
  return f'{parts.scheme}://{host}{parts.path}'.rstrip('/')


def root_cause(error: BaseException) -> str:
  """Returns the message of the innermost chained exception, in one line."""
  while inner := error.__cause__ or error.__context__:
    error = inner
  text = files.reason(error) if isinstance(error, Exception) else str(error)
  return ' '.join(text.split())[:200] or type(error).__name__


def with_retries(
  function: Callable[[], Any],
  retries: int,
  sleep: Callable[[float], Any],
  progress: Callable[[], int] = lambda: 0,
) -> Any:
  """Calls a function again after each transient error.

  Args:
    function: Function that may raise TransientError.
    retries: Number of consecutive retries without progress.
    sleep: Function that waits for a number of seconds; the wait doubles each
      time, up to a minute.
    progress: Function that returns the number of bytes received so far. A new
      maximum resets the count of retries.

  Raises:
    TransientError: If the last retry failed.
  """
  failures = most = 0
  while True:
    try:
      return function()
    except TransientError as error:
      failures += 1
      if (obtained := progress()) > most:
        failures, most = 1, obtained
      if failures > retries:
        raise
      wait = _FIRST_WAIT * 2 ** min(failures - 1, 6)
      sleep(min(wait if error.wait is None else error.wait, _LONGEST_WAIT))
