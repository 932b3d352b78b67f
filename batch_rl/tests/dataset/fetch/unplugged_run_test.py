"""RL Unplugged's files become the store of their run as they arrive."""

import json
import shutil
import time

import pytest

from batch_rl.dataset.fetch import partial_file, unplugged_run
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.store import store_directory
from batch_rl.dataset.unplugged import file_names
from batch_rl.tests.dataset.checks.run_files import flipped
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.fetch.fetched_files import FLAGS, NAMES

UNPLUGGED = FLAGS[0]


def shards(store):
  """Returns the numbers of a complete store's shards."""
  return store_directory.StoreDirectory(str(store)).shards()


def raw_files(store):
  return [path.name for path in (store / unplugged_run.RAW).glob('*')]


def test_dry_run(pong, web, run, tmp_path):
  size = sum((pong / name).stat().st_size for name in NAMES)
  out = run.output(web.url, *FLAGS, '--dry_run')
  assert not web.gets() and not (tmp_path / 'data').exists()
  assert out.startswith('Pong/1: checkpoints 0-3, 4 files, ')
  assert 'disk space: about ' in out and 'at most 4 at a time' in out
  document = run.document(web.url, *FLAGS, '--dry_run', '--jobs=1')
  assert document['bytes_to_fetch'] == size
  assert document['disk']['raw_files'] == 3
  assert document['disk']['raw_bytes'] < size
  store_bytes = round(unplugged_run.STORE_RATIO * size)
  assert document['disk']['store_bytes'] == store_bytes


def test_all_checkpoints_are_the_default(web, run, store):
  out = run.output(web.url, UNPLUGGED, code=1)
  assert shards(store) == [0, 1, 2, 3]
  lacking = 'Pong/1: the source has no checkpoints 4-49 (found: 0-3)'
  assert f'missing: {lacking}\n' in out
  web.requests.clear()
  out = run.output(web.url, UNPLUGGED, '--dry_run', code=1)
  assert f'missing: {lacking}\n' in out


@pytest.mark.parametrize(
  'folder, layout',
  [
    ('/atari_episodes_ordered/Pong', 'unplugged'),
    ('/atari', 'unplugged'),
    ('', 'dopamine'),
  ],
)
def test_another_folder_or_layout_is_named(web, run, tmp_path, folder, layout):
  code, out, err = run(web.url + folder, f'--layout={layout}')
  assert code in (1, 2) and not out and is_one_line(err)
  assert 'the folder above the games' in err and '--layout' in err
  assert not (tmp_path / 'data').exists()


def test_shards_are_not_mixed_with_a_store(root, unplugged, run, store):
  assert run(root)[0] == 0
  assert f'{store} holds shards' in run.error(unplugged, *FLAGS)
  assert run(unplugged, *FLAGS, to='other')[0] == 0
  assert 'is a store' in run.error(root, to='other')


def test_another_store_is_not_continued(unplugged, run, store, pong, tmp_path):
  """One of another run, or of another file."""
  code, out, _ = run(unplugged, UNPLUGGED, '--checkpoints=0,2')
  assert code == 0 and 'note: Pong/1: no shard between 0 and 2\n' in out
  shutil.copytree(store, tmp_path / 'other' / 'Pong' / '2')
  shutil.copy(pong / NAMES[0], pong / NAMES[0].replace('run_1', 'run_2'))
  err = run.error(unplugged, *FLAGS, '--dry_run', '--run=2', to='other')
  assert 'is a store of run 1 of Pong' in err and 'not of run 2' in err
  shutil.copy(pong / NAMES[1], pong / NAMES[0])
  assert 'was made from a file of' in run.error(unplugged, *FLAGS)


def test_dropped_connections_are_resumed(web, run, pong, store, run_hash):
  web.drop_after = 50_000
  out = run.output(web.url, *FLAGS, '--retries=1')
  assert f'hash {run_hash}' in out and '4 files fetched, 0 already' in out
  for k, name in enumerate(NAMES):
    size = (pong / name).stat().st_size
    assert web.gets(name) == list(range(0, size, 50_000))
    assert f'Pong/1: checkpoint {k} is complete\n' in out
  assert shards(store) == [0, 1, 2, 3] and not raw_files(store)


