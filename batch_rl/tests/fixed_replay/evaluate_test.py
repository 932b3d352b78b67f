"""Evaluation of checkpoints from the command line, without the data."""

import json
import re
import shutil
import types

import cv2
import gin
import pytest
import tensorflow as tf

from batch_rl.fixed_replay import evaluate, recorded_run
from batch_rl.runs import environments
from batch_rl.tests import programs, shards
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.runs import command_line_test


@pytest.fixture(scope='module')
def base_dir(tmp_path_factory):
  """A run of two iterations, whose data has been removed."""
  directory = tmp_path_factory.mktemp('run')
  data = tmp_path_factory.mktemp('data')
  shards.write_images(data / 'Pong/1/replay_logs')
  bindings = programs.of_runner(num_iterations=2, evaluation_environments=2)
  bindings += programs.of_runner(evaluation_steps=40, max_steps_per_episode=40)
  command_line_test.offline_main(directory, data, bindings)
  shutil.rmtree(data)
  return directory


def evaluate_here(**given):
  """Runs `evaluate` in this process; `train` has flags of the same names."""
  options = dict(checkpoints='last', evaluation_steps=None, environments=None)
  options |= dict(seed=0, video=None, gin_bindings=[], module_dirs=[]) | given
  gin.clear_config()
  tf.compat.v1.reset_default_graph()
  evaluate.main(types.SimpleNamespace(**options))


NONE = 'FixedReplayRunner.evaluation_steps = 0'
# Defines flags of the same names.
PROGRAM = """
from batch_rl.fixed_replay import train
def create_offline_agent(*args, init_checkpoint_dir, **kwargs):
  return train.create_agent(*args, **kwargs)
if __name__ == '__main__': train.main()
"""


def test_a_finished_run_is_evaluated_and_shown(base_dir, tmp_path):
  video = tmp_path / 'episode.mp4'
  (tmp_path / 'mine.py').write_text(PROGRAM)
  base_dir = shutil.copytree(base_dir, tmp_path / 'run')
  run, ours = base_dir / 'run.json', 'batch_rl.fixed_replay.run_experiment:'
  record = run.read_text()
  run.write_text(record.replace(ours, f'{tmp_path}/mine.py:', 1))
  given = dict(base_dir=str(base_dir), evaluation_steps=100, seed=3)
  program = 'fixed_replay.evaluate'
  line = programs.command(program, checkpoints='all', video=video, **given)
  done = programs.run(line)
  assert done.returncode == 0, done.stderr
  assert 'Iteration 1: mean return' in done.stderr
  assert 'video of the best of 4 episodes, 40 agent steps' in done.stderr
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
  # Evaluated alone, a checkpoint gives the same episodes. gin is of another runner, too.
  key = '"gin_config": "'
  other = 'import batch_rl.baselines.run_experiment\\n'
  other += 'LoggedRunner.create_environment_fn = @create_atari_environment\\n'
  # It is of its own runner, too, which was given another function.
  name = 'FixedReplayRunner.create_environment_fn'
  other += f'{name} = @missing\\n'
  content = json.loads(record.replace(key, key + other))
  run.write_text(json.dumps(content | {'unused_bindings': [name]}))
  evaluate_here(checkpoints='1', **given)
  for same in path, path.with_name('evaluate-1.json.before'):
    assert json.loads(same.read_text()) == contents[1]


def test_bindings_replace_the_runs_settings(base_dir, caplog):
  path = base_dir / 'evaluations' / 'evaluate-1.json'
  environments = 'FixedReplayRunner.evaluation_environments=1'
  short = [
    *(environments, 'AnyAgent.epsilon_eval=0.5'),
    *programs.of_runner(max_steps_per_episode=7, evaluation_steps=14),
    'atari_lib.create_atari_environment.sticky_actions=False',
  ]
  for bindings, number, expected in (
    ([environments, ''], None, (1, [40])),
    ([], 3, (3, [40] * 3)),
    (short, None, (1, [7, 7])),
  ):
    given = dict(gin_bindings=bindings, environments=number)
    evaluate_here(base_dir=str(base_dir), **given)
    content = json.loads(path.read_text())
    lengths = [episode['length'] for episode in content['episodes']]
    assert (content['environments'], lengths) == expected
  assert 'no effect' not in caplog.text
  unused = 'WrappedFixedReplayBuffer.batch_size'
  evaluate_here(base_dir=str(base_dir), gin_bindings=[f'{unused}=7'])
  assert f'{unused} has no effect' in caplog.text


@pytest.fixture
def refused(refusal):
  """Returns the line by which an evaluation is refused, before any episode."""

  def call(base_dir, **options):
    options['base_dir'] = str(base_dir)
    printed = refusal(evaluate_here, **options)
    assert not list((base_dir / 'evaluations').glob('evaluate-*'))
    return printed

  return call


