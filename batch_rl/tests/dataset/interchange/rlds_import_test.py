"""Tests for imported TFDS datasets: RLDS episodes become shards or stores."""

import json
import os
import shutil
import struct
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import atari_utils

from batch_rl.dataset.shards import manifests
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.interchange.tfds_datasets import (
  build,
  raw_episode,
)

pytestmark = pytest.mark.usefixtures('eager')


def test_checkpoints_become_one_run_in_order(tmp_path, import_json, run):
  logged = runs.make_episodes(*runs.LENGTHS)
  source = build(
    tmp_path / 'tfds',
    {
      'checkpoint_10': [raw_episode(logged[3], True, 0, 10)],
      'checkpoint_09': [raw_episode(logged[2], True, 0, 9)],
      'checkpoint_02': [
        raw_episode(logged[0], True, 0, 2),
        raw_episode(logged[1], False, 1, 2),
      ],
    },
  )
  target = tmp_path / 'Pong' / '3'
  document = import_json(source, target, '--shards', '--shard_rows=100')
  assert document['game'] == 'Pong' and document['last_step'] == 'transition'
  assert document['order'] == 'time' and document['truncated'] == 1
  logs = target / 'replay_logs'
  runs.assert_same(
    runs.transitions(logs), runs.expected_transitions(logged, {1: 'truncated'})
  )
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  assert manifest['agent'] == 'dqn'
  assert manifest['environment']['game'] == 'Pong'
  about = manifest['source']
  assert about['name'] == 'rlu_atari_checkpoints_ordered/Pong_run_3/1.1.0'
  assert about['directory'] == str(source) and about['episodes'] == 4
  assert about['version'] == '1.1.0' and len(about['fingerprint']) == 64
  assert about['splits'] == {
    'checkpoint_02': 2,
    'checkpoint_09': 1,
    'checkpoint_10': 1,
  }
  assert manifest['checkpoints'] == [
    {'checkpoint': 2, 'first_row': 0, 'shard': 0},
    {'checkpoint': 9, 'first_row': 60 + 45 + 6, 'shard': 1},
    {'checkpoint': 10, 'first_row': 60 + 45 + 80 + 9, 'shard': 1},
  ]
  # Returns before clipping are unknown.
  assert 'unclipped_return' not in manifest['episodes']
  assert 'unclipped_returns' not in manifest['shards'][0]['episodes']
  assert manifest['episodes']['count'] == 4
  code, out, _ = run('inspect', target)
  assert code == 0 and 'Pong by dqn' in out
  assert 'note: 1 episodes were truncated' in out
  # A range of checkpoints.
  import_json(source, tmp_path / 'store', '--checkpoints=9-10')
  runs.assert_same(
    runs.transitions(tmp_path / 'store'), runs.expected_transitions(logged[2:])
  )


@pytest.mark.parametrize('style', ['transition', 'observation'])
def test_last_steps_are_inferred_from_returns(tmp_path, import_json, style):
  logged = runs.make_episodes(*runs.LENGTHS)
  # The first ends without a reward, so it does not tell.
  logged[0][2][-1] = 0
  source = build(
    tmp_path, {'train': [raw_episode(e, style=style) for e in logged]}
  )
  assert import_json(source, tmp_path / 'store')['last_step'] == style
  runs.assert_same(
    runs.transitions(tmp_path / 'store'), runs.expected_transitions(logged)
  )


def test_contradicting_last_steps_are_an_error(tmp_path, run):
  logged = runs.make_episodes(*runs.LENGTHS)
  raw = [raw_episode(logged[0]), raw_episode(logged[1])]
  raw[1]['episode_return'] -= logged[1][2][-1]
  source = build(tmp_path, {'train': raw})
  code, _, err = run('import', source, tmp_path / 'store')
  assert code == 2 and is_one_line(err)
  assert 'episode 1 of split train' in err and '--last_step' in err
  chosen = run('import', source, tmp_path / 'store', '--last_step=transition')
  assert chosen[0] == 0


@pytest.mark.parametrize('has_both', [True, False])
def test_rewards_are_clipped_and_returns_kept(tmp_path, import_json, has_both):
  """Before version 1.3.0, rlu_atari had clipped and unclipped rewards.

  Frames of such a dataset are not encoded here, which TFDS allows for any.
  """
  steps = {
    **atari_utils.features_dict()['steps'].feature,
    'clipped_reward': np.float32,
    'observation': tfds.features.Tensor(shape=(84, 84, 1), dtype=np.uint8),
  }
  features = tfds.features.FeaturesDict(
    {
      'steps': tfds.features.Dataset(steps),
      'episode_return': np.float32,
    }
  )
  logged = runs.make_episodes(*runs.LENGTHS)
  raw = [raw_episode(episode) for episode in logged]
  for episode in raw:
    clipped = episode['steps']['reward']
    episode['steps']['reward'] = clipped * 5
    episode['episode_return'] *= 5
    if has_both:
      del episode['checkpoint_id'], episode['episode_id']
      episode['steps']['clipped_reward'] = clipped
  source = build(tmp_path, {'train': raw}, features if has_both else None)
  target = tmp_path / 'Pong' / '1'
  assert import_json(source, target, '--shards')['last_step'] == 'transition'
  logs = target / 'replay_logs'
  runs.assert_same(runs.transitions(logs), runs.expected_transitions(logged))
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  for key, scale in (('unclipped_return', 5), ('return', 1)):
    returns = [scale * float(reward.sum()) for _, _, reward in logged]
    assert manifest['episodes'][key]['max'] == max(returns)
    assert manifest['episodes'][key]['min'] == min(returns)


