"""Checkpoints are evaluated from the command line, without the data."""

import json
import pathlib
import shutil
import subprocess
import sys

import cv2
import pytest

from batch_rl.fixed_replay import evaluate

SAMPLE = pathlib.Path(__file__).parents[3] / 'data' / 'Pong' / '1'


def run(program, *arguments):
  return subprocess.run(
    [sys.executable, '-um', f'batch_rl.fixed_replay.{program}', *arguments],
    capture_output=True,
    text=True,
    check=False,
    timeout=300,
  )


@pytest.fixture(scope='module')
def base_dir(tmp_path_factory):
  """A run of two iterations, whose data is gone."""
  directory = tmp_path_factory.mktemp('run')
  data = tmp_path_factory.mktemp('data') / 'Pong' / '1'
  shutil.copytree(SAMPLE, data)
  bindings = [
    'FixedReplayRunner.num_iterations=2',
    'FixedReplayRunner.training_steps=8',
    'FixedReplayRunner.evaluation_steps=40',
    'FixedReplayRunner.max_steps_per_episode=40',
    'FixedReplayRunner.evaluation_environments=2',
    'FixedReplayBuffer.replay_file_end_index=1',
    'FixedReplayMultiHeadDQNAgent.num_heads=5',
  ]
  done = run(
    'train',
    f'--base_dir={directory}',
    f'--replay_dir={data}',
    '--gin_files=batch_rl/fixed_replay/configs/rem.gin',
    '--seed=1',
    *(f'--gin_bindings={binding}' for binding in bindings),
  )
  assert done.returncode == 0, done.stderr
  shutil.rmtree(data)
  return directory


def test_a_finished_run_is_evaluated_and_shown(base_dir, tmp_path):
  video = tmp_path / 'episode.mp4'
  options = ('--checkpoints=all', '--evaluation_steps=100', '--seed=3')
  done = run('evaluate', f'--base_dir={base_dir}', *options, f'--video={video}')
  assert done.returncode == 0, done.stderr
  assert 'Iteration 1: mean return' in done.stderr
  contents = []
  for number in (0, 1):
    path = base_dir / 'evaluations' / f'evaluate-{number}.json'
    contents.append(json.loads(path.read_text()))
    lengths = [episode['length'] for episode in contents[-1]['episodes']]
    assert lengths == [40] * 4  # 50 steps for each of two environments
    assert contents[-1]['environments'] == 2 and contents[-1]['seed'] == 3
  shown = cv2.VideoCapture(str(video))
  assert shown.get(cv2.CAP_PROP_FRAME_COUNT) == 40
  assert shown.get(cv2.CAP_PROP_FRAME_WIDTH) == 320

  # The same again, of one of them.
  options = ('--checkpoints=1', *options[1:])
  assert run('evaluate', f'--base_dir={base_dir}', *options).returncode == 0
  assert json.loads(path.read_text()) == contents[1]


def test_mistakes_are_one_line(base_dir, tmp_path):
  for arguments, message in (
    ([f'--base_dir={tmp_path}'], 'has no run.json'),
    ([f'--base_dir={base_dir}', '--checkpoints=7'], 'there are 0, 1'),
    ([f'--base_dir={base_dir}', '--video=a.avi'], '.gif or .mp4'),
    ([], 'missing --base_dir'),
  ):
    done = run('evaluate', *arguments)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count('\n') == 1 and 'error: ' in done.stderr


@pytest.fixture
def checkpoints(tmp_path):
  """Files as a run leaves them: the last four of ten, and all evaluations."""
  within = tmp_path / 'checkpoints' / 'ckpt-10-400'
  within.mkdir(parents=True)
  (within / 'checkpoint.json').touch()
  for number in (6, 7, 8, 9):
    folder = tmp_path / 'checkpoints' / f'ckpt-{number}'
    folder.mkdir()
    (folder / f'tf_ckpt-{number}.index').touch()
    (folder / 'checkpoint.json').touch()
  (tmp_path / 'evaluations').mkdir()
  for number, mean in enumerate([1, 2, 3, 9, 1, 2, 3, 8, 8, 1]):
    write(tmp_path, number, mean)
  write(tmp_path, 6, 100, 'evaluate-6')
  return tmp_path


def write(base_dir, number, mean, name=None):
  content = {'iteration': number, 'mean_return': mean}
  path = base_dir / 'evaluations' / f'{name or number}.json'
  path.write_text(json.dumps(content))


def test_checkpoints_are_chosen(checkpoints):
  def chosen(text):
    return list(evaluate.choose_checkpoints(str(checkpoints), text))

  assert chosen('last') == [9]
  assert chosen('all') == [6, 7, 8, 9]
  assert chosen('9,7') == [9, 7]
  with pytest.raises(ValueError, match=r'iteration 3 .* there are 6, 7, 8, 9'):
    chosen('best')
  write(checkpoints, 3, 0)
  assert chosen('best') == [8]  # of equals the last
  with pytest.raises(ValueError, match='checkpoints=first is neither'):
    chosen('first')


def test_a_folder_without_checkpoints_is_refused(tmp_path):
  with pytest.raises(ValueError, match='has no checkpoints'):
    evaluate.choose_checkpoints(str(tmp_path), 'last')
