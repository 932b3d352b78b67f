import os
import shutil

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.interchange.conftest import CAPACITY


def test_a_stopped_import_continues(original, tmp_path, run, monkeypatch):
  link = os.symlink

  def crash(source, target):
    if 'reward_ckpt.1' in target:
      raise KeyboardInterrupt
    link(source, target)

  with monkeypatch.context() as patch:
    patch.setattr(os, 'symlink', crash)
    assert run('import', original, tmp_path / 'store')[0] == 130
  assert run('import', original, tmp_path / 'store')[0] == 0
  assert run('compare', original, tmp_path / 'store')[0] == 0
  assert sorted(os.listdir(tmp_path)) == ['original', 'store']
  made = (tmp_path / 'store/store.json').read_bytes()
  assert run('import', original, tmp_path / 'store')[0] == 0
  assert (tmp_path / 'store/store.json').read_bytes() == made
  for name in ('other', f'other/{tmp_path.name}/original'):
    other = shutil.copytree(original, tmp_path / name)
    code, _, err = run('import', other, tmp_path / 'store')
    assert code == 2 and is_one_line(err) and 'is the store of' in err
  assert run('convert', original, tmp_path / 'converted')[0] == 0
  code, _, err = run('import', original, tmp_path / 'converted')
  assert code == 2 and is_one_line(err) and '.import' not in err


def test_the_manifest_of_our_logger_is_kept(tmp_path, run):
  source, store = tmp_path / 'Pong/1', tmp_path / 'store'
  logs = source / 'replay_logs'
  environment = {'game': 'Pong', 'num_actions': 6}
  with shards.make_log(logs, CAPACITY, environment=environment) as log:
    shards.add_rows(log, sum(shards.make_episodes([30, 30]), []))
  manifest = manifests.read(str(logs))
  manifests.write(str(source / 'store'), {})  # of another run
  assert run('import', source, store)[0] == 0
  found = manifests.read(str(store))
  assert found['format'] == manifest['format']
  assert found['environment'] == manifest['environment'] == environment
  assert found['shards'][0]['episodes'] == manifest['shards'][0]['episodes']
  totals = {'rows', 'safe_rows', 'episodes'}
  assert totals <= manifest.keys() and totals <= found.keys()
  frames = logs / shard_files.file_name('observation', 1)
  shutil.copy(logs / shard_files.file_name('observation', 0), frames)
  code, _, err = run('import', source, tmp_path / 'other')
  assert code == 2 and is_one_line(err)
  assert f'{frames} is not the file that' in err
  assert not (tmp_path / 'other.import').exists()
  # Without a shard, the totals are unknown.
  frames.unlink()
  assert run('import', source, tmp_path / 'third')[0] == 1
  assert not totals & manifests.read(str(tmp_path / 'third')).keys()