def test_mistakes_are_one_line(copied, tmp_path, refused):
  damaged = tmp_path / 'damaged'
  damaged.mkdir()
  (damaged / 'run.json').write_text('{"agent": "dqn", "replay_dir": "/d"}')
  for base_dir, options, message in (
    (tmp_path, {}, 'has no run.json'),
    (damaged, {}, 'run.json is damaged: it has no gin_config'),
    (copied, {'checkpoints': '7'}, 'only of 0, 1'),
    (copied, {'checkpoints': 'first'}, '--checkpoints=first'),
    (copied, {'video': 'a.avi'}, '.gif or .mp4'),
    (copied, {'video': ''}, 'An empty name does not end'),
    (copied, {'gin_bindings': [NONE]}, 'give --evaluation_steps'),
  ):
    assert message in refused(base_dir, **options)


@pytest.fixture
def copied(base_dir, tmp_path):
  """A copy of the run, without evaluations by the program."""
  copy = shutil.copytree(base_dir, tmp_path / 'copy')
  for path in (copy / 'evaluations').glob('evaluate-*'):
    path.unlink()
  return copy


def flip_a_byte(folder):
  run_files.flip_a_bit(folder / 'tf_ckpt-1.data-00000-of-00001')


def be_another_iteration(folder):
  shutil.rmtree(folder)
  shutil.copytree(folder.parent / 'ckpt-0', folder)


@pytest.mark.parametrize(
  ('damage', 'chosen', 'problem'),
  [
    (flip_a_byte, 'last', 'tf_ckpt-1.data-00000-of-00001 is damaged'),
    (be_another_iteration, '1,0', 'is of the end of iteration 0'),
    (lambda folder: (folder / 'tf_ckpt-1.index').unlink(), 'all', 'No such'),
  ],
)
def test_a_damaged_checkpoint_is_refused_before_any_evaluation(
  copied, refused, damage, chosen, problem
):
  damage(copied / 'checkpoints' / 'ckpt-1')
  printed = refused(copied, checkpoints=chosen)
  assert 'Checkpoint ckpt-1 in' in printed and problem in printed
  assert printed.endswith('intact checkpoints: 0.\n')


def test_what_does_not_fit_the_run_is_refused(copied, refused):
  game = 'atari_lib.create_atari_environment.game_name="Breakout"'
  stack = ['stack=2', 'FixedReplayDQNAgent.stack_size=%stack']
  for bindings, message in (
    ([game], 'change it: - game = Pong.*game = Breakout'),
    (stack, r'shape \[242, 6\], the checkpoint has \[484, 6\]'),
    (['AnyAgent.observation_shape=(42, 42)'], r'\(84, 84.*\(42, 42\)'),
    (['FixedReplayDQNAgent.epsilon_eval=2'], 'epsilon_eval=2'),
    (['FixedReplayRunner.evaluation_step=1'], 'evaluation_step'),
  ):
    assert re.search(message, refused(copied, gin_bindings=bindings))
  assert 'is not a directory' in refused(copied, module_dirs=['nowhere'])


def test_another_rom_is_refused(copied, refused):
  path = copied / 'run.json'
  digest = json.loads(path.read_text())['environment']['rom_md5']
  path.write_text(path.read_text().replace(digest, 'f' * 32))
  message = f'make_atari.rom_set.*rom_md5 = f{{32}}.*rom_md5 = {digest}'
  assert re.search(message, refused(copied))


def test_the_precision_is_that_of_the_run(copied, monkeypatch, refused):
  config = tf.config.experimental

  def see(_):
    state = 'on' if config.tensor_float_32_execution_enabled() else 'off'
    raise ValueError(f'it is {state} before any agent is built')

  monkeypatch.setattr(environments, 'check', see)
  path = copied / 'run.json'
  record = json.loads(path.read_text())
  assert record.pop('tensor_float_32') is False
  off = ['FixedReplayRunner.tensor_float_32=False']
  for recorded, bindings, used in (
    ({'tensor_float_32': True}, [], True),
    ({'tensor_float_32': True}, off, False),
    ({}, [], False),
  ):
    path.write_text(json.dumps(record | recorded))
    config.enable_tensor_float_32_execution(not used)
    printed = refused(copied, gin_bindings=bindings)
    assert ('it is on' if used else 'it is off') in printed


def test_the_best_checkpoint_has_the_highest_mean_of_the_run(tmp_path):
  def write(number, mean, name=None):
    content = {'iteration': number, 'mean_return': mean, 'episodes': []}
    path = tmp_path / 'evaluations' / f'{name or number}.json'
    path.write_text(json.dumps(content))

  def choose(text):
    return recorded_run.choose_checkpoints(str(tmp_path), (6, 7, 8, 9), text)

  with pytest.raises(ValueError, match='has no checkpoints'):
    recorded_run.list_checkpoints(str(tmp_path))
  (tmp_path / 'evaluations').mkdir()
  for number, mean in enumerate([1, 2, 3, 9, 1, 2, 3, 8, 8, 1]):
    write(number, mean)
  write(6, 100, 'evaluate-6')
  assert choose('9,7') == [9, 7]
  with pytest.raises(ValueError, match=r'iteration 3, only of 6, 7, 8, 9'):
    choose('best')
  write(3, 0)
  write(9, float('nan'))
  assert choose('best') == [8]  # the last of equals
