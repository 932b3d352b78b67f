"""A local server of Google Cloud Storage's JSON API, for reading.

gcsfs uses it if the environment variable STORAGE_EMULATOR_HOST has its `url`.
"""

import base64
import hashlib
import json
import os
import urllib.parse

import google_crc32c

from batch_rl.tests.dataset.fetch import web_server

_API = '/storage/v1/b/'


class _Handler(web_server.Handler):
  """Answers requests for a bucket's description, its objects, and their bytes."""

  def _answer(self):
    url = urllib.parse.urlsplit(self.path)
    if url.path.startswith('/download'):
      name = url.path.removeprefix(f'/download{_API}')
      self.path = '/' + name.replace('/o/', '/', 1).replace('%2F', '/')
      return super()._answer()
    bucket, _, name = url.path.removeprefix(_API).partition('/o')
    name = urllib.parse.unquote(name.removeprefix('/'))
    self.server.requests.append(('metadata', url.path, 0))
    if not os.path.isdir(os.path.join(self.server.folder, bucket)):
      return self._fail(404)
    if name:
      found = self._describe(bucket, name)
      return self._send_json(found) if found else self._fail(404)
    if not url.path.endswith('/o'):
      return self._send_json({'name': bucket})
    return self._list(bucket, dict(urllib.parse.parse_qsl(url.query)))

  def _send_json(self, document):
    self._send(json.dumps(document).encode(), 'application/json')

  def _describe(self, bucket, name):
    path = os.path.join(self.server.folder, bucket, name)
    if not os.path.isfile(path):
      return None
    with open(path, 'rb') as file:
      content = file.read()
    crc32c = google_crc32c.value(content).to_bytes(4, 'big')
    return {
      'name': name,
      'bucket': bucket,
      'size': str(len(content)),
      'generation': str(os.stat(path).st_mtime_ns // 1000),
      'md5Hash': base64.b64encode(
        hashlib.md5(content, usedforsecurity=False).digest()
      ).decode(),
      'crc32c': base64.b64encode(crc32c).decode(),
      'updated': '2020-01-01T00:00:00Z',
      'timeCreated': '2020-01-01T00:00:00Z',
    }

  def _list(self, bucket, query):
    prefix = query.get('prefix', '')
    root = os.path.join(self.server.folder, bucket)
    folder = os.path.join(root, os.path.dirname(prefix))
    names = [
      os.path.relpath(os.path.join(folder, entry), root)
      for entry in (os.listdir(folder) if os.path.isdir(folder) else ())
    ]
    names = sorted(name for name in names if name.startswith(prefix))
    document = {
      'kind': 'storage#objects',
      'items': [
        item for name in names if (item := self._describe(bucket, name))
      ],
      'prefixes': [
        f'{name}/' for name in names if os.path.isdir(os.path.join(root, name))
      ],
    }
    self._send_json(document)


def serve(folder):
  """Returns a server of the subfolders of a folder as buckets."""
  return web_server.WebServer(folder, handler=_Handler)
