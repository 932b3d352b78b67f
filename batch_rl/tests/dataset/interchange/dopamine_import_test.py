"""Shards are found in any layout, by what the files hold; nothing is guessed."""

import gzip
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.interchange import dopamine_import
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.conftest import is_one_line

CAPACITY = 40


@pytest.fixture
def original(tmp_path):
  """Shards 0, 1 and the final, partial 2; as the original stack left them."""
  folder = tmp_path / 'original'
  rows = shards.with_padding(shards.make_episodes([30, 30, 30]), 4)
  ring_logs.write_run(folder, rows, CAPACITY)
  return folder


def rename(original, folder, name_of, suffixes=(0, 1, 2)):
  """Copies shards to other names: `name_of(column or counter, number)`."""
  for suffix in suffixes:
    for name in shard_files.FILES:
      target = folder / name_of(name, suffix)
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(original / shard_files.file_name(name, suffix), target)
  return folder


def unzip(folder, ending=''):
  for path in [p for p in folder.rglob('*') if p.is_file()]:
    name = path.name.removesuffix('.gz') + ending
    path.with_name(name).write_bytes(gzip.decompress(path.read_bytes()))
    if path.with_name(name) != path:
      path.unlink()


def percent(name, suffix):
  return shard_files.file_name(name, suffix).replace('$', '%24')


def renamed(old, new):
  return lambda name, suffix: shard_files.file_name(name, suffix).replace(
    old, new
  )


def collided(name, suffix):
  """`cp $f $store$_observation_ckpt.0.gz` gives `.0.gz`, `--backup` `.0.gz.~1~`."""
  if name not in shard_files.COLUMNS:
    return shard_files.file_name(name, suffix)
  again = shard_files.COLUMNS.index(name)
  return f'.{suffix}.gz' + (f'.{again}' if again else '')


NAMES = {
  'as they are': shard_files.file_name,
  'in replay_logs of a run': (
    lambda n, s: f'Pong/1/replay_logs/{shard_files.file_name(n, s)}'
  ),
  'percent-encoded': percent,
  'dollars lost': renamed('$', '_'),
  'dollars dropped': renamed('$', ''),
  'prefix lost': renamed('$store$_', ''),
  'a shell expanded $store': renamed('$store', ''),
  'a shell expanded both, names collide': collided,
  'make expanded $s and $_': renamed('$store$_', 'tore'),
  'a folder for each column': lambda n, s: f'{n}/{s}.gz',
  'a folder for each shard, files as others call them': (
    lambda n, s: f'{s}/{n}.gz'
  ),
  'a folder for each shard, too': (
    lambda n, s: f'Pong/1/shard-{s}/all/{shard_files.file_name(n, s)}'
  ),
  'folders called as checkpoints': lambda n, s: f'ckpt.{s}/{n}.gz',
  'a prefix, flat': lambda n, s: f'Pong_1_{shard_files.file_name(n, s)}',
  'a prefix with another number': lambda n, s: (
    f'run7-{shard_files.file_name(n, s)}'
  ),
  'nothing but numbers': lambda n, s: (
    f'{shard_files.FILES.index(n)}/x_ckpt.{s}.bin'
  ),
  'no dots': lambda n, s: f'{n}_ckpt_{s}',
}


@pytest.mark.parametrize('layout', NAMES)
def test_layouts(original, tmp_path, run, layout):
  expected = shards.read_run(original)
  source = rename(original, tmp_path / 'source', NAMES[layout])
  before = sorted(p for p in source.rglob('*') if p.is_file())
  target = tmp_path / 'Pong' / '1'
  code, out, err = run('import', source, target, '--shards')
  assert code == 0 and not err
  logs = target / 'replay_logs'
  assert shards.read_run(logs) == expected
  assert sorted(os.listdir(logs)) == sorted(
    [manifests.FILE_NAME, *(p.name for p in original.iterdir())]
  )
  assert not run_checks.verify(str(logs)).wrong
  assert sorted(p for p in source.rglob('*') if p.is_file()) == before
  assert 'assumed' not in out and 'ignored' not in out
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  assert manifest['origin'] == {'how': 'import', 'source': str(source)}
  about = manifest['shards'][1]['files'][shard_files.file_name('reward', 1)]
  assert about['from'] == NAMES[layout]('reward', 1)


