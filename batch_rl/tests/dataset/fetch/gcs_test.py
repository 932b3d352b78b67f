"""`gs://` URLs are fetched by gcsfs from a local server of Google's JSON API."""

import base64
import hashlib
import importlib.util
import json
import pathlib
import urllib.parse

import fsspec
import google_crc32c
import pytest

from batch_rl.dataset.fetch import unplugged_run
from batch_rl.tests.dataset.checks.run_files import flipped
from batch_rl.tests.dataset.fetch import web_server
from batch_rl.tests.dataset.fetch.fetched_files import FLAGS, NAMES

# `fetch` has settings for the import of gcsfs.
if importlib.util.find_spec('gcsfs') is None:
  pytest.skip('gcsfs is not installed', allow_module_level=True)
_API = '/storage/v1/b/'


class _Handler(web_server.Handler):
  """Answers requests for the description of an object, or for its bytes."""

  def _answer(self):
    url = urllib.parse.urlsplit(self.path)
    if url.path.startswith('/download'):
      name = url.path.removeprefix(f'/download{_API}')
      self.path = '/' + name.replace('/o/', '/', 1).replace('%2F', '/')
      return super()._answer()
    bucket, _, name = url.path.removeprefix(_API).partition('/o')
    if not name:
      return self._send(b'{}', 'application/json')  # an empty list
    name = urllib.parse.unquote(name.removeprefix('/'))
    path = pathlib.Path(self.server.folder, bucket, name)
    if not path.is_file():
      return self._fail(404)
    content = path.read_bytes()
    described = dict(name=name, bucket=bucket, size=str(len(content)))
    described['generation'] = str(path.stat().st_mtime_ns // 1000)
    described['updated'] = described['timeCreated'] = '2020-01-01T00:00:00Z'
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    crc32c = google_crc32c.value(content).to_bytes(4, 'big')
    for key, digest in (('md5Hash', md5), ('crc32c', crc32c)):
      described[key] = base64.b64encode(digest).decode()
    self._send(json.dumps(described).encode(), 'application/json')


@pytest.fixture
def bucket(unplugged, monkeypatch):
  """A server of the bucket rl_unplugged, which gcsfs takes for Google's."""
  with web_server.WebServer(unplugged.parent, _Handler) as server:
    monkeypatch.setenv('STORAGE_EMULATOR_HOST', server.url)
    monkeypatch.setenv('NO_GCE_CHECK', 'true')  # no credentials are looked for
    yield server
    fsspec.get_filesystem_class('gs').clear_instance_cache()


def test_partial_file_is_resumed(bucket, pong, run, store, run_hash):
  raw = store / unplugged_run.RAW
  raw.mkdir(parents=True)
  path = pong / NAMES[1]
  (raw / NAMES[1]).write_bytes(path.read_bytes()[:70_000])
  stat = path.stat()
  note = {'bytes': stat.st_size, 'version': str(stat.st_mtime_ns // 1000)}
  (raw / f'{NAMES[1]}.json').write_text(json.dumps(note))
  assert f'hash {run_hash}' in run.output('gs://rl_unplugged', *FLAGS)
  assert bucket.gets(NAMES[1]) == [70_000] and bucket.gets(NAMES[0]) == [0]


def test_other_bytes_than_the_hash_promises(bucket, pong, run):
  bucket.bodies = {NAMES[1]: flipped((pong / NAMES[1]).read_bytes())}
  assert 'its md5 is' in run.output('gs://rl_unplugged', *FLAGS, code=1)
  assert bucket.gets(NAMES[1]) == [0, 0]
