"""Tests for imported shards: links, manifests, resumption and stores."""

import json
import os
import shutil

import numpy as np

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.dataset.store import store
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.interchange.conftest import CAPACITY


def content(folder):
  """Returns the bytes and the number of links of each file."""
  return {p.name: (p.read_bytes(), p.stat().st_nlink) for p in folder.iterdir()}


def test_a_store_is_the_default(original, tmp_path, run):
  source = shutil.copytree(original, tmp_path / 'Pong/3/replay_logs')
  before = content(source)
  code, out, err = run('import', source.parent, tmp_path / 'store')
  assert code == 0 and out.endswith(f'{tmp_path}/store: 3 shards\n')
  assert content(source) == before
  assert not any(p.is_symlink() for p in (tmp_path / 'store').iterdir())
  ours = store.Store(str(tmp_path / 'store'), pack=False)
  theirs = store.Store(str(original), pack=False)
  for column in ('action', 'reward', 'ends'):
    np.testing.assert_array_equal(
      getattr(ours, column), getattr(theirs, column)
    )
  theirs.start()
  theirs.wait()
  rows = np.arange(theirs.rows)
  np.testing.assert_array_equal(ours.frames(rows), theirs.frames(rows))
  manifest = json.loads((tmp_path / 'store' / manifests.FILE_NAME).read_text())
  assert manifest['origin']['source'] == str(source.parent)
  assert sorted(os.listdir(tmp_path)) == ['Pong', 'original', 'store']
  code, out, _ = run('inspect', tmp_path / 'store', '--json')
  assert json.loads(out)['game'] == 'Pong'
  code, out, _ = run('verify', tmp_path / 'store')
  assert code == 0


def test_files_are_linked_and_another_destination_is_kept(
  original, tmp_path, run
):
  target = tmp_path / 'run'
  code, out, _ = run('import', original, target, '--shards', '--json')
  document = json.loads(out)
  assert code == 0 and document['shards'] == [0, 1, 2]
  assert document['taken'] == [['0-2', '.', '$store$_observation_ckpt.N.gz']]
  name = shard_files.file_name('observation', 1)
  assert (target / 'replay_logs' / name).samefile(original / name)
  before = (target / 'replay_logs' / manifests.FILE_NAME).read_bytes()
  assert run('import', original, target, '--shards')[0] == 0
  assert (target / 'replay_logs' / manifests.FILE_NAME).read_bytes() == before
  other = shutil.copytree(original, tmp_path / 'other')
  code, _, err = run('import', other, target, '--shards')
  assert code == 2 and is_one_line(err) and 'holds other files' in err


def test_a_stopped_import_continues(original, tmp_path, run, monkeypatch):
  link, done = os.link, []

  def crash(source, target):
    if len(done) == 7:
      raise KeyboardInterrupt
    done.append(target)
    link(source, target)

  def refuse(source, target):
    raise OSError(18, 'Invalid cross-device link')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'link', crash)
    assert run('import', original, tmp_path / 'run', '--shards')[0] == 130
  monkeypatch.setattr(os, 'link', refuse)  # The other files are copied.
  assert run('import', original, tmp_path / 'run', '--shards')[0] == 0
  logs = tmp_path / 'run/replay_logs'
  assert shards.read_run(logs) == shards.read_run(original)
  assert not (logs / 'partial').exists()


def test_the_manifest_of_our_logger_is_kept(tmp_path, run):
  source = tmp_path / 'Pong/1'
  environment = {'game': 'Pong', 'num_actions': 6}
  with shards.make_log(
    source / 'replay_logs', CAPACITY, environment=environment
  ) as log:
    for row in sum(shards.make_episodes([30, 30]), []):
      shards.add_row(log, row)
  manifest = json.loads(
    (source / 'replay_logs' / manifests.FILE_NAME).read_text()
  )
  assert run('import', source, tmp_path / 'run', '--shards')[0] == 0
  found = json.loads(
    (tmp_path / 'run/replay_logs' / manifests.FILE_NAME).read_text()
  )
  assert found['format'] == manifest['format']
  assert found['environment'] == manifest['environment'] == environment
  assert found['shards'][0]['episodes'] == manifest['shards'][0]['episodes']
  assert not run_checks.verify(str(tmp_path / 'run/replay_logs')).problems
  frames = source / 'replay_logs' / shard_files.file_name('observation', 1)
  other = source / 'replay_logs' / shard_files.file_name('observation', 0)
  frames.unlink()
  shutil.copy(other, frames)
  for options in ([], ['--shards']):  # a store, and shards
    target = tmp_path / f'other{len(options)}'
    code, _, err = run('import', source, target, *options)
    assert code == 2 and is_one_line(err)
    assert f'{frames} is damaged: its sha256 is' in err
    assert options or not target.exists()


def test_a_partial_run_loses_the_totals_of_its_manifest(tmp_path, run):
  logs = tmp_path / 'source'
  shards.write_run(logs, [30, 30, 30], capacity=40)
  (logs / shard_files.file_name('reward', 1)).unlink()
  assert run('import', logs, tmp_path / 'run', '--shards')[0] == 1
  assert run('import', logs, tmp_path / 'store')[0] == 1
  for folder in ('run/replay_logs', 'store'):
    path = tmp_path / folder / manifests.FILE_NAME
    assert (
      not {'rows', 'safe_rows', 'episodes'}
      & json.loads(path.read_text()).keys()
    )
