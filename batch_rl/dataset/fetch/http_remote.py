"""Web servers.

Uses `requests`. fsspec's HTTP file system needs aiohttp, restarts a file after a
dropped connection, and cannot make a range request conditional on the file's version.
"""

import contextlib
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping

import requests
import urllib3

from batch_rl.dataset.fetch import remotes

_CONNECT_SECONDS = 10
# Status codes worth a retry: timeouts, too many requests, server errors.
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class HttpRemote(remotes.Remote):
  """A web server.

  Dollar signs in names are percent-encoded. A token in the URL's query is sent
  with every request.

  Args:
    url: URL of the dataset's root.
    timeout: Seconds without data before a request fails.

  Raises:
    ValueError: If the URL is not valid.
  """

  def __init__(self, url: str, timeout: float):
    self._timeout = timeout
    requests.Request('GET', url).prepare()  # checks it
    self._url = urllib.parse.urlsplit(url)
    self.name = remotes.without_secrets(url)
    self._sessions = threading.local()

  def stat(self, path: str) -> remotes.RemoteStat:
    """Requests the headers of a file; see `Remote.stat`."""
    try:
      response = self._request('HEAD', path)
    except remotes.NotFound:
      raise
    except remotes.PermanentError:  # Some servers refuse the method.
      response = self._request('GET', path, {'Range': 'bytes=0-0'})
    with response:
      # Some servers answer every path with a web page.
      if 'html' in response.headers.get('Content-Type', ''):
        raise remotes.NotFound('the server sent a web page instead')
      return _stat(response)

  def open(
    self, path: str, start: int = 0, known: remotes.RemoteStat | None = None
  ) -> tuple[remotes.RemoteStat, int, Iterator[bytes]]:
    """Requests a file, or a range if its version is unchanged; see `Remote.open`."""
    headers = {}
    if start:
      headers['Range'] = f'bytes={start}-'
      version = (known and known.version) or ''
      # If-Range needs a strong ETag.
      if version and not version.startswith('W/'):
        headers['If-Range'] = version
    response = self._request('GET', path, headers)
    stat = _stat(response)
    if response.status_code != 200:
      span = response.headers.get('Content-Range', '')
      if span.startswith(f'bytes {start}-') and stat.matches(known):
        return stat, start, self._chunks(response)
      # Another version of the file, or one that ends before `start`.
      response.close()
      response = self._request('GET', path)
      stat = _stat(response)
    return stat, 0, self._chunks(response)

  def _request(
    self, method: str, path: str, headers: Mapping[str, str] | None = None
  ) -> requests.Response:
    if not hasattr(self._sessions, 'session'):
      # One for each thread: they are not thread-safe.
      self._sessions.session = requests.Session()
    url = self._url._replace(
      path=f'{self._url.path.rstrip("/")}/{urllib.parse.quote(path)}'
    ).geturl()
    try:
      response = self._sessions.session.request(
        method,
        url,
        # Request the file itself, not compressed for transport.
        headers={'Accept-Encoding': 'identity', **(headers or {})},
        stream=True,
        timeout=(_CONNECT_SECONDS, self._timeout),
      )
    except requests.exceptions.SSLError as error:
      raise remotes.PermanentError(remotes.root_cause(error)) from error
    except (ValueError, requests.exceptions.TooManyRedirects) as error:
      # E.g. a redirect to another kind of URL, or two lengths.
      cause = remotes.root_cause(error).rstrip('.')
      reason = re.sub(r'(?<=//)[^/\s]*@|\?\S*', '', cause)  # secrets
      raise remotes.PermanentError(
        f'{remotes.without_secrets(url)}: {reason}'
      ) from error
    except requests.exceptions.RequestException as error:
      raise remotes.TransientError(remotes.root_cause(error)) from error
    code = response.status_code
    if code < 400 or code == 416:
      return response
    response.close()
    reason = f'{code} {response.reason}'.strip()
    if code in _TRANSIENT:
      raise remotes.TransientError(reason, _retry_after(response))
    if code in (404, 410):
      raise remotes.NotFound(reason)
    raise remotes.PermanentError(reason)

  def _chunks(self, response: requests.Response) -> Iterator[bytes]:
    try:
      with response:
        yield from response.raw.stream(
          remotes.CHUNK_BYTES, decode_content=False
        )
    except urllib3.exceptions.ReadTimeoutError as error:
      raise remotes.TransientError(
        f'no data for {self._timeout} seconds'
      ) from error
    except urllib3.exceptions.ProtocolError as error:
      raise remotes.TransientError(remotes.DROPPED) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
      raise remotes.TransientError(remotes.root_cause(error)) from error


def _stat(response: requests.Response) -> remotes.RemoteStat:
  headers = response.headers
  length = headers.get('Content-Length', '')
  if response.status_code in (206, 416):  # the size ends 'bytes 5-9/10'
    length = headers.get('Content-Range', '').rpartition('/')[2]
  hashes = requests.utils.parse_dict_header(headers.get('x-goog-hash', ''))
  return remotes.RemoteStat(
    int(length) if length.isdecimal() else None,
    headers.get('ETag') or headers.get('Last-Modified'),
    {kind: value for kind, value in hashes.items() if value},
  )


def _retry_after(response: requests.Response) -> float | None:
  """Returns the seconds of a Retry-After header; None without a valid one."""
  with contextlib.suppress(urllib3.exceptions.InvalidHeader):
    return urllib3.Retry().get_retry_after(response.raw)
  return None
