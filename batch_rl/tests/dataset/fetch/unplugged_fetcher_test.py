"""RL Unplugged's files become the store of their run as they arrive."""

import json
import time

import pytest

from batch_rl.dataset.fetch import unplugged_run
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.unplugged import file_names
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.fetch.fetched_files import corrupt
from batch_rl.tests.dataset.fetch.fetched_stores import (
  FLAGS,
  NAMES,
  raw_files,
  shards,
)


def test_dropped_connections_are_resumed(web, run, pong, store, run_hash):
  web.drop_after = 50_000
  code, out, err = run(web.url, *FLAGS, '--retries=1')
  assert code == 0 and not err
  assert f'hash {run_hash}' in out and '4 files fetched, 0 already' in out
  for k, name in enumerate(NAMES):
    size = (pong / name).stat().st_size
    assert web.gets(name) == list(range(0, size, 50_000))
    assert f'Pong/1: checkpoint {k} is complete\n' in out
  assert shards(store) == [0, 1, 2, 3] and not raw_files(store)


@pytest.mark.parametrize(
  ('kind', 'with_folder'), [('folder', True), ('memory', False), ('web', True)]
)
def test_sources(unplugged, web, run, run_hash, kind, with_folder):
  source = {'folder': unplugged, 'memory': 'memory://u', 'web': web.url}[kind]
  if kind == 'memory':
    import fsspec

    fsspec.filesystem('memory').put(str(unplugged), '/u', recursive=True)
  if with_folder:
    source = f'{source}/{file_names.FOLDER}'
  code, out, err = run(source, *FLAGS)
  assert code == 0 and not err and f'hash {run_hash}' in out


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

  def slow_add(self, *arguments):
    time.sleep(0.1)
    held.append([n for n in raw_files(store) if not n.endswith('.json')])
    add(self, *arguments)

  monkeypatch.setattr(store_import.StoreImport, 'add', slow_add)
  code, out, _ = run(web.url, *FLAGS, '--jobs=1')
  assert code == 0 and 'at most 3 at a time' in out
  assert max(map(len, held)) == 3


# --- damage ---------------------------------------------------------------------


def test_damaged_file_is_fetched_twice_and_named(
  web, run, pong, store, run_hash
):
  web.bodies = {NAMES[1]: corrupt(pong / NAMES[1])}
  code, out, _ = run(web.url, *FLAGS)
  assert code == 1 and web.gets(NAMES[1]) == [0, 0]
  assert f'missing: a file was not fetched (Pong/1 {NAMES[1]}): ' in out
  assert 'or without checkpoints 1\n' in out and not raw_files(store)
  with pytest.raises(ValueError, match='shards 1 are missing'):
    shards(store)
  # The store is complete without the checkpoint, and later with it.
  code, out, _ = run(web.url, '--layout=unplugged', '--checkpoints=0,2-3')
  assert code == 0 and '0 files fetched, 3 already' in out
  assert shards(store) == [0, 2, 3]
  web.bodies = {}
  code, out, _ = run(web.url, *FLAGS)
  assert code == 0 and f'hash {run_hash}' in out and '1 files fetched' in out


def test_a_file_that_cannot_be_fetched_leaves_no_complete_store(
  web, run, store
):
  web.statuses = {f'GET /{file_names.FOLDER}/Pong/{NAMES[1]}': [403, 99]}
  code, out, _ = run(web.url, *FLAGS)
  assert code == 1 and 'or without checkpoints 1\n' in out
  with pytest.raises(ValueError, match='shards 1 are missing'):
    shards(store)


def test_contradicting_last_steps_end_the_fetch(run, tmp_path, web, pong):
  from batch_rl.tests.dataset.unplugged import unplugged_files  # TensorFlow

  for k, last_step in enumerate(('transition', 'observation')):
    unplugged_files.write_file(
      pong / NAMES[k],
      unplugged_files.random_episodes(30, 20, seed=k),
      k,
      last_step=last_step,
    )
  code, _, err = run(web.url, *FLAGS, '--jobs=1')
  assert code == 2 and is_one_line(err) and 'to go on as before' in err
  assert len(web.gets(NAMES[1])) == 1
  code, out, _ = run(web.url, *FLAGS, '--last_step=transition', to='other')
  assert code == 0 and 'terminal steps: transition' in out


# --- interruption ---------------------------------------------------------------