# --- mistakes -----------------------------------------------------------------


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  """A folder with a valid dataset and several malformed ones."""
  root = tmp_path_factory.mktemp('datasets')
  (episode,) = runs.make_episodes(8)

  def add(link, example, features=None, **kwargs):
    directory = root / f'{link}.tfds'
    version = build(directory, {'train': [example]}, features, **kwargs)
    os.symlink(version, root / link)

  good = raw_episode(episode)
  add('good', good)
  add('unnamed', good, config='expert', name='other')
  two_ends = raw_episode(episode)
  two_ends['steps']['is_last'][3] = True
  add('two_ends', two_ends)
  steps = dict(atari_utils.features_dict()['steps'].feature)
  image = tfds.features.Image(shape=(96, 96, 1))
  for name, changed in (
    ('no_terminal', {k: v for k, v in steps.items() if k != 'is_terminal'}),
    ('large', {**steps, 'observation': image}),
  ):
    frame = np.zeros((96, 96, 1) if name == 'large' else (84, 84, 1), np.uint8)
    values = {**good['steps'], 'observation': [frame] * 8}
    example = {'steps': {key: values[key] for key in changed}}
    features = {'steps': tfds.features.Dataset(changed)}
    add(name, example, tfds.features.FeaturesDict(features))
  shutil.copytree(root / 'good', root / 'empty')
  path = root / 'empty' / 'dataset_info.json'
  info = json.loads(path.read_text())
  info['splits'][0] |= {'shardLengths': ['0'], 'numBytes': '0'}
  path.write_text(json.dumps(info))
  runs.write_run(root / 'Pong' / '1', [episode])
  return root


@pytest.mark.parametrize(
  'arguments, messages',
  [
    (
      ['{root}/Pong/1', '{out}', '--format=rlds'],
      ['not a TFDS directory', 'replay_'],
    ),
    (['{root}/no_terminal', '{out}'], ['no is_terminal, but']),
    (['{root}/large', '{out}'], ['(96, 96, 1)', '(84, 84, 1)']),
    (['{root}/empty', '{out}'], ['no episodes']),
    (['{root}/two_ends', '{out}'], ['episode 0', 'is_last']),
    (['{root}/good', '{root}/Pong'], ['exists already']),
    (['{root}/good', '{out}', '--game=Breakout'], ['of Pong, not']),
    (['{root}/unnamed', '{out}'], ['--game']),
    (['{root}/good', '{out}', '--checkpoints=3'], ['train']),
  ],
)
def test_a_mistake_is_one_line(dataset, tmp_path, run, arguments, messages):
  out = tmp_path / 'out'
  arguments = [a.format(root=dataset, out=out) for a in arguments]
  code, _, err = run('import', *arguments)
  assert code == 2 and is_one_line(err), err
  assert all(message in err for message in messages), err
  assert not os.listdir(tmp_path)  # nothing is left behind


def test_missing_tfds_is_named(dataset, tmp_path, run, monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  code, _, err = run('import', dataset / 'good', tmp_path / 'out')
  assert code == 2 and is_one_line(err) and 'pip install' in err


def change_copy(dataset, copy, ending, change):
  """Copies a dataset, and changes the content of one of its files."""
  shutil.copytree(dataset / 'good', copy)
  path = next(copy.glob(f'*{ending}*'), copy / ending)
  path.write_bytes(change(path.read_bytes() if path.exists() else b''))


def flip(content):
  middle = len(content) // 2
  return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


# The length of a record, 10 TB, which TensorFlow would allocate; its checksum is valid.
_HEAD = struct.pack('<QI', 10**13, 0xDC6152F1)


@pytest.mark.parametrize(
  'ending, change, message',
  [
    ('tfrecord', flip, ''),
    ('tfrecord', lambda content: _HEAD + content[12:], 'within a record'),
    ('tfrecord', lambda content: content[:-1], 'within a record'),
    (
      'metadata.json',
      lambda content: b'{"environment": {"game": "../../x"}}',
      "'../../x'",
    ),
  ],
)
def test_a_damaged_dataset_is_one_line(
  dataset, tmp_path, run, ending, change, message
):
  copy = tmp_path / 'copy'
  change_copy(dataset, copy, ending, change)
  code, _, err = run('import', copy, tmp_path / 'out')
  assert code == 2 and is_one_line(err) and str(copy) in err and message in err
  assert os.listdir(tmp_path) == ['copy']
