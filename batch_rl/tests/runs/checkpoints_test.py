import json
import os
import pathlib
import pickle
import resource
from unittest import mock

import gin
import pytest
import tensorflow as tf

from batch_rl.runs import checkpoints
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.utils import safe_pickle_test
from batch_rl.utils import programs, safe_pickle

Position = checkpoints.Position


def save(kept, position, content='weights', record=None, partial=None):
  def write(directory, number):
    folder = pathlib.Path(directory)
    (folder / f'tf_ckpt-{number}.index').write_text(content)
    (folder / 'checkpoint').write_text(directory)
    return {'training_steps': position.steps}

  kept.save(position, write, {'logs': {}, 'partial': partial}, record or {})


def names(base_dir):
  return sorted(os.listdir(base_dir / 'checkpoints'))


@pytest.fixture
def kept(tmp_path):
  return checkpoints.Checkpoints(str(tmp_path), keep=2)


def test_a_saved_checkpoint_is_durable_and_found(tmp_path, kept, synced):
  assert kept.newest() is None
  save(kept, Position(0, 40), record={'names': {2: 'a', 10: 'b'}})
  written = ['state.pickle', 'tf_ckpt-0.index', 'checkpoint.json.tmp']
  assert synced == [*written, 'ckpt-0-40.tmp', 'checkpoints']
  checkpoint, state = kept.newest()
  assert checkpoint.position == Position(0, 40)
  folder = tmp_path / 'checkpoints/ckpt-0-40'
  assert checkpoint.directory == str(folder)
  assert pathlib.Path(checkpoint.weights + '.index').read_text() == 'weights'
  assert state['agent'] == {'training_steps': 40}
  about = json.loads((folder / 'checkpoint.json').read_text())
  assert about['run'] == {'names': {'2': 'a', '10': 'b'}}
  assert set(about['files']) == {'state.pickle', 'tf_ckpt-0.index'}


def test_positions_are_ordered_by_time(kept):
  positions = [Position(0, 8), Position(1), Position(1, 4), Position(2)]
  assert sorted(positions[::-1]) == positions
  for position in positions[2:0:-1]:
    save(kept, position)
  assert kept.newest()[0].position == Position(1, 4)


def test_old_checkpoints_are_removed(tmp_path, kept):
  save(kept, Position(0, 4))
  save(kept, Position(0, 8))
  save(kept, Position(0, 12))
  assert names(tmp_path) == ['ckpt-0-12', 'ckpt-0-8']
  for iteration in (1, 2, 3):
    save(kept, Position(iteration))
    save(kept, Position(iteration, 4))
  # Two at the ends of iterations, and the two newest.
  assert names(tmp_path) == ['ckpt-1', 'ckpt-2', 'ckpt-3-4']
  kept = checkpoints.Checkpoints(str(tmp_path), keep=1, keep_every=3)
  for iteration in range(1, 9):
    save(kept, Position(iteration))
  # Iterations 2 and 5 are the third and the sixth; the two newest are always kept.
  assert names(tmp_path) == ['ckpt-2', 'ckpt-5', 'ckpt-6', 'ckpt-7']
  error = tf.errors.FailedPreconditionError(None, None, 'in use')
  with mock.patch.object(tf.io.gfile, 'rmtree', side_effect=error):
    save(kept, Position(9))  # goes on
  assert {'ckpt-6', 'ckpt-8'} <= {*names(tmp_path)}


@pytest.mark.parametrize(
  ('name', 'damage'),
  [
    ('checkpoint.json', run_files.flip_a_bit),
    ('checkpoint.json', lambda path: path.write_bytes(b'')),
    ('checkpoint.json', pathlib.Path.unlink),
    ('state.pickle', run_files.flip_a_bit),
    ('tf_ckpt-1.index', pathlib.Path.unlink),
  ],
)
def test_a_damaged_checkpoint_is_skipped(tmp_path, kept, caplog, name, damage):
  save(kept, Position(1))
  save(kept, Position(2))
  damage(tmp_path / 'checkpoints' / 'ckpt-1' / name)
  assert kept.newest()[0].position == Position(1)
  # Without a description there is no checkpoint.
  if (name, damage) != ('checkpoint.json', pathlib.Path.unlink):
    assert 'Checkpoint ckpt-1 in' in caplog.text
  # A repeated position is earlier than the damaged one, but is kept.
  save(kept, Position(1, 4))
  assert checkpoints.find(str(tmp_path))[-1].position == Position(1, 4)
  save(kept, Position(2))
  assert kept.newest()[0].position == Position(2)


