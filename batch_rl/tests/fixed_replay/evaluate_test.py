"""Evaluation of checkpoints from the command line, without the data."""

import json
import pickle
import shutil
import types

import cv2
import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import evaluate, train, vector_evaluation
from batch_rl.tests import programs


@gin.configurable
class DeeperNetwork(programs.TinyNetwork):
  """A network with another layer."""

  def __init__(self, num_actions, name=None):
    super().__init__(num_actions, name)
    self.first = tf.keras.layers.Dense(2)

  def call(self, state):
    return super().call(self.first(tf.cast(state, tf.float32)))


@pytest.fixture(scope='module')
def base_dir(tmp_path_factory):
  """A run of two iterations, whose data has been removed."""
  directory = tmp_path_factory.mktemp('run')
  data = tmp_path_factory.mktemp('data') / 'Pong' / '1'
  frames = np.random.default_rng(0).integers(1, 256, (40, 84, 84))
  with replay_log.ReplayLog(
    str(data / 'replay_logs'), (84, 84), np.uint8, shard_capacity=50
  ) as log:
    for step, frame in enumerate(frames):
      log.add(frame, step % 6, 0.0, step % 20 == 19)
  programs.run_here(
    train,
    base_dir=str(directory),
    replay_dir=str(data),
    gin_files=['batch_rl/fixed_replay/configs/dqn.gin'],
    gin_bindings=[
      'FixedReplayRunner.num_iterations=2',
      'FixedReplayRunner.training_steps=8',
      'FixedReplayRunner.evaluation_steps=40',
      'FixedReplayRunner.max_steps_per_episode=40',
      'FixedReplayRunner.evaluation_environments=2',
      programs.IMPORT_TINY_NETWORK,
      'FixedReplayDQNAgent.network=@TinyNetwork',
    ],
    seed=1,
  )
  shutil.rmtree(data)
  return directory


def evaluate_here(monkeypatch, **given):
  """Runs `evaluate` in this process; `train` has flags of the same names."""
  options = {
    'checkpoints': 'last',
    'evaluation_steps': None,
    'environments': None,
    'seed': 0,
    'video': None,
    'gin_bindings': [],
    'module_dirs': [],
    **given,
  }
  gin.clear_config()
  tf.compat.v1.reset_default_graph()
  monkeypatch.setattr(evaluate, 'FLAGS', types.SimpleNamespace(**options))
  evaluate.main()


def test_a_finished_run_is_evaluated_and_shown(base_dir, tmp_path, monkeypatch):
  video = tmp_path / 'episode.mp4'
  line = programs.command(
    'fixed_replay.evaluate',
    base_dir=base_dir,
    checkpoints='all',
    evaluation_steps=100,
    seed=3,
    video=video,
  )
  done = programs.run(line)
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

  # Evaluated alone, a checkpoint gives the same episodes.
  path.unlink()
  evaluate_here(
    monkeypatch,
    base_dir=str(base_dir),
    checkpoints='1',
    evaluation_steps=100,
    seed=3,
  )
  assert json.loads(path.read_text()) == contents[1]


def test_bindings_replace_the_runs_settings(base_dir, monkeypatch):
  path = base_dir / 'evaluations' / 'evaluate-1.json'
  for bindings, options, expected in (
    (['FixedReplayRunner.evaluation_environments=1'], {}, (1, [40])),
    ([], {'environments': 3}, (3, [40] * 3)),
    (
      ['FixedReplayRunner.max_steps_per_episode=25'],
      {'environments': 1},
      (1, [25, 25]),
    ),
  ):
    evaluate_here(
      monkeypatch, base_dir=str(base_dir), gin_bindings=bindings, **options
    )
    content = json.loads(path.read_text())
    lengths = [episode['length'] for episode in content['episodes']]
    assert (content['environments'], lengths) == expected


def test_mistakes_are_one_line(base_dir, tmp_path, monkeypatch, capsys):
  damaged = tmp_path / 'damaged'
  damaged.mkdir()
  (damaged / 'run.json').write_text('{"agent": "dqn", "replay_dir": "/d"}')
  for options, message in (
    ({'base_dir': str(tmp_path)}, 'has no run.json'),
    ({'base_dir': str(damaged)}, 'run.json is damaged: it has no gin_config'),
    ({'base_dir': str(base_dir), 'checkpoints': '7'}, 'only of 0, 1'),
    ({'base_dir': str(base_dir), 'video': 'a.avi'}, '.gif or .mp4'),
    ({'base_dir': str(base_dir), 'video': ''}, 'An empty name does not end'),
  ):
    with pytest.raises(SystemExit) as exit_:
      evaluate_here(monkeypatch, **options)
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count('\n') == 1 and 'error: ' in printed
  done = programs.run(programs.command('fixed_replay.evaluate'))
  assert done.returncode == 2 and 'missing --base_dir' in done.stderr
  assert done.stderr.count('\n') == 1 and 'error: ' in done.stderr