@pytest.mark.parametrize('ending', ['', '.npy', '.gz'])
def test_files_that_were_unzipped(original, tmp_path, run, ending):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  unzip(source, ending)
  code, _, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0
  assert shards.read_run(tmp_path / 'run/replay_logs') == shards.read_run(
    original
  )


def test_a_store_is_the_default(original, tmp_path, run):
  source = rename(original, tmp_path / 'Pong/3/replay_logs', percent)
  code, out, err = run('import', source.parent, tmp_path / 'store')
  assert code == 0 and out.endswith(f'{tmp_path}/store: 3 shards\n')
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


def test_checkpoints_of_an_online_run(tmp_path, run):
  """Of a ring that grows and wraps, by Dopamine itself; the fourth is cut off."""
  from dopamine.tf.replay_memory import circular_replay_buffer

  folder = tmp_path / 'run' / 'checkpoints'
  folder.mkdir(parents=True)
  memory = circular_replay_buffer.OutOfGraphReplayBuffer(
    (2, 2), 4, CAPACITY, 2, extra_storage_types=None
  )
  rows = shards.make_episodes([30, 30, 30])
  for number, episode in enumerate(rows):
    for row in episode:
      shards.add_row(memory, row)
    memory.save(str(folder), number)
    (folder / f'ckpt.{number}').write_bytes(b'\x80\x04a pickle')
    (folder / f'tf_ckpt-{number}.index').write_bytes(b'weights')
    (folder / f'sentinel_checkpoint_complete.{number}').write_bytes(b'')
  memory.save(str(folder), 3)
  (folder / shard_files.file_name('reward', 3)).unlink()
  code, out, err = run('import', tmp_path / 'run', tmp_path / 'r', '--shards')
  assert code == 0 and not err
  assert 'its checkpoint was not finished (no sentinel)' in out
  assert 'repeats' in out  # 33 rows, then 66 of which the ring has 40, then 99
  data = store.Store(str(tmp_path / 'r/replay_logs'))
  data.wait()
  # Row 0 to 32, then 33 to 65, then 66 to 98.
  expected = shards.with_padding(rows, 4)
  np.testing.assert_array_equal(data.action, [row.action for row in expected])
  np.testing.assert_array_equal(
    data.frames(np.arange(99))[:, 0, 0], [row.frame for row in expected]
  )


@pytest.mark.parametrize('named', [False, True])
def test_a_single_shard(original, tmp_path, run, named):
  def name_of(name, suffix):
    index = shard_files.FILES.index(name)
    return f'{name}.gz' if named else f'{"abcdef"[index]}.bin'

  source = rename(original, tmp_path / 'source', name_of, [1])
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0 and 'assumed: no name has the number of a shard' in out
  ours = shard_reader.read_shard(str(tmp_path / 'run/replay_logs'), 0)
  theirs = shard_reader.read_shard(str(original), 1)
  assert ours.add_count == theirs.add_count
  for name in shard_files.COLUMNS:
    np.testing.assert_array_equal(ours.columns[name], theirs.columns[name])


