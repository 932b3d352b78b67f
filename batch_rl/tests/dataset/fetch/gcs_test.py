"""`gs://` URLs are fetched by gcsfs from a server of Google's JSON API."""

import importlib.util
import json

import fsspec
import pytest

from batch_rl.dataset.fetch import unplugged_run
from batch_rl.tests.dataset.fetch.fetched_files import corrupt
from batch_rl.tests.dataset.fetch.fetched_stores import FLAGS, NAMES

# `fetch` has settings for the import of gcsfs.
if importlib.util.find_spec('gcsfs') is None:
  pytest.skip('gcsfs is not installed', allow_module_level=True)


@pytest.fixture
def bucket(unplugged, monkeypatch):
  """A server of the bucket rl_unplugged, which gcsfs takes for Google's."""
  from batch_rl.tests.dataset.fetch import gcs_server

  server = gcs_server.serve(unplugged.parent)
  monkeypatch.setenv('STORAGE_EMULATOR_HOST', server.url)
  monkeypatch.setenv('NO_GCE_CHECK', 'true')  # no credentials are looked for
  yield server
  fsspec.get_filesystem_class('gs').clear_instance_cache()
  server.close()


def test_partial_file_is_resumed(bucket, pong, run, store, run_hash):
  raw = store / unplugged_run.RAW
  raw.mkdir(parents=True)
  path = pong / NAMES[1]
  (raw / NAMES[1]).write_bytes(path.read_bytes()[:70_000])
  note = {
    'bytes': path.stat().st_size,
    'version': str(path.stat().st_mtime_ns // 1000),
  }
  (raw / f'{NAMES[1]}.json').write_text(json.dumps(note))
  code, out, _ = run('gs://rl_unplugged', *FLAGS)
  assert code == 0 and f'hash {run_hash}' in out
  assert bucket.gets(NAMES[1]) == [70_000] and bucket.gets(NAMES[0]) == [0]


def test_other_bytes_than_the_hash_promises(bucket, pong, run):
  bucket.bodies = {NAMES[1]: corrupt(pong / NAMES[1])}
  code, out, _ = run('gs://rl_unplugged', *FLAGS)
  assert code == 1 and 'its md5 is' in out and bucket.gets(NAMES[1]) == [0, 0]