def refusal(monkeypatch, capsys, base_dir, **options):
  """Returns the line by which an evaluation is refused."""
  with pytest.raises(SystemExit) as exit_:
    evaluate_here(monkeypatch, base_dir=str(base_dir), **options)
  assert exit_.value.code == 2
  printed = capsys.readouterr().err
  assert printed.count('\n') == 1 and 'error: ' in printed
  return printed


@pytest.fixture
def copied(base_dir, tmp_path):
  """A copy of the run, without evaluations by the program."""
  copy = shutil.copytree(base_dir, tmp_path / 'copy')
  for path in (copy / 'evaluations').glob('evaluate-*'):
    path.unlink()
  return copy


def flip_a_byte(folder):
  path = folder / 'tf_ckpt-1.data-00000-of-00001'
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def take_the_weights_of_another_iteration(folder):
  for path in (folder.parent / 'ckpt-0').glob('tf_ckpt-0.*'):
    shutil.copy(path, folder / path.name.replace('-0.', '-1.', 1))


def be_another_iteration(folder):
  shutil.rmtree(folder)
  shutil.copytree(folder.parent / 'ckpt-0', folder)


@pytest.mark.parametrize(
  ('damage', 'problem'),
  [
    (flip_a_byte, 'tf_ckpt-1.data-00000-of-00001 is damaged'),
    (take_the_weights_of_another_iteration, 'is damaged'),
    (be_another_iteration, 'checkpoint.json is of the end of iteration 0'),
    (lambda folder: (folder / 'tf_ckpt-1.index').unlink(), 'No such file'),
    (lambda folder: (folder / 'state.pickle').unlink(), 'No such file'),
    (
      lambda folder: (folder / 'checkpoint.json').write_text('{}'),
      'checkpoint.json',
    ),
  ],
)
@pytest.mark.parametrize('chosen', ['last', 'all', '1,0'])
def test_a_damaged_checkpoint_is_refused_before_any_evaluation(
  copied, monkeypatch, capsys, damage, problem, chosen
):
  damage(copied / 'checkpoints' / 'ckpt-1')
  printed = refusal(monkeypatch, capsys, copied, checkpoints=chosen)
  assert 'Checkpoint ckpt-1 in' in printed and problem in printed
  assert printed.endswith('evaluate others: --checkpoints=0.\n')
  assert not list((copied / 'evaluations').glob('evaluate-*'))


def test_intact_checkpoints_beside_a_damaged_one(copied, monkeypatch, capsys):
  flip_a_byte(copied / 'checkpoints' / 'ckpt-1')
  evaluate_here(
    monkeypatch, base_dir=str(copied), checkpoints='0', evaluation_steps=1
  )
  assert (copied / 'evaluations' / 'evaluate-0.json').exists()
  (copied / 'checkpoints/ckpt-0/state.pickle').write_bytes(b'')
  printed = refusal(monkeypatch, capsys, copied, checkpoints='all')
  assert printed.endswith('no checkpoint is intact.\n')


def test_checkpoints_of_dopamine_need_no_description(
  copied, monkeypatch, capsys
):
  folder = copied / 'checkpoints'
  for path in (folder / 'ckpt-1').glob('tf_ckpt-1.*'):
    shutil.copy(path, folder)
  shutil.rmtree(folder / 'ckpt-1')
  bundle = folder / 'ckpt.1'
  bundle.write_bytes(pickle.dumps({'logs': {}, 'current_iteration': 1}))
  (folder / 'sentinel_checkpoint_complete.1').touch()
  evaluate_here(monkeypatch, base_dir=str(copied), evaluation_steps=1)
  assert (copied / 'evaluations' / 'evaluate-1.json').exists()
  bundle.write_bytes(bundle.read_bytes()[:-9])
  assert 'ckpt.1' in refusal(monkeypatch, capsys, copied)


