import gzip
import json
import os
import pathlib
import pickle
import shutil

import pytest

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests import shards
from batch_rl.tests.dataset.interchange.conftest import CAPACITY
from batch_rl.tests.dataset.store import stores


def rename(original, folder, name_of, suffixes=(0, 1, 2)):
  """Copies shards to other names, `name_of(column or counter, number)`."""
  for suffix in suffixes:
    for name in shard_files.FILES:
      target = folder / name_of(name, suffix)
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(original / shard_files.file_name(name, suffix), target)
  return folder


def renamed(old, new, folder=''):
  file_name = shard_files.file_name
  return lambda name, n: folder + file_name(name, n).replace(old, new)


def content(folder):
  """Returns the bytes and the number of links of each file."""
  paths = filter(pathlib.Path.is_file, folder.rglob('*'))
  return {path: (path.read_bytes(), path.stat().st_nlink) for path in paths}


NAMES = {
  'a prefix that ends in store': renamed('', '', 'datastore_Pong_1_'),
  'in replay_logs of a run': renamed('', '', 'Pong/1/replay_logs/'),
  'percent-encoded': renamed('$', '%24'),
  'dollars lost': renamed('$', '_'),
  'dollars dropped': renamed('$', ''),
  'prefix lost': renamed('$store$_', ''),
  'a shell expanded $store': renamed('$store', ''),
  'a folder for each shard': lambda n, s: (
    f'Pong/1/shard-{s}/{shard_files.file_name(n, s)}'
  ),
  'padded numbers': lambda n, s: f'ckpt1_{s:02}/{shard_files.file_name(n, s)}',
  'a prefix with another number': renamed('', '', 'run7-'),
}


@pytest.mark.parametrize('layout', NAMES)
def test_all_layouts_give_the_same_run(original, tmp_path, run, layout):
  source = rename(original, tmp_path / 'Pong/3', NAMES[layout])
  before, target = content(source), tmp_path / 'store'
  out = run.output('import', source, target)
  assert out.endswith(f'{target}: 3 shards\n') and 'ignored' not in out
  assert content(source) == before
  assert not any(p.is_symlink() for p in target.iterdir())
  assert sorted(os.listdir(tmp_path)) == ['Pong', 'original', 'store']
  assert run('compare', original, target)[0] == 0
  run.output('verify', target)
  manifest = json.loads((target / manifests.FILE_NAME).read_text())
  assert manifest['origin'] == {'how': 'import', 'source': str(source)}
  assert run.document('inspect', target)['game'] == 'Pong'


def test_checkpoints_of_an_online_run(tmp_path, run):
  """Dopamine saves a ring that grows and wraps; the fourth save is incomplete."""
  from dopamine.tf.replay_memory import circular_replay_buffer

  folder = tmp_path / 'run' / 'checkpoints'
  folder.mkdir(parents=True)
  memory = circular_replay_buffer.OutOfGraphReplayBuffer((2, 2), 4, CAPACITY, 2)
  rows = shards.make_episodes([30, 30, 30])
  for number, episode in enumerate(rows):
    shards.add_rows(memory, episode)
    memory.save(str(folder), number)
    (folder / f'ckpt.{number}').write_bytes(b'\x80\x04a pickle')
    (folder / f'tf_ckpt-{number}.index').write_bytes(b'weights')
    (folder / f'sentinel_checkpoint_complete.{number}').write_bytes(b'')
  memory.save(str(folder), 3)
  (folder / shard_files.file_name('reward', 3)).unlink()
  out = run.output('import', tmp_path / 'run', tmp_path / 'store', code=1)
  assert 'shard 3 is left out' in out
  # 33 rows, then 66 with the last 40 in the ring, then 99.
  assert 'repeats' in out and 'ignored' not in out
  # Row 0 to 32, then 33 to 65, then 66 to 98.
  found = stores.rows_in(stores.open_store(tmp_path / 'store'))
  assert found == shards.with_padding(rows, 4)


def test_other_files_are_not_taken(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  name = shard_files.file_name('observation', 0)
  ends = gzip.compress(pickle.dumps({2}))  # the row is padding
  (source / 'episode_end_indices_ckpt.1.gz').write_bytes(ends)
  _, _, err = run('import', source, tmp_path / 'store')
  assert '1 episodes end without a terminal, e.g. at row 2 of' in err
  (source / 'episode_end_indices_ckpt.1.gz').unlink()
  others = [f'{name}_.gstmp', f'{name[:-3]} (1).gz', name[:-3], f'._{name}']
  prefixes = '$store$_', '_store_', 'store_R'
  others += [f'{prefix}my_reward_ckpt.0.gz' for prefix in prefixes]
  for other in others:
    (source / other).write_bytes(b'x')
  (source / 'episode_end_indices_ckpt.0.gz').write_bytes(b'x')
  (source / 'partial').mkdir()
  shutil.copy(source / name, source / 'partial' / name)
  (source / 'loop').symlink_to(source)
  (tmp_path / 'links').mkdir()
  (tmp_path / 'links/run').symlink_to(source)
  given = tmp_path / 'links/run/../links'  # behind a link
  document = run.document('import', given, tmp_path / 'store')
  assert sorted(document['ignored']) == sorted(f'run/{n}' for n in others)
  assert document['source'] == str(tmp_path / 'links')
  assert 'run has a folder `partial`' in document['notes'][0]
  assert run('compare', original, tmp_path / 'store')[0] == 0


def test_an_incomplete_shard_is_left_out(original, tmp_path, run):
  (original / shard_files.file_name('reward', 1)).unlink()
  out = run.output('import', original, tmp_path / 'store', code=1)
  assert 'missing: shard 1 is left out: it has no reward' in out
  assert 'no shard between 0 and 2' in out
  for number in (0, 2):
    (original / shard_files.file_name('add_count', number)).unlink()
  err = run.error('import', original, tmp_path / 'other')
  assert 'no complete shard' in err
  assert not (tmp_path / 'other').exists()


@pytest.mark.parametrize('suffixes', [(0, 1, 2), (2,)])
def test_two_runs_are_not_mixed(original, tmp_path, run, suffixes):
  """Neither if shards have the same numbers, nor if the numbers fit together."""
  source = tmp_path / 'source'
  first = [n for n in (0, 1, 2) if n not in suffixes] or suffixes
  rename(original, source, renamed('', '', '1/'), first)
  rename(original, source, renamed('', '', '2/'), suffixes)
  err = run.error('import', source, tmp_path / 'run')
  assert f'{source}/1/' in err and ' and 2/' in err and 'different' in err
  assert not (tmp_path / 'run').exists()
  assert run('import', source / '1', tmp_path / 'run')[0] == 0


def test_two_manifests_are_not_mixed(original, tmp_path, run):
  source = rename(original, tmp_path / 'runs', NAMES['a folder for each shard'])
  for number in (0, 2):
    manifests.write(f'{source}/Pong/1/shard-{number}', {'manifest_version': 1})
  err = run.error('import', source, tmp_path / 'store')
  assert 'shard-2 each have a manifest' in err
