"""A local web server with the faults of remote ones."""

import base64
import contextlib
import email.utils
import hashlib
import http.server
import os
import re
import threading
import time
import urllib.parse

# Files of either layout, not manifests and listings.
_FILE = re.compile(r'(\.gz|-of-\d+)$')


class WebServer(http.server.ThreadingHTTPServer):
  """Serves a folder on a port of 127.0.0.1; a context manager.

  Attributes:
    url: URL of the folder.
    requests: Method, path and first byte of each request so far.
    statuses: `[code, times]` by part of a path: error codes to answer with.
    retry_after: Value of the Retry-After header of 429 and 503.
    drop_after: Bytes of a body before the connection is dropped; None for never.
    ranges: Whether the `Range` header is respected.
    if_range: Whether the `If-Range` header is respected.
    etags: Whether files have an ETag, or else a Last-Modified header.
    bodies: Contents to send instead of a file, by part of its path.
    bytes_per_second: Bandwidth of each connection; None for unlimited.
    lengths: Whether answers have a Content-Length.
    md5s: Whether files have hashes, as from Google Cloud Storage.
    headers: Further headers of each answer; a name may be repeated.
    endless: Whether bodies have no length and never end.
    stalls: Number of further bodies that stop in the middle, until it is closed.
  """

  daemon_threads = True

  retry_after = '0'
  drop_after = bytes_per_second = None
  ranges = if_range = etags = lengths = True
  md5s = endless = False
  stalls = 0

  def __init__(self, folder, handler=None):
    super().__init__(('127.0.0.1', 0), handler or Handler)
    self.folder = str(folder)
    self.url = f'http://127.0.0.1:{self.server_port}'
    self.requests, self.statuses, self.bodies, self.headers = [], {}, {}, {}
    self._closing = threading.Event()
    self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
    self._thread.start()

  def server_close(self):
    self._closing.set()
    self.shutdown()
    self._thread.join()
    super().server_close()

  def gets(self, part=''):
    """Returns the first bytes of requests for files with `part` in their path."""
    return [
      start
      for method, path, start in self.requests
      if method == 'GET' and _FILE.search(path) and part in path
    ]

  def stall(self):
    if self.stalls > 0:
      self.stalls -= 1
      self._closing.wait(30)

  def handle_error(self, request, client_address):
    """Ignores errors: clients may disconnect."""


class Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'

  def log_message(self, *args):
    """Logs nothing."""

  def do_GET(self):
    self._answer()

  do_HEAD = do_GET

  def _answer(self):
    server = self.server
    raw = urllib.parse.urlsplit(self.path).path
    if '$' in raw:  # some servers are that strict
      return self._fail(400)
    path = urllib.parse.unquote(raw)
    range_ = self.headers.get('Range', '')
    first, _, last = range_.removeprefix('bytes=').partition('-')
    start = int(first or 0)
    server.requests.append((self.command, path, start))
    for part, status in server.statuses.items():
      if part in f'{self.command} {path}' and status[1] > 0:
        status[1] -= 1
        return self._fail(status[0])
    file = os.path.join(server.folder, path.lstrip('/'))
    if os.path.isdir(file):
      return self._send(b'a page', 'text/html')
    if not os.path.isfile(file):
      return self._fail(404)
    with open(file, 'rb') as opened:
      body = opened.read()
    modified = email.utils.formatdate(os.path.getmtime(file), usegmt=True)
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    for part, other in server.bodies.items():
      if part in path:
        body = other
    etag = f'"{hash(body)}"'
    version = {'ETag': etag} if server.etags else {'Last-Modified': modified}
    if server.md5s:
      version['x-goog-hash'] = f'md5={md5}'
    condition = self.headers.get('If-Range', '')
    if server.if_range and condition and condition not in version.values():
      range_ = ''
    if not range_ or not server.ranges:
      return self._send(body, headers=version)
    if start >= len(body):
      return self._fail(416, {'Content-Range': f'bytes */{len(body)}'})
    part = body[start : int(last) + 1 if last else None]
    span = f'bytes {start}-{start + len(part) - 1}/{len(body)}'
    self._send(part, headers={**version, 'Content-Range': span}, code=206)

  def _fail(self, code, headers=()):
    self._send(b'no', 'text/plain', headers, code)

  def _send(self, body, kind='application/octet-stream', headers=(), code=200):
    server = self.server
    is_endless = server.endless and self.command == 'GET'
    self.send_response(code)
    self.send_header('Content-Type', kind)
    if server.lengths and not is_endless:
      self.send_header('Content-Length', str(len(body)))
    else:
      self.send_header('Connection', 'close')
    if code in (429, 503):
      self.send_header('Retry-After', server.retry_after)
    for key, value in {**dict(headers), **server.headers}.items():
      self.send_header(key, value)
    self.end_headers()
    if self.command == 'HEAD':
      return
    limit = server.drop_after if kind.endswith('octet-stream') else None
    step = max((server.bytes_per_second or len(body)) // 20, 1)
    with contextlib.suppress(OSError):
      while is_endless and kind.endswith('octet-stream'):
        self.wfile.write(body)
      if limit is None and kind.endswith('octet-stream'):
        self.wfile.flush()
        server.stall()
      for at in range(0, min(len(body), limit or len(body)), step):
        self.wfile.write(body[at : min(at + step, limit or len(body))])
        if server.bytes_per_second:
          self.wfile.flush()
          time.sleep(0.05)
    if limit is not None and limit < len(body):
      self.close_connection = True
