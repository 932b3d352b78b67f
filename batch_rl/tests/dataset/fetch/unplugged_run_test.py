"""Requests for RL Unplugged's files are checked before anything is fetched."""

import json
import shutil

import pytest

from batch_rl.dataset.fetch import unplugged_run
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.fetch.fetched_stores import FLAGS, NAMES, shards

UNPLUGGED = FLAGS[0]


def test_dry_run(pong, web, run, tmp_path):
  size = sum((pong / name).stat().st_size for name in NAMES)
  code, out, _ = run(web.url, *FLAGS, '--dry_run')
  assert code == 0 and not web.gets() and not (tmp_path / 'data').exists()
  assert out.startswith('Pong/1: checkpoints 0-3, 4 files, ')
  assert 'disk space: about ' in out and 'at most 4 at a time' in out
  code, out, _ = run(web.url, *FLAGS, '--dry_run', '--json', '--jobs=1')
  document = json.loads(out)
  assert code == 0 and document['bytes_to_fetch'] == size
  assert document['disk']['raw_files'] == 3
  assert document['disk']['raw_bytes'] < size
  assert document['disk']['store_bytes'] == round(
    unplugged_run.STORE_RATIO * size
  )


def test_all_checkpoints_are_the_default(web, run, store):
  code, out, _ = run(web.url, UNPLUGGED)
  assert code == 1 and shards(store) == [0, 1, 2, 3]
  lacking = 'Pong/1: the source has no checkpoints 4-49 (found: 0-3)'
  assert f'missing: {lacking}\n' in out
  web.requests.clear()
  code, out, _ = run(web.url, UNPLUGGED, '--dry_run')
  assert code == 1 and f'missing: {lacking}\n' in out


@pytest.mark.parametrize(
  'arguments, message',
  [
    (dict(game='Pnog'), 'no Pnog (did you mean Pong?)'),
    (dict(game='Adventure'), '46 games, and no Adventure'),
    (dict(more=['--shards=1']), '--shards does not apply to --layout=unp'),
    (dict(layout='dopamine', more=['--checkpoints=1']), '--layout=dopamine'),
  ],
)
def test_mistakes_are_one_line_before_any_request(
  web, run, tmp_path, arguments, message
):
  more = arguments.get('more', [])
  named = {k: arguments[k] for k in ('game', 'run') if k in arguments}
  layout = arguments.get('layout', 'unplugged')
  code, out, err = run(web.url, f'--layout={layout}', *more, **named)
  assert code == 2 and not out and is_one_line(err) and message in err
  assert not web.requests and not (tmp_path / 'data').exists()


@pytest.mark.parametrize(
  'folder, layout',
  [
    ('/atari_episodes_ordered/Pong', 'unplugged'),
    ('/atari', 'unplugged'),
    ('', 'dopamine'),
  ],
)
def test_the_right_folder_and_layout_are_asked_for(
  web, run, tmp_path, folder, layout
):
  code, out, err = run(web.url + folder, f'--layout={layout}')
  assert code in (1, 2) and not out and is_one_line(err)
  assert 'the folder above the games' in err and '--layout' in err
  assert not (tmp_path / 'data').exists()


# --- the destination ------------------------------------------------------------


def test_shards_are_not_mixed_with_a_store(root, unplugged, run, store):
  assert run(root)[0] == 0
  code, _, err = run(unplugged, *FLAGS)
  assert code == 2 and is_one_line(err) and f'{store} holds shards' in err
  assert run(unplugged, *FLAGS, to='other')[0] == 0
  code, _, err = run(root, to='other')
  assert code == 2 and is_one_line(err) and 'is a store' in err


def test_store_of_another_run_or_file_is_not_continued(
  unplugged, run, store, pong, tmp_path
):
  assert run(unplugged, UNPLUGGED, '--checkpoints=0')[0] == 0
  other = tmp_path / 'other' / 'Pong' / '2'
  shutil.copytree(store, other)
  shutil.copy(pong / NAMES[0], pong / NAMES[0].replace('run_1', 'run_2'))
  code, _, err = run(unplugged, *FLAGS, '--dry_run', run='2', to='other')
  assert code == 2 and is_one_line(err)
  assert 'is a store of run 1 of Pong' in err and 'not of run 2' in err
  shutil.copy(pong / NAMES[1], pong / NAMES[0])
  code, _, err = run(unplugged, *FLAGS)
  assert code == 2 and is_one_line(err) and 'was made from a file of' in err