def test_the_source_may_be_the_folder_of_games(unplugged, run, run_hash):
  assert f'hash {run_hash}' in run.output(unplugged / file_names.FOLDER, *FLAGS)


def test_rest_of_a_killed_process_is_removed(web, run, pong, store):
  """It was killed after the import of a file, or while it removed one."""
  assert run(web.url, *FLAGS)[0] == 0
  raw = store / unplugged_run.RAW
  raw.mkdir()
  (raw / NAMES[0]).write_bytes((pong / NAMES[0]).read_bytes())
  for name in NAMES[:2]:
    note = {'bytes': (pong / name).stat().st_size, 'version': 'x'}
    (raw / f'{name}.json').write_text(json.dumps(note))
  assert run(web.url, *FLAGS)[0] == 0 and not raw_files(store)


def test_raw_files_on_the_disk_are_few(web, run, store, monkeypatch):
  add, held = store_import.StoreImport.add, []

  def raw():
    return [n for n in raw_files(store) if not n.endswith('.json')]

  def slow_add(self, *arguments):
    deadline = time.monotonic() + 10
    while not held and len(raw()) < 3 and time.monotonic() < deadline:
      time.sleep(0.01)
    time.sleep(0.1)  # A fourth would come.
    held.append(raw())
    add(self, *arguments)

  monkeypatch.setattr(store_import.StoreImport, 'add', slow_add)
  assert 'at most 3 at a time' in run.output(web.url, *FLAGS, '--jobs=1')
  assert max(map(len, held)) == 3


def test_damaged_and_refused_files_are_named(web, run, pong, store, run_hash):
  web.bodies = {NAMES[1]: flipped((pong / NAMES[1]).read_bytes())}
  web.statuses = {f'GET /{file_names.FOLDER}/Pong/{NAMES[2]}': [403, 99]}
  out = run.output(web.url, *FLAGS, code=1)
  assert web.gets(NAMES[1]) == [0, 0]
  for name in NAMES[1:3]:
    assert f'missing: a file was not fetched (Pong/1 {name}): ' in out
  assert 'or without checkpoints 1-2\n' in out and not raw_files(store)
  with pytest.raises(ValueError, match='shards 1, 2 are missing'):
    shards(store)
  # The store is complete without the checkpoints, and later with them.
  out = run.output(web.url, UNPLUGGED, '--checkpoints=0,3')
  assert '0 files fetched, 2 already' in out
  assert shards(store) == [0, 3]
  web.bodies, web.statuses = {}, {}
  out = run.output(web.url, *FLAGS)
  assert f'hash {run_hash}' in out and '2 files fetched' in out


def test_the_planned_size_is_kept(web, run, pong, store, run_hash, monkeypatch):
  sizes = [(pong / name).stat().st_size for name in NAMES]
  monkeypatch.setattr(partial_file, '_MOST_BYTES', 9000)
  web.endless = True
  for web.lengths, limit in ((True, sizes[1]), (False, 9000)):
    document = run.document(web.url, *FLAGS, code=1)
    assert f'sends more than {limit:,} B for ' in str(document)
    assert document['bytes'] <= 2 * sum(sizes) and not raw_files(store)
  web.endless, web.lengths = False, True
  assert f'hash {run_hash}' in run.output(web.url, *FLAGS)


def test_contradicting_last_steps_end_the_fetch(run, tmp_path, web, pong):
  from batch_rl.tests.dataset.unplugged import unplugged_files  # TensorFlow

  for k, last_step in enumerate(('transition', 'observation')):
    episodes = unplugged_files.random_episodes(30, 20, seed=k)
    path = pong / NAMES[k]
    unplugged_files.write_file(path, episodes, k, last_step=last_step)
  code, _, err = run(web.url, *FLAGS, '--jobs=1')
  assert code == 2 and is_one_line(err) and 'to go on as before' in err
  assert len(web.gets(NAMES[1])) == 1
  out = run.output(web.url, *FLAGS, '--last_step=transition', to='other')
  assert 'terminal steps: transition' in out