def test_incomplete_ones_are_ignored_and_damaged_ones_an_error(tmp_path, kept):
  save(kept, Position(1))
  path = tmp_path / 'checkpoints/ckpt-0'
  path.rename(tmp_path / 'checkpoints/ckpt-0.tmp')
  (tmp_path / 'checkpoints/ckpt-0-of-the-user').mkdir()
  assert checkpoints.find(str(tmp_path)) == []
  assert kept.newest() is None
  assert names(tmp_path) == ['ckpt-0-of-the-user']
  (tmp_path / 'checkpoints/ckpt-0-of-the-user').rmdir()
  with pytest.raises(ValueError, match=r'\[1\] in a\[1\] for a pattern'):
    checkpoints.find('a[1]')
  (tmp_path / 'moved').mkdir()
  (tmp_path / 'moved/checkpoints').symlink_to('/not/mounted')
  with pytest.raises(OSError, match='/not/mounted'):
    checkpoints.find(str(tmp_path / 'moved'))
  save(kept, Position(1))
  assert names(tmp_path) == ['ckpt-0']
  (path / 'state.pickle').write_bytes(b'')
  with pytest.raises(ValueError, match='ckpt-0'):
    kept.newest()


def test_a_full_disk_keeps_existing_checkpoints(tmp_path, kept):
  save(kept, Position(1))
  with run_files.limited(resource.RLIMIT_FSIZE, 1000):
    with pytest.raises(OSError, match='ckpt-1 cannot be written: .*are kept'):
      save(kept, Position(2), 'x' * 2000)
  with pytest.raises(programs.MistakeError, match='cannot be saved, since it'):
    save(kept, Position(2), partial=iter('x'))
  assert names(tmp_path) == ['ckpt-0']
  # What cannot be read at the moment is not set aside.
  fail = mock.Mock(side_effect=OSError(5, 'try again'))
  with mock.patch('builtins.open', fail), pytest.raises(OSError, match='again'):
    kept.newest()
  assert kept.newest()[0].position == Position(1)


def test_checkpoints_are_due_by_time_and_by_steps(tmp_path, monkeypatch):
  now = [0.0]
  monkeypatch.setattr(checkpoints.time, 'monotonic', lambda: now[0])
  gin.bind_parameter('batch_rl.checkpoints.Checkpoints.every_steps', 50)
  kept = checkpoints.Checkpoints(str(tmp_path), every_minutes=2)
  assert not kept.is_due(Position(0, 49))
  assert kept.is_due(Position(0, 50))
  save(kept, Position(0, 60))
  assert not kept.is_due(Position(0, 109))
  assert kept.is_due(Position(0, 110))
  assert not kept.is_due(Position(1, 49))
  now[0] = 119.0
  assert not kept.is_due(Position(0, 61))
  now[0] = 120.0
  assert kept.is_due(Position(0, 61))
  assert kept.is_saved(Position(0, 60))
  gin.clear_config()
  never = checkpoints.Checkpoints(str(tmp_path), every_minutes=None)
  assert not never.is_due(Position(0, 10**9))


def test_checkpoints_of_dopamine_are_refused_at_the_start(tmp_path, kept):
  folder = tmp_path / 'checkpoints'
  folder.mkdir()
  (folder / 'sentinel_checkpoint_complete.3').write_text('done')
  with pytest.raises(ValueError, match="of Dopamine's own: .*--base_dir"):
    kept.newest()
  save(kept, Position(5))
  assert kept.newest()[0].position == Position(5)


def test_a_state_runs_no_code(tmp_path, kept, monkeypatch):
  exploit = safe_pickle_test.Exploit(os.mkdir, str(tmp_path / 'proof'))
  monkeypatch.setattr(safe_pickle, 'dumps', lambda _: pickle.dumps(exploit))
  save(kept, Position(1))
  with pytest.raises(ValueError, match='posix.mkdir'):
    kept.newest()
  assert not (tmp_path / 'proof').exists()