def test_what_is_beside_shards_is_left_alone(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  name = shard_files.file_name('observation', 0)
  np.save(source / 'embeddings_0.npy', np.zeros((9,), np.float64))
  np.save(source / 'labels_0.npy', np.zeros(CAPACITY, np.int32))
  (source / f'{name}_.gstmp').write_bytes((source / name).read_bytes()[:9])
  (source / 'episode_end_indices_ckpt.0.gz').write_bytes(
    gzip.compress(b'\x80\x04pickle')
  )
  (source / 'notes.gz').write_bytes(gzip.compress(b'hello'))
  (source / 'README').write_text('hello')
  (source / 'partial').mkdir()
  shutil.copy(source / name, source / 'partial' / name)
  shutil.copy(source / name, source / f'{name[:-3]} (1).gz')
  code, out, err = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0 and not err
  assert shards.read_run(tmp_path / 'run/replay_logs') == shards.read_run(
    original
  )
  ignored = [line for line in out.splitlines() if line.startswith('ignored')]
  assert len(ignored) == 7
  for what in (
    'embeddings_0.npy: holds float64 (9,)',
    'labels_0.npy: another file is called action',
    '.gstmp: a download that was not finished',
    'episode_end_indices_ckpt.0.gz: readers do not need it',
    'notes.gz: holds no array',
    'partial: files that are being written',
    f'(1).gz: the same as {name}',
  ):
    assert any(what in line for line in ignored)


# --- counters that are missing --------------------------------------------------


def remove(folder, what, suffixes=(0, 1, 2)):
  for suffix in suffixes:
    (folder / shard_files.file_name(what, suffix)).unlink()


def test_counters_are_told_by_the_format(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  remove(source, 'add_count')
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0
  # The final shard's, too, as it is told by invalid_range.
  assert 'add_count of shard 2 is 99: its invalid_range' in out
  data = store.Store(str(tmp_path / 'run/replay_logs'), pack=False)
  expected = store.Store(str(original), pack=False)
  np.testing.assert_array_equal(data.action, expected.action)
  np.testing.assert_array_equal(data.reward, expected.reward)
  np.testing.assert_array_equal(data.ends, expected.ends)
  assert all(p.follows for p in data.placements[1:])


def test_shards_without_any_counter(original, tmp_path, run):
  """As in `<game>/<run>/<shard>/observation.gz`, of the four columns only."""
  source = rename(
    original, tmp_path / 'source', lambda n, s: f'{s}/{n}.gz', (0, 1)
  )
  for suffix in (0, 1):
    for name in ('add_count', 'invalid_range'):
      (source / str(suffix) / f'{name}.gz').unlink()
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0 and out.count('assumed: add_count of shard') == 2
  assert 'add_count of shard 1 is 79: the ring was full' in out
  logs = tmp_path / 'run/replay_logs'
  assert shards.read_run(logs) == shards.read_run(original)[:79]
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  assert len(manifest['origin']['assumed']) == 4
  assert not run_checks.verify(str(logs)).wrong


def test_an_add_count_that_nothing_tells(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  remove(source, 'add_count', [1])
  count = np.array(30)  # of a ring that is saved whenever
  with gzip.open(source / shard_files.file_name('add_count', 0), 'wb') as file:
    np.save(file, count)
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 1 and 'missing: shard 1 is left out: its add_count' in out
  assert shard_files.list_suffixes(str(tmp_path / 'run/replay_logs')) == [0, 2]


def test_an_incomplete_shard_is_left_out(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  remove(source, 'reward', [1])
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 1 and 'missing: shard 1 is left out, there is no reward' in out
  code, out, _ = run('import', source, tmp_path / 'store')
  assert code == 1 and 'no shard between 0 and 2' in out
  remove(source, 'reward', [0, 2])
  code, out, err = run('import', source, tmp_path / 'other', '--shards')
  assert code == 2 and is_one_line(err) and 'no whole shard' in err
  assert not (tmp_path / 'other').exists()


# --- nothing is guessed ---------------------------------------------------------


def test_two_runs_are_not_mixed(original, tmp_path, run):
  source = tmp_path / 'source'
  for number in (1, 2):
    rename(original, source / str(number), shard_files.file_name)
  other = source / '2' / shard_files.file_name('reward', 1)
  with gzip.open(other, 'wb') as file:
    np.save(file, np.ones(CAPACITY, np.float32))
  code, out, err = run('import', source, tmp_path / 'run', '--shards')
  assert code == 2 and not out and is_one_line(err)
  assert str(other) in err and 'two runs' in err
  assert not (tmp_path / 'run').exists()


def test_two_runs_are_not_mixed_though_they_would_fit(original, tmp_path, run):
  source = rename(
    original,
    tmp_path / 's',
    lambda n, s: f'1/{shard_files.file_name(n, s)}',
    (0, 1),
  )
  rename(original, source, lambda n, s: f'2/{shard_files.file_name(n, s)}', [2])
  code, out, err = run('import', source, tmp_path / 'run', '--shards')
  assert code == 2 and not out and is_one_line(err) and 'two runs' in err
  code, out, _ = run('import', source / '1', tmp_path / 'run', '--shards')
  assert code == 0


def put(column, array):
  def change(source):
    with gzip.open(source / shard_files.file_name(column, 1), 'wb') as file:
      np.save(file, array)

  return change


def damage(source):
  path = source / shard_files.file_name('observation', 1)
  content = path.read_bytes()
  path.write_bytes(content[:-6] + bytes([content[-6] ^ 1]) + content[-5:])


def bad_header(source):
  path = source / shard_files.file_name('action', 1)
  path.write_bytes(gzip.compress(b'no array at all'))


def without_number(source):
  shutil.copy(source / shard_files.file_name('action', 1), source / 'action.gz')


@pytest.mark.parametrize(
  'change, message',
  [
    (put('action', np.zeros(CAPACITY, np.int64)), 'called action, but holds'),
    (
      put('reward', np.zeros(CAPACITY, np.int32)),
      'which is an array of action',
    ),
    (put('terminal', np.zeros(CAPACITY - 1, np.uint8)), '39'),
    (put('add_count', np.array(-1)), 'not a count of rows'),
    (put('observation', np.zeros((3, 2, 2), np.uint8)), 'has 3 rows'),
    (damage, 'is damaged'),
    (bad_header, 'not a .npy'),
    (without_number, 'has no number that tells its shard'),
  ],
)
def test_what_cannot_be_is_an_error(original, tmp_path, run, change, message):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  change(source)
  code, _, err = run('import', source, tmp_path / 'run', '--shards')
  assert code == 2 and is_one_line(err) and message in err
  assert str(source) in err


@pytest.mark.parametrize(
  'source, message',
  [
    ('gs://bucket/dqn', '`fetch` it first'),
    ('nowhere', 'is not a folder'),
    ('', 'There is no whole shard'),
  ],
)
def test_mistakes_are_one_line(tmp_path, run, source, message):
  path = source if '://' in source else tmp_path / source
  # Whether something remote is a TFDS dataset, a server would have to say.
  code, out, err = run('import', path, tmp_path / 'run', '--format=dopamine')
  assert code == 2 and not out and is_one_line(err) and message in err


def test_a_name_beats_its_likes_but_not_its_contents(original, tmp_path):
  """Headers alone tell all columns of one shard apart."""
  source = rename(original, tmp_path / 'source', collided)
  found = dopamine_import.find(str(source))
  for number in (0, 1, 2):
    for what in shard_files.COLUMNS:
      name = found.shards[number][what].name
      assert name == collided(what, number) and not (
        found.shards[number][what].named
      )


# --- the destination ------------------------------------------------------------


def test_files_are_linked_and_the_destination_is_kept(original, tmp_path, run):
  target = tmp_path / 'run'
  code, out, _ = run('import', original, target, '--shards', '--json')
  document = json.loads(out)
  assert code == 0 and document['shards'] == [0, 1, 2]
  assert len(document['taken']) == 6
  name = shard_files.file_name('observation', 1)
  assert (target / 'replay_logs' / name).samefile(original / name)
  before = (target / 'replay_logs' / manifests.FILE_NAME).read_bytes()
  assert run('import', original, target, '--shards')[0] == 0
  assert (target / 'replay_logs' / manifests.FILE_NAME).read_bytes() == before
  other = pathlib.Path(shutil.copytree(original, tmp_path / 'other'))
  code, _, err = run('import', other, target, '--shards')
  assert code == 2 and is_one_line(err) and 'holds something else' in err


def test_files_are_copied_where_they_cannot_be_linked(
  original, tmp_path, run, monkeypatch
):
  def refuse(*args, **kwargs):
    raise OSError(18, 'Invalid cross-device link')

  monkeypatch.setattr(os, 'link', refuse)
  assert run('import', original, tmp_path / 'run', '--shards')[0] == 0
  logs = tmp_path / 'run/replay_logs'
  assert shards.read_run(logs) == shards.read_run(original)
  assert not any(path.is_symlink() for path in logs.iterdir())
  assert run('import', original, tmp_path / 'store')[0] == 0
  assert store.Store(str(tmp_path / 'store'), pack=False).rows == 99


def test_an_import_that_was_stopped_goes_on(
  original, tmp_path, run, monkeypatch
):
  done = []
  prepare = dopamine_import._prepare

  def crash(found, path, symlinks):
    if len(done) == 7:
      raise KeyboardInterrupt
    done.append(path)
    prepare(found, path, symlinks)

  monkeypatch.setattr(dopamine_import, '_prepare', crash)
  assert run('import', original, tmp_path / 'run', '--shards')[0] == 130
  monkeypatch.setattr(dopamine_import, '_prepare', prepare)
  assert run('import', original, tmp_path / 'run', '--shards')[0] == 0
  logs = tmp_path / 'run/replay_logs'
  assert shards.read_run(logs) == shards.read_run(original)
  assert not (logs / 'partial').exists()


def test_a_dry_run_does_nothing(original, tmp_path, run):
  code, out, _ = run('import', original, tmp_path / 'run', '--dry_run')
  assert code == 0 and not (tmp_path / 'run').exists()
  assert out.splitlines()[1].split()[:3] == [
    '0-2',
    'observation',
    '$store$_observation_ckpt.N.gz',
  ]


def test_only_the_number_of_the_shard_is_replaced(original, tmp_path):
  """Of `.1.gz.1`, and of `7/1/frames-1`."""
  source = rename(original, tmp_path / 'a', collided)
  table = dopamine_import.find(str(source)).table()
  assert [line[:3] for line in table[1:4]] == [
    ['0-2', 'observation', '.N.gz'],
    ['0-2', 'action', '.N.gz.1'],
    ['0-2', 'reward', '.N.gz.2'],
  ]
  source = rename(original, tmp_path / 'b', lambda n, s: f'7/{s}/{n}.gz')
  table = dopamine_import.find(str(source)).table()
  assert table[1][:3] == ['0-2', 'observation', '7/N/observation.gz']


def test_our_own_manifest_comes_along(tmp_path, run):
  shards.write_run(tmp_path / 'Pong/1/replay_logs', [30, 30], CAPACITY)
  source = tmp_path / 'Pong/1'
  manifest = json.loads(
    (source / 'replay_logs' / manifests.FILE_NAME).read_text()
  )
  assert run('import', source, tmp_path / 'run', '--shards')[0] == 0
  found = json.loads(
    (tmp_path / 'run/replay_logs' / manifests.FILE_NAME).read_text()
  )
  assert found['format'] == manifest['format']
  assert found['shards'][0]['episodes'] == manifest['shards'][0]['episodes']
  assert not run_checks.verify(str(tmp_path / 'run/replay_logs')).wrong
  frames = source / 'replay_logs' / shard_files.file_name('observation', 1)
  other = source / 'replay_logs' / shard_files.file_name('observation', 0)
  frames.unlink()
  shutil.copy(other, frames)
  code, _, err = run('import', source, tmp_path / 'other', '--shards')
  assert code == 2 and is_one_line(err) and 'its sha256 is' in err


def test_an_import_again_takes_what_is_new(original, tmp_path, run):
  """Here the counter that had been assumed, and a file with other contents."""
  counter = original / shard_files.file_name('add_count', 2)
  kept, said = counter.read_bytes(), int(shard_reader.read_array(str(counter)))
  ranges = original / shard_files.file_name('invalid_range', 2)
  kept_ranges = ranges.read_bytes()
  counter.unlink()
  ranges.unlink()
  logs = tmp_path / 'run/replay_logs'
  target = logs / counter.name
  run('import', original, tmp_path / 'run', '--shards')
  assert (
    not target.exists() or int(shard_reader.read_array(str(target))) != said
  )
  counter.write_bytes(kept)
  ranges.write_bytes(kept_ranges)
  assert run('import', original, tmp_path / 'run', '--shards')[0] == 0
  assert int(shard_reader.read_array(str(target))) == said
  actions = original / shard_files.file_name('action', 0)
  changed = shard_reader.read_array(str(actions))[::-1].copy()
  actions.unlink()
  with gzip.open(actions, 'wb') as file:
    np.save(file, changed)
  assert run('import', original, tmp_path / 'run', '--shards')[0] == 0
  np.testing.assert_array_equal(
    shard_reader.read_array(str(logs / actions.name)), changed
  )


def test_an_occupied_store_is_refused_at_once(
  original, tmp_path, run, monkeypatch
):
  monkeypatch.delattr(
    dopamine_import, '_prepare'
  )  # nothing is to be read for it
  (tmp_path / 'store').mkdir()
  (tmp_path / 'store/thesis.tex').write_text('x')
  code, _, err = run('import', original, tmp_path / 'store')
  assert code == 2 and is_one_line(err) and 'holds something else' in err
  assert not (tmp_path / 'store.import').exists()


def test_a_part_of_a_run_is_not_described_as_the_whole(tmp_path, run):
  logs = tmp_path / 'source'
  shards.write_run(logs, [30, 30, 30], capacity=40)
  (logs / shard_files.file_name('reward', 1)).unlink()
  assert run('import', logs, tmp_path / 'run', '--shards')[0] == 1
  path = tmp_path / 'run/replay_logs' / manifests.FILE_NAME
  manifest = json.loads(path.read_text())
  assert [entry['suffix'] for entry in manifest['shards']] == [0, 2]
  assert not {'rows', 'safe_rows', 'episodes'} & manifest.keys()
