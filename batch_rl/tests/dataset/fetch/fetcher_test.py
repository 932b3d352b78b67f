"""Shards are fetched from any source and verified; damage is reported."""

import gzip
import json
import shutil
from unittest import mock

import fsspec
import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.dataset.fetch.fetched_files import (
  FRAMES,
  RUN,
  assert_complete,
  contents,
)
from batch_rl.utils import files


def test_run_is_fetched_by_http(root, server, run, data_dir):
  document = run.document(server.url)
  assert document['ok']
  assert (document['fetched'], document['there']) == (18, 0)
  assert document['runs'][0]['shards'] == [0, 1, 2]
  assert_complete(root, data_dir)
  manifest = json.loads((data_dir / manifests.FILE_NAME).read_text())
  assert manifest['origin'] == {'how': 'fetch', 'source': server.url}
  record = manifest['shards'][1]['files'][FRAMES]
  assert record.keys() == {'bytes', 'sha256'}  # The hash was verified.
  assert record['bytes'] == (data_dir / FRAMES).stat().st_size


def test_some_shards_then_the_others(root, server, run, data_dir):
  out = run.output(server.url, '--shards', '0,2')
  assert '12 files fetched' in out
  assert set(contents(data_dir)) == set(contents(root / RUN, (0, 2)))
  assert 'no shard between 0 and 2' in out
  assert not any('_ckpt.1.' in path for _, path, _ in server.requests)
  shutil.copytree(root / 'Pong', root / 'Qbert')
  out = run.output(server.url, '--shards=0-2', '--game', 'Pong', 'Qbert')
  assert '24 files fetched, 12 already in place' in out
  assert_complete(root, data_dir)
  server.requests.clear()
  assert '0 files fetched, 18 already in place' in run.output(server.url)
  assert not server.gets()


@pytest.mark.parametrize('kind', ['folder', 'file', 'memory'])
def test_fsspec_sources(root, run, data_dir, kind):
  source = {'folder': root, 'file': f'file://{root}', 'memory': 'memory://d'}
  if kind == 'memory':
    fsspec.filesystem('memory').put(str(root), '/d', recursive=True)
  assert '12 files fetched' in run.output(source[kind], '--shards=1-2')
  assert_complete(root, data_dir, (1, 2))


@pytest.mark.parametrize('damage', ['bit', 'empty', 'no array', 'truncated'])
def test_damage_is_fetched_twice_and_named(root, server, run, data_dir, damage):
  intact = (root / RUN / FRAMES).read_bytes()
  body = {
    'bit': run_files.flipped(intact),
    'empty': b'',
    'no array': gzip.compress(b'not an array'),
    'truncated': intact[:-9],
  }[damage]
  server.bodies = {FRAMES: body}
  out = run.output(server.url, code=1)
  assert server.gets(FRAMES) == [0, 0]
  assert f'(Pong/1 {FRAMES}): {FRAMES} is damaged' in out
  assert FRAMES not in contents(data_dir) and len(contents(data_dir)) == 17
  assert not (data_dir / 'partial').exists()
  server.bodies = {}
  assert run(server.url)[0] == 0
  assert_complete(root, data_dir)


def test_unrecorded_local_files_are_verified(root, server, run, data_dir):
  """Another program may have copied them."""
  shutil.copytree(root / RUN, data_dir)
  assert run.document(server.url, '--dry_run')['bytes_to_fetch'] == 0
  (data_dir / FRAMES).unlink()
  assert '1 files fetched, 17 already in place' in run.output(server.url)
  assert server.gets() == [0]
  assert_complete(root, data_dir)
  other = data_dir.parents[3] / 'other' / RUN
  shutil.copytree(root / RUN, other)
  run_files.flip_a_bit(other / FRAMES)
  out = run.output(server.url, to='other', code=1)
  assert f'{other / FRAMES} is damaged' in out
  assert 'Move it away' in out


def test_a_failing_disk_is_one_line(server, run, monkeypatch):
  for error, reported in (
    (OSError(28, 'No space left'), 'cannot be written: No space left; fetched'),
    (shard_reader.ReadError('x cannot be read.'), 'error: x cannot be read.'),
  ):
    monkeypatch.setattr(files, 'sync', mock.Mock(side_effect=error))
    assert reported in run.error(server.url, to=type(error).__name__)


def test_remote_manifest_is_kept(original, server, run, data_dir, root):
  name = manifests.FILE_NAME
  shutil.copy(original / RUN / name, root / RUN / name)
  manifest = json.loads((root / RUN / name).read_text())
  run.output(server.url)
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
    shutil.copy(original / RUN / manifests.FILE_NAME, root / RUN)
  frames = original / RUN / shard_files.file_name('observation', 0)
  server.bodies = {FRAMES: frames.read_bytes()}
  out = run.output(server.url, '--shards=1', code=1)
  assert f'its {kind} is' in out
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
