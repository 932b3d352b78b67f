"""Tests that shards are recognised in any layout, and ambiguity is refused."""

import gzip
import json
import os
import shutil

import numpy as np
import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.interchange import shard_discovery
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import store
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.interchange.conftest import CAPACITY, rename


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
  """Returns colliding names: a shell makes `.0.gz` of `$store$_x_ckpt.0.gz`."""
  if name not in shard_files.COLUMNS:
    return shard_files.file_name(name, suffix)
  again = shard_files.COLUMNS.index(name)
  return f'.{suffix}.gz' + (f'.{again}' if again else '')


NAMES = {
  'original names': shard_files.file_name,
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
  'a folder for each shard, short names': (lambda n, s: f'{s}/{n}.gz'),
  'a folder for each shard, original names': (
    lambda n, s: f'Pong/1/shard-{s}/all/{shard_files.file_name(n, s)}'
  ),
  'folders named like checkpoints': lambda n, s: f'ckpt.{s}/{n}.gz',
  'a prefix, flat': lambda n, s: f'Pong_1_{shard_files.file_name(n, s)}',
  'a prefix with another number': lambda n, s: (
    f'run7-{shard_files.file_name(n, s)}'
  ),
  'only numbers': lambda n, s: f'{shard_files.FILES.index(n)}/x_ckpt.{s}.bin',
  'no dots': lambda n, s: f'{n}_ckpt_{s}',
}


@pytest.mark.parametrize('layout', NAMES)
def test_all_layouts_give_the_same_run(original, tmp_path, run, layout):
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
  assert not run_checks.verify(str(logs)).problems
  assert sorted(p for p in source.rglob('*') if p.is_file()) == before
  assert 'assumed' not in out and 'ignored' not in out
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  assert manifest['origin'] == {'how': 'import', 'source': str(source)}
  about = manifest['shards'][1]['files'][shard_files.file_name('reward', 1)]
  assert about['from'] == NAMES[layout]('reward', 1)


@pytest.mark.parametrize('ending', ['', '.npy', '.gz'])
def test_unzipped_files_are_recognised(original, tmp_path, run, ending):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  unzip(source, ending)
  code, _, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0
  assert shards.read_run(tmp_path / 'run/replay_logs') == shards.read_run(
    original
  )


def test_checkpoints_of_an_online_run(tmp_path, run):
  """Dopamine saves a ring that grows and wraps; the fourth save is incomplete."""
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
  assert (
    'repeats' in out
  )  # 33 rows, then 66 with the last 40 in the ring, then 99
  data = store.Store(str(tmp_path / 'r/replay_logs'))
  data.wait()
  # Row 0 to 32, then 33 to 65, then 66 to 98.
  expected = shards.with_padding(rows, 4)
  np.testing.assert_array_equal(data.action, [row.action for row in expected])
  np.testing.assert_array_equal(
    data.frames(np.arange(99))[:, 0, 0], [row.frame for row in expected]
  )


@pytest.mark.parametrize('named', [False, True])
def test_a_single_shard_needs_no_number(original, tmp_path, run, named):
  def name_of(name, suffix):
    index = shard_files.FILES.index(name)
    return f'{name}.gz' if named else f'{"abcdef"[index]}.bin'

  source = rename(original, tmp_path / 'source', name_of, [1])
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0 and 'assumed: no name has a shard number' in out
  ours = shard_reader.read_shard(str(tmp_path / 'run/replay_logs'), 0)
  theirs = shard_reader.read_shard(str(original), 1)
  assert ours.add_count == theirs.add_count
  for name in shard_files.COLUMNS:
    np.testing.assert_array_equal(ours.columns[name], theirs.columns[name])


def test_other_files_are_ignored_with_a_reason(original, tmp_path, run):
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
  for reason in (
    'embeddings_0.npy: holds float64 (9,)',
    'labels_0.npy: another file is named action',
    '.gstmp: an incomplete download',
    'episode_end_indices_ckpt.0.gz: readers do not need it',
    'notes.gz: holds no array',
    'partial: files that are being written',
    f'(1).gz: the same as {name}',
  ):
    assert any(reason in line for line in ignored)


# --- missing counters --------------------------------------------------


def remove(folder, column, suffixes=(0, 1, 2)):
  for suffix in suffixes:
    (folder / shard_files.file_name(column, suffix)).unlink()


