import hashlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_datasets.rl_unplugged import atari_utils

from batch_rl.dataset.imports import episode_import, examples, tfrecords
from batch_rl.dataset.unplugged import file_names, reader
from batch_rl.tests.dataset.unplugged import unplugged_files


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Files 0, 1 and 3 of run 2, whose checkpoints are numbered from 1."""
  folder = tmp_path_factory.mktemp('unplugged') / file_names.FOLDER / 'Pong'
  unplugged_files.write_run(folder, 2, (0, 1, 3), first_checkpoint=1)
  return folder


def open_reader(path, game=None):
  return reader.UnpluggedReader(str(path), game)


def test_episodes(folder):
  made = open_reader(folder)
  for part in made.parts:
    episodes = made.read(part)
    found = [next(episodes)]
    assert made.files_of(part) == {}
    found += episodes
    content = (folder / part.name).read_bytes()
    file = made.files_of(part)[part.name]
    assert file['sha256'] == hashlib.sha256(content).hexdigest()
    assert file['bytes'] == part.size
    seed = 200 + part.number
    expected = unplugged_files.random_episodes(30, 20, 25, seed=seed)
    assert len(found) == len(expected)
    for episode, want in zip(found, expected, strict=True):
      np.testing.assert_array_equal(list(episode.frames), want.observation)
      np.testing.assert_array_equal(episode.action, want.action)
      np.testing.assert_array_equal(episode.reward, np.clip(want.reward, -1, 1))
      assert episode.action.dtype == np.int32
      assert episode.reward.dtype == episode.unclipped.dtype == np.float32
      assert episode.begins_at_reset and episode.terminal
      assert episode.episode_return == episode.reward.sum()
    positions = [episode.position for episode in found]
    assert positions == sorted(positions) and positions[-1] == part.size


@pytest.mark.usefixtures('eager')
def test_the_files_are_those_that_tfds_reads(monkeypatch):
  # TFDS compares by value. Dopamine disables that in other tests.
  monkeypatch.setattr(tf.Tensor, '_USE_EQUALITY', True)
  (episode,) = unplugged_files.random_episodes(10)
  record = unplugged_files.serialize(unplugged_files.features(episode, 4, 7))
  by_tfds = atari_utils.atari_example_to_rlds(record)
  ours = examples.parse(record)
  steps = by_tfds['steps']
  frames = [*map(bytes, ours['observations'])]
  assert steps['observation'].numpy().tolist() == frames
  np.testing.assert_array_equal(steps['action'], ours['actions'])
  np.testing.assert_array_equal(steps['reward'], ours['unclipped_rewards'])
  assert int(by_tfds['checkpoint_id']) == 4 and bool(steps['is_terminal'][-1])


def floats(*values):
  return [float(value) for value in values]


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'observations': None}, 'has no observations, but .*checkpoint_idx'),
    ({'actions': []}, 'has no actions'),
    ({'actions': floats(*range(10))}, 'actions of type float32, not int64'),
    ({'observations': [1] * 10}, 'observations of type int64, not bytes'),
    ({'actions': [0] * 9}, "differ in length: .*'actions': 9"),
    ({'actions': [*range(9), 18]}, 'actions from 0 to 18'),
    ({'actions': [-1] * 10}, 'actions from -1 to -1'),
    ({'actions': [*range(9), 1 << 32]}, 'actions from 0 to 4294967296'),
    ({'unclipped_rewards': floats(*[0] * 9, 'nan')}, 'rewards that are'),
    ({'episode_return': floats('nan')}, 'or a finite return'),
    ({'discounts': floats(*[1] * 9, 2)}, 'discounts outside'),
    ({'discounts': floats(1, *['nan'] * 9)}, 'discounts outside'),
    ({'discounts': floats(1, 1, 0, *[1] * 7)}, 'has steps after one of 0'),
    ({'clipped_rewards': floats(*[9] * 10)}, 'clipped_rewards that are'),
  ],
)
def test_malformed_episodes(tmp_path, changes, message):
  (episode,) = unplugged_files.random_episodes(10)
  values = {**unplugged_files.features(episode), **changes}
  values = {name: value for name, value in values.items() if value is not None}
  path = tmp_path / 'Pong' / file_names.format(1, 0, 50)
  unplugged_files.write_records(path, [unplugged_files.serialize(values)])
  made = open_reader(path)
  with pytest.raises(ValueError, match=message) as raised:
    list(made.read(made.parts[0]))
  assert 'episode 0 of ' in str(raised.value) and '\n' not in str(raised.value)


def test_episodes_that_are_repeated(folder, tmp_path):
  name = file_names.format(2, 0, 50)
  path = tmp_path / name
  path.write_bytes(2 * (folder / name).read_bytes())
  made = open_reader(path, game='Pong')
  with pytest.raises(ValueError, match='episode 3 of .* repeats episode_idx 0'):
    list(made.read(made.parts[0], frames=False))


def test_names_of_games(folder, tmp_path):
  copy = tmp_path / 'somewhere'
  shutil.copytree(folder, copy)
  assert open_reader(copy).game is None
  assert open_reader(copy, game='pong').game == 'Pong'
  for at, game in (folder, 'Breakout'), (folder, 'Tetris'), (copy, 'Carnival'):
    with pytest.raises(ValueError, match=game):
      episode_import.game_of(open_reader(at, game=game), game)


@pytest.mark.parametrize(
  'names, message',
  [
    (['run_1-00000-of-00050', 'run_2-00001-of-00050'], 'choose one with --run'),
    (['run_1-00000-of-00050', 'run_1-00001-of-00049'], 'is one of 49 files'),
    (['run_1-00000-of-00049'], 'one of 49 files, but a run of Pong has 50'),
    (['run_1-00007-of-00100'], 'in random order, .*atari_episodes_ordered'),
    ([], r'has no file run_.*\(found: nothing\)'),
    (['pong.tfrecord'], r'has no file run_.*\(found: pong.tfrecord\)'),
  ],
)
def test_folders_and_files_that_are_not_of_one_run(tmp_path, names, message):
  folder = tmp_path / 'Pong'
  folder.mkdir()
  for name in names:
    (folder / name).write_bytes(b'')
  with pytest.raises(ValueError, match=message):
    open_reader(folder)
  if names and len(names) == 1:
    with pytest.raises(ValueError, match=message):
      open_reader(folder / names[0])


@pytest.mark.parametrize('path', ['nothing', 'gs://rl_unplugged/Pong'])
def test_paths_that_cannot_be_read(path):
  with pytest.raises(ValueError, match=path):
    open_reader(path)
  with pytest.raises(ValueError, match=path):
    next(tfrecords.read(path))
