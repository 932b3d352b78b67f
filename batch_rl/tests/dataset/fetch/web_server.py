"""A web server on this machine that has the faults of those far away.

python -m batch_rl.tests.dataset.fetch.web_server FOLDER [BYTES_PER_SECOND]
"""

import base64
import contextlib
import email.utils
import hashlib
import html
import http.server
import os
import sys
import threading
import time
import urllib.parse


class WebServer(http.server.ThreadingHTTPServer):
  """Serves a folder on a port of 127.0.0.1, until `close`.

  Attributes:
    url: of the folder.
    requests: method, path and first byte asked for, of each request so far.
    statuses: by part of a path, `[code, times]`: answers so often so.
    drop_after: bytes of a body after which the connection is cut; None for never.
    lists: whether there are pages with links for folders.
    ranges: whether `Range` is heeded.
    etags: whether there is an ETag (a Last-Modified otherwise).
    bodies: by part of a path, what is given in place of the file.
    bytes_per_second: of each connection; None for all there are.
    lengths: whether there is a Content-Length.
    md5s: whether there are hashes of the files, as Google's storage gives them.
    stalls: how many more bodies stop in the middle, until `close`.
  """

  daemon_threads = True

  def __init__(self, folder, port=0):
    super().__init__(('127.0.0.1', port), _Handler)
    self.folder = str(folder)
    self.url = f'http://127.0.0.1:{self.server_port}'
    self.requests, self.statuses, self.bodies = [], {}, {}
    self.drop_after, self.bytes_per_second = None, None
    self.lists, self.ranges, self.etags = False, True, True
    self.lengths, self.md5s = True, False
    self.stalls, self._closing = 0, threading.Event()
    self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
    self._thread.start()

  def close(self):
    """Stops it."""
    self._closing.set()
    self.shutdown()
    self._thread.join()
    self.server_close()

  def gets(self, part=''):
    """First bytes that were asked for of files whose path has a part."""
    return [
      start
      for method, path, start in self.requests
      if method == 'GET' and path.endswith('.gz') and part in path
    ]

  def stall(self):
    """Waits until `close`, if it is time to stall."""
    if self.stalls > 0:
      self.stalls -= 1
      self._closing.wait(30)

  def handle_error(self, request, client_address):
    """Clients may hang up."""


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'

  def log_message(self, *args):
    """Says nothing."""

  def do_HEAD(self):
    self._answer()

  def do_GET(self):
    self._answer()

  def _answer(self):
    server = self.server
    raw = urllib.parse.urlsplit(self.path).path
    if '$' in raw:  # as strict as the strictest
      return self._fail(400)
    path = urllib.parse.unquote(raw)
    asked = self.headers.get('Range', '')
    start = int(asked.removeprefix('bytes=').partition('-')[0]) if asked else 0
    server.requests.append((self.command, path, start))
    for part, status in server.statuses.items():
      if part in f'{self.command} {path}' and status[1] > 0:
        status[1] -= 1
        return self._fail(status[0])
    file = os.path.join(server.folder, path.lstrip('/'))
    if os.path.isdir(file) and server.lists:
      links = ''.join(
        f'<a href="{urllib.parse.quote(name)}">{html.escape(name)}</a>'
        for name in os.listdir(file)
      )
      return self._send(f'<a href="../">up</a>{links}'.encode(), 'text/html')
    if not os.path.isfile(file):
      return self._fail(404)
    with open(file, 'rb') as opened:
      body = opened.read()
    time_ = email.utils.formatdate(os.path.getmtime(file), usegmt=True)
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    for part, other in server.bodies.items():
      if part in path:
        body = other
    etag = f'"{hash(body)}"'
    version = {'ETag': etag} if server.etags else {'Last-Modified': time_}
    if server.md5s:
      version['x-goog-hash'] = f'md5={md5}'
    condition = self.headers.get('If-Range', '')
    if condition and condition not in version.values():
      asked = ''
    if not asked or not server.ranges:
      return self._send(body, headers=version)
    if start >= len(body):
      return self._fail(416, {'Content-Range': f'bytes */{len(body)}'})
    stop = asked.partition('-')[2]
    part = body[start : int(stop) + 1 if stop else None]
    span = f'bytes {start}-{start + len(part) - 1}/{len(body)}'
    self._send(part, headers={**version, 'Content-Range': span}, code=206)

  def _fail(self, code, headers=None):
    self._send(b'no', 'text/plain', headers or {}, code)

  def _send(
    self, body, kind='application/octet-stream', headers=None, code=200
  ):
    server = self.server
    self.send_response(code)
    self.send_header('Content-Type', kind)
    if server.lengths:
      self.send_header('Content-Length', str(len(body)))
    else:
      self.send_header('Connection', 'close')
    if code in (429, 503):
      self.send_header('Retry-After', '0')
    for key, value in (headers or {}).items():
      self.send_header(key, value)
    self.end_headers()
    if self.command == 'HEAD':
      return
    limit = server.drop_after if kind.endswith('octet-stream') else None
    step = max((server.bytes_per_second or len(body)) // 20, 1)
    with contextlib.suppress(OSError):
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


def main():
  """Serves until Ctrl-C."""
  server = WebServer(sys.argv[1], 8000)
  server.lists = True
  if len(sys.argv) > 2:
    server.bytes_per_second = int(sys.argv[2])
  print(server.url, flush=True)
  with contextlib.suppress(KeyboardInterrupt):
    while True:
      time.sleep(1)
  server.close()


if __name__ == '__main__':
  main()