@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    (
      ['atari_lib.create_atari_environment.game_name="Breakout"'],
      'a run with game = Pong, but the environment of the evaluation has game = '
      'Breakout',
    ),
    (
      ['FixedReplayDQNAgent.stack_size=2'],
      'stack_size is 4 in the run and 2 in --gin_bindings',
    ),
    (
      ['stack=2', 'FixedReplayDQNAgent.stack_size=%stack'],
      'stack_size is 4 in the run and 2 in --gin_bindings',
    ),
    (
      ['AnyAgent.stack_size=2'],
      'stack_size is 4 in the run and 2 in --gin_bindings',
    ),
    (
      ['FixedReplayDQNAgent.observation_shape=(42, 42)'],
      'observation_shape is (84, 84) in the run and (42, 42)',
    ),
    (
      ['FixedReplayDQNAgent.network=@DeeperNetwork'],
      'does not fit the agent: the agent has a variable Online/',
    ),
    (['FixedReplayDQNAgent.epsilon_eval=2'], 'epsilon_eval=2 is not allowed'),
    (['FixedReplayDQNAgent.tf_device=cpu'], "tf_device='cpu'"),
    (['FixedReplayRunner.evaluation_step=1'], 'evaluation_step'),
  ],
)
def test_what_does_not_fit_the_run_is_refused(
  copied, monkeypatch, capsys, bindings, message
):
  printed = refusal(monkeypatch, capsys, copied, gin_bindings=bindings)
  assert message in printed
  assert not list((copied / 'evaluations').glob('evaluate-*'))


def test_another_rom_is_refused(copied, monkeypatch, capsys):
  path = copied / 'run.json'
  record = json.loads(path.read_text())
  digest = record['environment']['rom_md5']
  path.write_text(path.read_text().replace(digest, 'f' * 32))
  printed = refusal(monkeypatch, capsys, copied)
  assert f'rom_md5 = {"f" * 32}, but the env' in printed
  assert f'rom_md5 = {digest}: bind make_atari.rom_set' in printed


def test_what_only_changes_the_evaluation_is_allowed(copied, monkeypatch):
  evaluate_here(
    monkeypatch,
    base_dir=str(copied),
    gin_bindings=[
      'AnyAgent.epsilon_eval=0.5',
      'FixedReplayRunner.max_steps_per_episode=7',
      'FixedReplayRunner.evaluation_steps=14',
      'atari_lib.create_atari_environment.sticky_actions=False',
    ],
  )
  path = copied / 'evaluations' / 'evaluate-1.json'
  lengths = [e['length'] for e in json.loads(path.read_text())['episodes']]
  assert lengths == [7, 7]


@pytest.mark.parametrize(
  ('recorded', 'bindings', 'used'),
  [
    ('false', [], False),
    ('true', [], True),
    ('true', ['FixedReplayRunner.tensor_float_32=False'], False),
    (None, [], False),  # an older version
  ],
)
def test_the_precision_is_that_of_the_run(
  recorded, bindings, used, copied, monkeypatch, capsys
):
  path = copied / 'run.json'
  record = json.loads(path.read_text())
  assert record.pop('tensor_float_32') is False
  if recorded:
    record['tensor_float_32'] = json.loads(recorded)
  path.write_text(json.dumps(record))
  tf.config.experimental.enable_tensor_float_32_execution(not used)

  class Evaluator:
    def __init__(self, *_):
      enabled.append(tf.config.experimental.tensor_float_32_execution_enabled())
      raise ValueError('seen before any agent is built')

  enabled = []
  monkeypatch.setattr(vector_evaluation, 'Evaluator', Evaluator)
  refusal(monkeypatch, capsys, copied, gin_bindings=bindings)
  assert enabled == [used]


@pytest.fixture
def checkpoints(tmp_path):
  """Files of a run: the last four checkpoints of ten, and all evaluations."""
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
  content = {'iteration': number, 'mean_return': mean, 'episodes': []}
  path = base_dir / 'evaluations' / f'{name or number}.json'
  path.write_text(json.dumps(content))


def test_checkpoints_are_chosen(checkpoints):
  def chosen(text):
    return list(evaluate.choose_checkpoints(str(checkpoints), text))

  assert chosen('last') == [9]
  assert chosen('all') == [6, 7, 8, 9]
  assert chosen('9,7') == [9, 7]
  with pytest.raises(ValueError, match=r'iteration 3, only of 6, 7, 8, 9'):
    chosen('best')
  write(checkpoints, 3, 0)
  assert chosen('best') == [8]  # the last of equals
  write(checkpoints, 9, float('nan'))
  assert chosen('best') == [8]
  with pytest.raises(ValueError, match='checkpoints=first is neither'):
    chosen('first')


def test_a_folder_without_checkpoints_is_refused(tmp_path):
  with pytest.raises(ValueError, match='has no checkpoints'):
    evaluate.choose_checkpoints(str(tmp_path), 'last')
