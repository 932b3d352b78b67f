"""The manifest describes the fetched files, and its hashes are verified."""

import json

import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests.dataset.fetch.fetched_files import (
  FRAMES,
  RUN,
  assert_complete,
)


def test_remote_manifest_is_kept(original, server, run, data_dir, root):
  name = manifests.FILE_NAME
  manifest = json.loads((original / RUN / name).read_text())
  (root / RUN / name).write_text(json.dumps(manifest))
  code, _, _ = run(server.url)
  assert code == 0
  assert not any(method == 'HEAD' for method, _, _ in server.requests)
  found = json.loads((data_dir / name).read_text())
  assert found.pop('origin')['source'] == server.url
  assert {**found, 'hash': ''} == {**manifest, 'hash': ''}
  assert_complete(root, data_dir)
  run(server.url, '--shards', '1', to='other')
  other = data_dir.parents[3] / 'other' / RUN
  found = json.loads((other / name).read_text())
  assert found['shards'] == manifest['shards'][1:2] and 'rows' not in found
  assert not run_checks.verify(str(other)).problems


@pytest.mark.parametrize('kind', ['sha256', 'md5'])
def test_hashes_are_verified(original, root, server, run, kind):
  """An intact file with the contents of another one is refused."""
  server.md5s = kind == 'md5'
  if kind == 'sha256':
    manifest = (original / RUN / manifests.FILE_NAME).read_bytes()
    (root / RUN / manifests.FILE_NAME).write_bytes(manifest)
  frames = original / RUN / shard_files.file_name('observation', 0)
  server.bodies = {FRAMES: frames.read_bytes()}
  code, out, _ = run(server.url, '--shards=1')
  assert code == 1 and f'its {kind} is' in out
  assert out.count('missing') == 1


def test_manifest_outlives_the_remote_one(root, server, run, data_dir):
  manifest = root / RUN / manifests.FILE_NAME
  described = {
    'manifest_version': 1,
    'truncated_rows': [65, 98],
    'environment': {'game': 'Pong'},
  }
  manifest.write_text(json.dumps(described))
  assert run(server.url, '--shards', '0-1')[0] == 0
  manifest.unlink()
  assert run(server.url)[0] == 0
  kept = json.loads((data_dir / manifests.FILE_NAME).read_text())
  assert {key: kept[key] for key in described} == described
  assert [entry['suffix'] for entry in kept['shards']] == [0, 1, 2]
