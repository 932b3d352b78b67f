"""`progress.json`, as other programs read it."""

import os
import time

import pytest

from batch_rl.runs import progress


@pytest.mark.parametrize('hidden', ['', '1'])
def test_progress_of_a_run(tmp_path, monkeypatch, hidden):
  clock = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: clock[0])
  monkeypatch.delattr(os, 'fsync')  # It would disturb the run.
  monkeypatch.setenv('TQDM_DISABLE', hidden)
  written = progress.Progress(str(tmp_path), iterations=3)
  assert progress.read(str(tmp_path)) is None
  with progress.Bar(written, 1, 'train', 10, unit='update', done=4) as bar:
    for number, rate in ((1, 0.1), (2, 0.2)):
      clock[0] += 10
      bar.update(number)
      assert progress.read(str(tmp_path))['rates'] == {'train': rate}
  now = progress.read(str(tmp_path))
  assert now.pop('time') > 0
  expected = dict(iteration=1, iterations=3, phase='train', total=10, done=7)
  expected |= dict(unit='update', rates={'train': 0.15}, evaluation=None)
  assert now == expected
  written.evaluation = 2.5
  with progress.Bar(written, 1, 'eval', total=5, unit='step') as bar:
    clock[0] += 2
    bar.update(5)
  # Another process resumes.
  progress.Progress(str(tmp_path), iterations=5).finish()
  now = progress.read(str(tmp_path))
  assert now['rates'] == {'train': 0.15, 'eval': 2.5}
  assert (now['iteration'], now['phase']) == (5, progress.FINISHED)
  assert now['evaluation'] == 2.5


HEAD = '{"iteration": 0, "iterations": 2, "phase": "train", "time": 1'


def test_unreadable_progress_is_none_and_a_nan_is_read(tmp_path):
  path = tmp_path / 'progress.json'
  for text in ('', '[1]', '{}', HEAD + ', "rates": 3}'):
    path.write_text(text)
    assert progress.read(str(tmp_path)) is None
  progress.Progress(str(tmp_path), iterations=3).finish()
  assert progress.read(str(tmp_path))['iterations'] == 3
  path.write_text(HEAD + ', "rates": {"train": 0}, "evaluation": NaN}')
  assert progress.read(str(tmp_path))['rates'] == {}


def test_a_run_survives_unwritable_progress(tmp_path):
  written = progress.Progress(str(tmp_path / 'file/below'), iterations=3)
  (tmp_path / 'file').write_text('')
  written.finish()
