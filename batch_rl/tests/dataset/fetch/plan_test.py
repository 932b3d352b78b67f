"""Remote and local files are compared before anything is fetched."""

import json
import shutil

import psutil
import pytest

from batch_rl.dataset.fetch import shard_run
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests.dataset.fetch.fetched_files import (
  FLAGS,
  FRAMES,
  RUN,
  assert_complete,
  contents,
)


def test_dry_run_fetches_nothing(root, server, run, tmp_path):
  out = run.output(server.url, '--dry_run')
  size = sum(map(len, contents(root / RUN).values()))
  assert not server.gets() and not (tmp_path / 'data').exists()
  assert out.startswith('Pong/1: shards 0-2, 18 files, ')
  document = run.document(server.url, '--dry_run')
  assert document['bytes_to_fetch'] == size
  assert len(document['runs'][0]['files']) == 18
  names = {'name', 'suffix', 'path', 'size', 'there', 'begun'}
  assert set(document['runs'][0]['files'][0]) == names


@pytest.mark.parametrize('status', [401, 403, 404])
def test_refusal_is_reported_once(server, run, status, tmp_path, monkeypatch):
  monkeypatch.setattr(shard_run, '_MAX_SHARDS', 51)
  server.statuses = {'': [status, 10_000]}
  err = run.error(server.url, '--run=1-5', code=1)
  assert f' {status} ' in err and err.count(f' {status} ') == 1
  assert 'batch_rl.dataset import' in err and 'batch_rl.baselines.train' in err
  assert 'rlu_atari_checkpoints_ordered' in err
  assert not (tmp_path / 'data').exists()
  if status == 403:  # Not every possible name is tried.
    assert len(server.requests) <= 40


def test_missing_runs_and_shards_are_reported(root, server, run, data_dir):
  out = run.output(server.url, '--shards=1,2,50', '--run=1,2', code=1)
  assert 'missing: Pong/2 is not available: 404' in out
  assert 'Pong/1: the source has no shards 50 (found: 1-2)' in out
  assert_complete(root, data_dir, (1, 2))
  for flag, *messages in (
    ('--game=Pnog', 'no Pnog/1', 'did you mean Pong?'),
    ('--run=7', 'no Pong/7', 'the folder above the games'),
    ('--shards=99', 'no Pong/1, shards 99'),
  ):
    err = run.error(root, flag, code=1)
    assert all(message in err for message in messages), err


def test_many_shards_are_all_fetched(root, server, run, data_dir, monkeypatch):
  """It has more shards than the runs of the dataset, and no manifest."""
  server.statuses = {'_ckpt.1': [404, 99]}
  out = run.output(server.url, code=1)
  assert 'the source has no shards 1 (found: 0,2)' in out
  monkeypatch.setattr(shard_run, '_MAX_SHARDS', 1)
  server.statuses = {'_ckpt.3': [403, 9]}  # Some servers refuse what they lack.
  assert run(server.url, '--jobs=1')[0] == 0
  assert_complete(root, data_dir)


@pytest.mark.parametrize('name', ['observation', 'reward'])
@pytest.mark.parametrize('with_manifest', [False, True])
def test_incomplete_shard_is_not_fetched(
  original, root, server, run, data_dir, name, with_manifest
):
  if with_manifest:
    shutil.copy(original / RUN / manifests.FILE_NAME, root / RUN)
  (root / RUN / shard_files.file_name(name, 1)).unlink()
  for source in (server.url, root):
    out = run.output(source, code=1)
    assert 'incomplete at the source: shards 1 (' in out
    assert shard_files.file_name(name, 1) in out
    assert 'source: shards 1 (' in run.error(source, '--shards=1', code=1)
    assert shard_files.list_suffixes(str(data_dir)) == [0, 2]


def test_a_server_may_refuse_a_shard_or_headers_only(server, run, data_dir):
  server.statuses = {shard_files.file_name('observation', 2): [403, 100]}
  out = run.output(server.url, code=1)
  assert 'missing: Pong/1: the source refuses shards 2' in out
  assert len(contents(data_dir)) == 12
  server.statuses = {'HEAD ': [405, 10_000]}
  assert run(server.url)[0] == 0
  assert len(contents(data_dir)) == 18


def test_other_files_and_logs_are_left_alone(original, server, run, data_dir):
  data_dir.mkdir(parents=True)
  (data_dir / FRAMES).write_bytes(b'mine')
  assert 'another run' in run.error(server.url)
  assert contents(data_dir) == {FRAMES: b'mine'}
  shutil.copytree(original / RUN, data_dir, dirs_exist_ok=True)
  assert 'not fetched or imported' in run.error(server.url)
  err = run.error(server.url, f'--data_dir={data_dir / FRAMES}')
  assert 'cannot be written' in err and 'choose another directory' in err
  assert 'which is read' in run.error(f'file://{data_dir.parents[2]}')


def test_malformed_manifest_is_tolerated(root, server, run, data_dir, caplog):
  entry = {'suffix': 0, 'files': {FRAMES: {'sha256': 5}}}
  (root / RUN / manifests.FILE_NAME).write_text(json.dumps({'shards': [entry]}))
  assert run(server.url)[0] == 0
  assert contents(data_dir) == contents(root / RUN)
  assert manifests.FILE_NAME in caplog.text


def test_disk_space_is_checked(root, unplugged, run, monkeypatch, tmp_path):
  usage = psutil.disk_usage('/')._replace(free=1_000)
  monkeypatch.setattr(psutil, 'disk_usage', lambda path: usage)
  for source, flags in ((root, ()), (unplugged, FLAGS)):
    err = run.error(source, *flags)
    assert 'only 1 kB are free' in err and not (tmp_path / 'data').exists()
    assert ('for the store' in err) == bool(flags)
