import json
import os
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import atari_utils

from batch_rl.dataset.interchange import rlds_export, rlds_import
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import store_directory
from batch_rl.tests import interchange_runs as runs

pytestmark = pytest.mark.usefixtures('eager')


def raw_episode(episode, terminated=True, number=0, checkpoint=0):
  """Returns an episode as TFDS takes it: as RL Unplugged, one step for each row."""
  observation, action, reward = episode
  n = len(action)
  last = np.arange(n) == n - 1
  discount = np.ones(n, np.float32)
  if terminated:
    discount[-2:] = 0
  steps = dict(observation=list(observation[..., None]), discount=discount)
  steps |= dict(action=action.astype(np.int64), is_first=np.arange(n) == 0)
  steps |= dict(reward=reward.astype(np.float32), is_last=last)
  steps['is_terminal'] = last & terminated
  made = dict(steps=steps, checkpoint_id=checkpoint, episode_id=number)
  return made | {'episode_return': float(reward.sum())}


NAME = 'rlu_atari_checkpoints_ordered'


def build(directory, splits, features=None, name=NAME, config='Pong_run_3'):
  """Writes splits, `{name: [episode, ...]}`; returns the version's directory."""
  features = features or atari_utils.features_dict()
  numbered = {split: list(enumerate(made)) for split, made in splits.items()}
  options = dict(config=config, data_dir=str(directory), disable_shuffling=True)
  store = tfds.dataset_builders.store_as_tfds_dataset
  return store(name, '1.1.0', features, numbered, **options).data_dir


def test_an_export_of_an_unknown_game_asks_for_it(tmp_path, run):
  source, made = tmp_path / 'downloads/7', tmp_path / 'rlds'
  logs = runs.write_run(source, runs.make_episodes(20, 30))
  (logs / manifests.FILE_NAME).unlink()
  run.output('export', source, made, '--format=rlds')
  assert 'add --game' in run.error('import', made, tmp_path / 'store')
  assert run('import', made, tmp_path / 'store', '--game=pong')[0] == 0
  manifest = manifests.read(str(tmp_path / 'store'))
  assert manifest['environment']['game'] == 'Pong'
  assert manifest['source']['run'] == '7' and manifests.atari_if_known(manifest)
  # Earlier versions kept the name as it was given.
  manifest['environment']['game'] = 'pong'
  path = tmp_path / 'store' / manifests.FILE_NAME
  path.write_text(json.dumps(manifest))
  assert run('import', made, tmp_path / 'store', '--game=pong')[0] == 0


def test_checkpoints_become_one_run_in_order(tmp_path, run):
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
  target = tmp_path / 'store'
  assert run('import', source, target, '--checkpoints=9-11')[0] == 2  # no 11
  # A range of checkpoints; the others may come later.
  run.document('import', source, target, '--checkpoints=9-10')
  expected = runs.expected_transitions(logged[2:])
  runs.assert_same(runs.transitions(target), expected)
  document = run.document('import', source, target)
  assert document['game'] == 'Pong' and document['last_step'] == 'transition'
  assert document['order'] == 'time' and document['truncated'] == 1
  expected = runs.expected_transitions(logged, {1: 'truncated'})
  runs.assert_same(runs.transitions(target), expected)
  manifest = json.loads((target / manifests.FILE_NAME).read_text())
  assert manifest['agent'] == 'dqn'
  assert manifest['environment']['game'] == 'Pong'
  about = manifest['source']
  assert about['name'] == f'{NAME}/Pong_run_3/1.1.0'
  assert about['directory'] == str(source) and about['run'] == '3'
  assert [[*entry['files']] for entry in manifest['shards']] == [
    [f'{NAME}-checkpoint_{checkpoint}.tfrecord-00000-of-00001']
    for checkpoint in ('02', '09', '10')
  ]
  # Returns before clipping are unknown.
  assert 'unclipped_return' not in manifest['episodes']
  assert 'unclipped_returns' not in manifest['shards'][0]['episodes']
  assert manifest['episodes']['count'] == 4
  out = run.output('inspect', target)
  assert 'Pong by dqn' in out
  assert 'note: 1 episodes were truncated' in out


