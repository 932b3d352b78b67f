"""Runs in a remote directory: TensorFlow's `ram://` stands for `gs://`."""

import functools
import logging
import os

import pytest
import tensorflow as tf

from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.report import __main__ as report
from batch_rl.report import run_results
from batch_rl.runs import checkpoints, evaluations, run_record
from batch_rl.tests import cartpole, results
from batch_rl.tests.fixed_replay import evaluate_test
from batch_rl.tests.runs import checkpoints_test, resume_test
from batch_rl.utils import programs

Position = checkpoints.Position


@pytest.fixture
def remote(tmp_path, monkeypatch):
  """A remote directory. The test must not write into the current, local one."""
  monkeypatch.chdir(tmp_path)
  yield f'ram://{tmp_path.name}/Pong/1'
  assert not [name for name in os.listdir(tmp_path) if name.startswith('ram')]


def test_a_run_is_resumed_evaluated_and_reported(remote, tmp_path, caplog):
  start, whole = resume_test.offline_run(tmp_path / 'log'), tmp_path / 'run'
  assert start(whole)
  # A crash while it trains, a stop while it evaluates.
  resume_test.run_in_parts(functools.partial(start, remote), [-4, 40])
  copied = resume_test.copy(remote, tmp_path / 'copied')
  assert results.of_run(copied) == results.of_run(whole)
  events = 'events.out.tfevents'
  assert any(name.startswith(events) for name in tf.io.gfile.listdir(remote))
  with caplog.at_level(logging.INFO, logger='absl'), cartpole.small_layers():
    evaluate_test.evaluate_here(
      base_dir=remote, checkpoints='best', evaluation_steps=20
    )
  assert f'episodes: {remote}/evaluations/evaluate-' in caplog.text
  assert run_results.find_runs([remote[: -len('/1')]]) == ([remote], [])
  local = run_results.read_run(str(whole), game='Pong')
  read = run_results.read_run(remote, game='Pong')
  assert read.is_finished
  assert read.returns.tolist() == local.returns.tolist()


def test_what_is_damaged_not_unavailable_is_put_aside(remote, monkeypatch):
  kept = checkpoints.Checkpoints(remote)
  for iteration in (1, 2):
    checkpoints_test.save(kept, Position(iteration))

  def fail(*_):
    raise tf.errors.UnavailableError(None, None, 'try again')

  with monkeypatch.context() as patch:
    patch.setattr(tf.io.gfile, 'GFile', fail)
    with pytest.raises(OSError, match='try again'):
      kept.newest()
    patch.setattr(tf.io.gfile, 'stat', fail)
    with pytest.raises(programs.MistakeError, match='try again'):
      checkpoints.find(remote)
    kept._clean()  # The next checkpoint cleans up.
  assert kept.newest()[0].position == Position(2)
  path = f'{remote}/checkpoints/ckpt-1/state.pickle'
  with tf.io.gfile.GFile(path, 'w') as file:
    file.write('damaged')
  tf.io.gfile.makedirs(f'{remote}/checkpoints/ckpt-2')  # unfinished
  checkpoint, _ = checkpoints.Checkpoints(remote).newest()
  assert checkpoint.position == Position(1)
  assert [c.position for c in checkpoints.find(remote)] == [Position(1)]
  damaged = tf.io.gfile.listdir(f'{remote}/checkpoints/ckpt-1')
  assert {'state.pickle', 'damaged-checkpoint.json'} <= {*damaged}
  assert not tf.io.gfile.exists(f'{remote}/checkpoints/ckpt-2')
  # Evaluations of iterations to come are put aside, too.
  for iteration in (0, 1):
    evaluations.write(remote, iteration, [], 1)
  evaluations.put_aside(remote, 1)
  assert list(evaluations.read(remote)) == [0]
  assert tf.io.gfile.exists(f'{remote}/evaluations/1.json.before')


def test_stores_and_reports_are_local_and_file_systems_known(
  tmp_path, monkeypatch, capsys
):
  """They are refused before anything is written, or read."""
  monkeypatch.chdir(tmp_path)
  cartpole.write_log(tmp_path / 'log')
  with pytest.raises(ValueError, match='ram://a/.* is remote'):
    fixed_replay_buffer.FixedReplayBuffer(
      str(tmp_path / 'log'), 0, (4, 1), 1, 100, 8, cache_dir='ram://a'
    )
  assert report.main(['missing', '--out=ram://a']) == 2
  assert 'ram://a is remote' in capsys.readouterr().err
  for use in (run_record.start, lambda path: run_record.write(path, {})):
    with pytest.raises((ValueError, OSError), match='nowhere://a/'):
      use('nowhere://a')
  assert os.listdir(tmp_path) == ['log']