def test_a_missing_add_count_is_inferred(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  remove(source, 'add_count')
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 0
  # Also for the final shard, from its invalid_range.
  assert 'add_count of shard 2 is 99: its invalid_range' in out
  data = store.Store(str(tmp_path / 'run/replay_logs'), pack=False)
  expected = store.Store(str(original), pack=False)
  np.testing.assert_array_equal(data.action, expected.action)
  np.testing.assert_array_equal(data.reward, expected.reward)
  np.testing.assert_array_equal(data.ends, expected.ends)
  assert all(p.follows for p in data.placements[1:])


def test_shards_without_any_counter(original, tmp_path, run):
  """Copies like `<game>/<run>/<shard>/observation.gz` have four columns only."""
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
  assert not run_checks.verify(str(logs)).problems


def test_a_shard_is_left_out_if_its_add_count_cannot_be_inferred(
  original, tmp_path, run
):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  remove(source, 'add_count', [1])
  count = np.array(30)  # as in a ring saved before it is full
  with gzip.open(source / shard_files.file_name('add_count', 0), 'wb') as file:
    np.save(file, count)
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 1 and 'missing: shard 1 is left out: its add_count' in out
  assert shard_files.list_suffixes(str(tmp_path / 'run/replay_logs')) == [0, 2]


def test_an_incomplete_shard_is_left_out(original, tmp_path, run):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  remove(source, 'reward', [1])
  code, out, _ = run('import', source, tmp_path / 'run', '--shards')
  assert code == 1 and 'missing: shard 1 is left out: it has no reward' in out
  code, out, _ = run('import', source, tmp_path / 'store')
  assert code == 1 and 'no shard between 0 and 2' in out
  remove(source, 'reward', [0, 2])
  code, out, err = run('import', source, tmp_path / 'other', '--shards')
  assert code == 2 and is_one_line(err) and 'no complete shard' in err
  assert not (tmp_path / 'other').exists()


# --- ambiguity and contradictions ---------------------------------------------------------


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


def test_two_runs_are_not_mixed_even_if_they_fit(original, tmp_path, run):
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
    (put('action', np.zeros(CAPACITY, np.int64)), 'named action, but holds'),
    (
      put('reward', np.zeros(CAPACITY, np.int32)),
      'which is an array of action',
    ),
    (put('terminal', np.zeros(CAPACITY - 1, np.uint8)), '39'),
    (put('add_count', np.array(-1)), 'not a count of rows'),
    (put('observation', np.zeros((3, 2, 2), np.uint8)), 'has 3 rows'),
    (damage, 'is damaged'),
    (bad_header, 'not a .npy'),
    (without_number, 'has no shard number in its name'),
  ],
)
def test_a_contradiction_is_an_error(original, tmp_path, run, change, message):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  change(source)
  code, _, err = run('import', source, tmp_path / 'run', '--shards')
  assert code == 2 and is_one_line(err) and message in err
  assert str(source) in err


def test_a_pipe_is_ignored(original, tmp_path, import_json):
  source = rename(original, tmp_path / 'source', shard_files.file_name)
  os.mkfifo(source / shard_files.file_name('action', 7))
  os.mkfifo(source / 'other')
  document = import_json(source, tmp_path / 'run', '--shards')
  assert list(document['ignored'].values()) == ['not a file']


@pytest.mark.parametrize(
  'source, message',
  [
    ('gs://bucket/dqn', '`fetch` it first'),
    ('nowhere', 'is not a directory'),
    ('', 'There is no complete shard'),
  ],
)
def test_a_mistake_is_one_line(tmp_path, run, source, message):
  path = source if '://' in source else tmp_path / source
  # Without --format, a server would be asked for dataset_info.json.
  code, out, err = run('import', path, tmp_path / 'run', '--format=dopamine')
  assert code == 2 and not out and is_one_line(err) and message in err


def test_contents_alone_distinguish_the_columns(original, tmp_path):
  source = rename(original, tmp_path / 'source', collided)
  found = shard_discovery.discover(str(source))
  for number in (0, 1, 2):
    for column in shard_files.COLUMNS:
      name = found.contents[number][column].name
      assert name == collided(column, number) and not (
        found.contents[number][column].named
      )


def test_only_the_shard_number_becomes_n(original, tmp_path):
  """In `.1.gz.1` and `7/1/observation.gz`, other digits stay."""
  source = rename(original, tmp_path / 'a', collided)
  table = shard_discovery.discover(str(source)).table()
  assert [line[:3] for line in table[1:4]] == [
    ['0-2', 'observation', '.N.gz'],
    ['0-2', 'action', '.N.gz.1'],
    ['0-2', 'reward', '.N.gz.2'],
  ]
  source = rename(original, tmp_path / 'b', lambda n, s: f'7/{s}/{n}.gz')
  table = shard_discovery.discover(str(source)).table()
  assert table[1][:3] == ['0-2', 'observation', '7/N/observation.gz']


def test_a_dry_run_does_nothing(original, tmp_path, run):
  code, out, _ = run('import', original, tmp_path / 'run', '--dry_run')
  assert code == 0 and not (tmp_path / 'run').exists()
  assert out.splitlines()[1].split()[:3] == [
    '0-2',
    'observation',
    '$store$_observation_ckpt.N.gz',
  ]
