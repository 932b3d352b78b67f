"""`progress.json`, as other programs read it."""

import json
import os
import time

import pytest

from batch_rl.runs import progress


@pytest.fixture
def clock(monkeypatch):
  """List of one number: the time in seconds, set by the test."""
  now = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  return now


def test_progress_is_written_without_fsync(tmp_path, monkeypatch):
  monkeypatch.delattr(os, 'fsync')
  with progress.Progress(str(tmp_path), 3).bar(1, 'train', 10, 'update') as bar:
    bar.update()
  assert progress.read(str(tmp_path)) is not None


def test_progress_of_a_run(tmp_path, clock):
  written = progress.Progress(str(tmp_path), iterations=3)
  assert progress.read(str(tmp_path)) is None
  with written.bar(1, 'train', total=10, unit='update', done=4) as bar:
    clock[0] += 15
    bar.update()  # TensorFlow starts slowly.
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
  written.evaluation = 2.5
  with written.bar(1, 'eval', total=5, unit='step') as bar:
    clock[0] += 2
    bar.update(5)  # A short phase counts entirely.
  now = progress.read(str(tmp_path))
  assert now is not None
  assert (now['phase'], now['done'], now['evaluation']) == ('eval', 5, 2.5)
  assert now['rates'] == {'train': 0.2, 'eval': 2.5}
  written.finish()
  # Another process resumes.
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
  written = progress.Progress(str(tmp_path), iterations=3)
  with written.bar(0, 'train', total=10, unit='update') as bar:
    bar.update(3)
  assert json.loads((tmp_path / 'progress.json').read_text())['done'] == 3


HEAD = '{"iteration": 0, "iterations": 2, "phase": "train", "time": 1'


@pytest.mark.parametrize(
  'text',
  [
    '',
    '{"iteration"',
    '[1]',
    '{}',
    '[' * 100_000,
    HEAD + ', "rates": 3}',
    HEAD + ', "rates": {"train": "3"}}',
    HEAD + ', "done": 1e999}',
  ],
)
def test_unreadable_progress_is_none(tmp_path, text):
  (tmp_path / 'progress.json').write_text(text)
  assert progress.read(str(tmp_path)) is None
  written = progress.Progress(str(tmp_path), iterations=3)
  written.write(1, 2.0, {'iteration': 0, 'phase': 'train'})
  assert progress.read(str(tmp_path))['rates'] == {'train': 2.0}


def test_progress_without_a_rate_or_with_a_nan_score_is_read(tmp_path):
  (tmp_path / 'progress.json').write_text(
    HEAD + ', "rates": {"train": 0, "eval": NaN}, "evaluation": NaN}'
  )
  found = progress.read(str(tmp_path))
  assert found is not None and found['rates'] == {}


def test_a_run_survives_unwritable_progress(tmp_path):
  written = progress.Progress(str(tmp_path / 'file/below'), iterations=3)
  (tmp_path / 'file').write_text('')
  written.finish()