def test_each_file_of_a_split_becomes_a_shard(tmp_path, run):
  """TFDS decides by size; here every file has two episodes, and the last one."""
  logged = runs.make_episodes(*[6] * 5)
  runs.write_run(tmp_path / 'Pong' / '1', logged)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(rlds_export, '_EPISODES_PER_FILE', 2)
    rlds = tmp_path / 'rlds'
    assert run('export', tmp_path / 'Pong/1', rlds, '--format=rlds')[0] == 0
  path = rlds / 'dqn_replay-train.tfrecord-00001'
  content = path.read_bytes()
  path.write_bytes(content * 2)  # intact records
  out = run.output('import', rlds, tmp_path / 'store', code=1)
  assert 'has 4 episodes, but 2 by dataset_info.json' in out
  path.write_bytes(content)
  kept = (tmp_path / 'store/shard-0.bin').stat().st_mtime_ns
  assert run('import', rlds, tmp_path / 'store')[0] == 0
  assert (tmp_path / 'store/shard-0.bin').stat().st_mtime_ns == kept
  assert store_directory.list_shards(str(tmp_path / 'store')) == [0, 1, 2]
  expected = runs.expected_transitions(logged)
  runs.assert_same(runs.transitions(tmp_path / 'store'), expected)


@pytest.mark.parametrize('has_both', [True, False])
def test_rewards_are_clipped_and_returns_kept(tmp_path, run, has_both):
  """Before version 1.3.0, rlu_atari had clipped and unclipped rewards."""
  steps = {
    **atari_utils.features_dict()['steps'].feature,
    'clipped_reward': np.float32,
  }
  features = tfds.features.FeaturesDict(
    {'steps': tfds.features.Dataset(steps), 'episode_return': np.float32}
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
  target = tmp_path / 'store'
  assert run.document('import', source, target)['last_step'] == 'transition'
  runs.assert_same(runs.transitions(target), runs.expected_transitions(logged))
  manifest = json.loads((target / manifests.FILE_NAME).read_text())
  for key, scale in (('unclipped_return', 5), ('return', 1)):
    returns = [scale * float(reward.sum()) for _, _, reward in logged]
    assert manifest['episodes'][key]['max'] == max(returns)
    assert manifest['episodes'][key]['min'] == min(returns)


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
  large = raw_episode(episode)
  large['steps']['observation'] = [np.zeros((96, 96, 1), np.uint8)] * 8
  steps = dict(atari_utils.features_dict()['steps'].feature)
  steps['observation'] = tfds.features.Image(shape=(96, 96, 1))
  features = {'steps': tfds.features.Dataset(steps)}
  add('large', {'steps': large['steps']}, tfds.features.FeaturesDict(features))
  info = json.loads((root / 'good' / 'dataset_info.json').read_text())
  (split,) = info['splits']
  empty = {**split, 'shardLengths': ['0'], 'numBytes': '0'}
  metadata = {'environment': {'game': '../../x'}}
  for copy, name, changed in (
    ('empty', 'dataset_info.json', {**info, 'splits': [empty]}),
    ('riegeli', 'dataset_info.json', {**info, 'fileFormat': 'riegeli'}),
    ('nameless', 'dataset_info.json', {'splits': 1}),
    ('outside', 'metadata.json', metadata),
  ):
    shutil.copytree(root / 'good', root / copy)
    (root / copy / name).write_text(json.dumps(changed))
  return root


@pytest.mark.parametrize(
  'name, options, messages',
  [
    ('large', None, ['frame 0 of episode 0 of']),
    ('two_ends', None, ['continues after is_last']),
    ('empty', [], ['no episodes']),
    ('riegeli', [], ['riegeli', 'file_format="tfrecord"']),
    ('nameless', [], ['it has no name']),
    ('outside', [], ["'../../x'"]),
    ('unnamed', [], ['--game']),
    ('good', ['--checkpoints=3'], ['has no checkpoint 3; ', 'train']),
  ],
)
def test_a_mistake_is_one_line(dataset, tmp_path, run, name, options, messages):
  """A malformed file is left out."""
  arguments = dataset / name, tmp_path / 'out', *(options or [])
  if options is None:
    out = run.output('import', *arguments, code=1)
    assert messages[0] in out
    assert out.count('left out: Invalid dataset: ') == 1
    return
  err = run.error('import', *arguments)
  assert all(message in err for message in [name, *messages]), err
  assert not os.listdir(tmp_path)  # nothing is left behind


def test_the_configuration_names_game_and_run(dataset, tmp_path):
  source = shutil.copytree(dataset / 'good', tmp_path / 'x')
  path = source / 'dataset_info.json'
  path.write_text(path.read_text().replace('Pong_run_3', 'Own-2_run_1b'))
  reader = rlds_import.RldsReader(str(source))
  assert (reader.game, reader.run) == ('Own-2', '1b')


def test_other_files_are_not_replaced(dataset, tmp_path, run):
  (tmp_path / 'file').write_text('mine')
  err = run.error('import', dataset / 'good', tmp_path)
  assert 'holds something else' in err
  assert os.listdir(tmp_path) == ['file']
