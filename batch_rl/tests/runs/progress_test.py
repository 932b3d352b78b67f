"""`progress.json`, as somebody else reads it."""

import json
import os
import time

import pytest

from batch_rl.runs import progress


@pytest.fixture
def clock(monkeypatch):
  """Seconds, in a list, that pass as a test says."""
  now = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  return now


def test_nobody_waits_for_the_disk(tmp_path, monkeypatch):
  monkeypatch.delattr(os, 'fsync')
  with progress.Progress(str(tmp_path), 3).bar(1, 'train', 10, 'update') as bar:
    bar.update()
  assert progress.read(str(tmp_path)) is not None


def test_a_run_that_is_watched(tmp_path, clock):
  told = progress.Progress(str(tmp_path), iterations=3)
  assert progress.read(str(tmp_path)) is None
  with told.bar(1, 'train', total=10, unit='update', done=4) as bar:
    clock[0] += 15
    bar.update()  # so late, as TensorFlow gets ready
    now = progress.read(str(tmp_path))
    assert now is not None and now['rates'] == {}
    clock[0] += 10
    bar.update(2)
    now = progress.read(str(tmp_path))
    assert now is not None
    assert now['rates'].pop('train') == 0.2
    now.pop('time')
    assert now == {
      'iteration': 1,
      'iterations': 3,
      'phase': 'train',
      'total': 10,
      'unit': 'update',
      'done': 7,
      'rates': {},
      'evaluation': None,
    }
  told.evaluation = 2.5
  with told.bar(1, 'eval', total=5, unit='step') as bar:
    clock[0] += 2
    bar.update(5)  # all of a short phase counts
  now = progress.read(str(tmp_path))
  assert now is not None
  assert (now['phase'], now['done'], now['evaluation']) == ('eval', 5, 2.5)
  assert now['rates'] == {'train': 0.2, 'eval': 2.5}
  told.finish()
  # Another process goes on with it.
  again = progress.Progress(str(tmp_path), iterations=5)
  again.finish()
  now = progress.read(str(tmp_path))
  assert now is not None
  assert (now['iteration'], now['phase'], now['evaluation']) == (
    5,
    'finished',
    2.5,
  )
  assert now['rates'].keys() == {'train', 'eval'}


def test_the_bar_may_be_turned_off(tmp_path, monkeypatch):
  monkeypatch.setenv('TQDM_DISABLE', '1')
  told = progress.Progress(str(tmp_path), iterations=3)
  with told.bar(0, 'train', total=10, unit='update') as bar:
    bar.update(3)
  assert json.loads((tmp_path / 'progress.json').read_text())['done'] == 3


@pytest.mark.parametrize('text', ['', '{"iteration"', '[1]'])
def test_what_cannot_be_read_is_nothing(tmp_path, text):
  (tmp_path / 'progress.json').write_text(text)
  assert progress.read(str(tmp_path)) is None


def test_a_run_does_not_end_because_it_cannot_be_watched(tmp_path):
  told = progress.Progress(str(tmp_path / 'file/below'), iterations=3)
  (tmp_path / 'file').write_text('')
  told.finish()
