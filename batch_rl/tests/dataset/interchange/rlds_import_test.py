"""RLDS datasets in TFDS, made from runs and made into runs."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow.python.eager import context
from tensorflow_datasets.rl_unplugged import atari_utils

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.commands import import_export
from batch_rl.dataset.interchange import rlds
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line

LENGTHS = (60, 45, 80, 30)


@pytest.fixture(autouse=True)
def eager():
  """As in a program of its own: Dopamine, in other tests, switches that off."""
  with context.eager_mode():
    yield


@pytest.fixture
def import_json(run):
  def import_(*arguments):
    code, out, err = run('import', *arguments, '--json')
    assert code == 0, err
    return json.loads(out)

  return import_


def raw_episode(
  episode, ended=True, number=0, checkpoint=0, style='transition'
):
  """An episode as it is in a dataset.

  'transition' is what TFDS makes of RL Unplugged's files: as many steps as rows
  were logged. 'observation' is what RLDS says: one more, with nothing in it but an
  observation.
  """
  observation, action, reward = episode
  total = float(reward.sum())
  if style == 'observation' and ended:
    # What the environment showed in the end; our format has no place for it.
    observation = np.concatenate([observation, 200 + 0 * observation[:1]])
    action, reward = np.append(action, 3), np.append(reward, 0)
  n = len(action)
  first, last = np.arange(n) == 0, np.arange(n) == n - 1
  discount = np.ones(n, np.float32)
  if ended:
    discount[-2:] = 0
  return {
    'steps': {
      'observation': list(observation[..., None]),
      'action': action.astype(np.int64),
      'reward': reward.astype(np.float32),
      'discount': discount,
      'is_first': first,
      'is_last': last,
      'is_terminal': last & ended,
    },
    'checkpoint_id': checkpoint,
    'episode_id': number,
    'episode_return': total,
  }


def build(
  directory,
  splits,
  features=None,
  name='rlu_atari_checkpoints_ordered',
  config='Pong_run_3',
  ordered=True,
):
  """Has TFDS write splits, `{name: [episode, ...]}`, as it does for a dataset."""

  class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version('1.1.0')
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)]

    def _info(self):
      return tfds.core.DatasetInfo(
        builder=self,
        features=features or atari_utils.features_dict(),
        disable_shuffling=ordered,
      )

    def _split_generators(self, dl_manager):
      return {
        split: self._generate_examples(split, found)
        for split, found in splits.items()
      }

    def _generate_examples(self, split, found):
      for i, episode in enumerate(found):
        yield i if ordered else f'{split}_{i}', episode

  Builder.name = name
  builder = Builder(data_dir=str(directory))
  builder.download_and_prepare()
  return builder.data_dir


def read_steps(directory, split='train'):
  """All episodes of a split, each with its steps as arrays."""
  builder = tfds.builder_from_directory(str(directory))
  found = []
  config = tfds.ReadConfig(interleave_cycle_length=1)
  for example in builder.as_dataset(split=split, read_config=config):
    steps = list(example['steps'].as_numpy_iterator())
    columns = {key: np.array([s[key] for s in steps]) for key in steps[0]}
    rest = {k: v.numpy() for k, v in example.items() if k != 'steps'}
    found.append((columns, rest))
  return builder.info, found


def same_shards(one, two):
  """Whether two folders have the same shards, row for row."""
  suffixes = shard_files.list_suffixes(str(one))
  assert shard_files.list_suffixes(str(two)) == suffixes
  for suffix in suffixes:
    a, b = (shard_reader.read_shard(str(logs), suffix) for logs in (one, two))
    assert a.add_count == b.add_count
    for name in shard_files.COLUMNS:
      np.testing.assert_array_equal(a.columns[name], b.columns[name])


# --- export -------------------------------------------------------------------


def test_tfds_loads_what_was_exported(tmp_path, run):
  made = runs.make_episodes(*LENGTHS)
  runs.write_run(tmp_path / 'Pong' / '4', made)
  target = tmp_path / 'rlds'
  code, out, _ = run('export', tmp_path / 'Pong/4', target, '--format=rlds')
  assert code == 0 and '4 episodes, 215 steps' in out
  info, found = read_steps(target)
  assert repr(info.features) == repr(atari_utils.features_dict())
  assert info.full_name == 'dqn_replay/Pong_run_4/1.0.0'
  assert info.metadata['environment'] == runs.ENVIRONMENT
  assert len(found) == len(made)
  # Padding counts: the fourth episode begins in row 194 of shards of 100.
  for i, ((steps, rest), (observation, action, reward)) in enumerate(
    zip(found, made, strict=True)
  ):
    n = len(action)
    assert len(steps['action']) == n + 1
    np.testing.assert_array_equal(steps['observation'][:n, ..., 0], observation)
    np.testing.assert_array_equal(steps['action'][:n], action)
    np.testing.assert_array_equal(steps['reward'][:n], reward)
    last = np.arange(n + 1) == n
    for key in ('is_last', 'is_terminal'):
      np.testing.assert_array_equal(steps[key], last)
    np.testing.assert_array_equal(steps['is_first'], np.arange(n + 1) == 0)
    # The discount after the last action, and of the step that has none.
    np.testing.assert_array_equal(
      steps['discount'] == 0, np.arange(n + 1) > n - 2
    )
    assert not steps['observation'][n].any()
    assert not steps['action'][n] and not steps['reward'][n]
    assert rest['episode_return'] == reward.sum()
    assert rest['episode_id'] == i and rest['checkpoint_id'] == (0, 0, 1, 1)[i]
  assert sorted(os.listdir(tmp_path)) == ['Pong', 'rlds']


HOWS = [{}, {3: 'open'}, {1: 'cut', 3: 'open'}, {0: 'cut', 1: 'late', 2: 'cut'}]


@pytest.mark.parametrize('how', HOWS)
def test_a_round_trip_changes_nothing(tmp_path, import_json, run, how):
  made = runs.make_episodes(*LENGTHS)
  logs = runs.write_run(tmp_path / 'Pong' / '1', made, how=how)
  code, out, _ = run('export', logs, tmp_path / 'rlds', '--format=rlds')
  assert code == 0
  target = tmp_path / 'again' / 'Pong' / '1'
  document = import_json(tmp_path / 'rlds', target, '--shards')
  same_shards(logs, target / 'replay_logs')
  reader = episodes.Reader(run_directories.as_run(str(logs)))
  assert document['hash'] == reader.hash and reader.hash in out
  assert document['last_step'] == 'observation'
  assert document['truncated'] == sum(
    kind in ('cut', 'open') for kind in how.values()
  )
  expected = runs.expected_transitions(made, how)
  runs.assert_same(runs.transitions(target / 'replay_logs'), expected)
  import_json(tmp_path / 'rlds', tmp_path / 'store')
  runs.assert_same(runs.transitions(tmp_path / 'store'), expected)
  found = [
    f.message
    for f in run_checks.verify(str(target / 'replay_logs')).wrong
    if 'hardly moves' not in f.message  # Pong begins with a pause
  ]
  # An episode without its beginning has no padding, which looks odd.
  assert len(found) == ('late' in how.values())


# --- import -------------------------------------------------------------------


def test_checkpoints_become_one_run_in_their_order(tmp_path, import_json, run):
  made = runs.make_episodes(*LENGTHS)
  source = build(
    tmp_path / 'tfds',
    {
      'checkpoint_10': [raw_episode(made[3], True, 0, 10)],
      'checkpoint_09': [raw_episode(made[2], True, 0, 9)],
      'checkpoint_02': [
        raw_episode(made[0], True, 0, 2),
        raw_episode(made[1], False, 1, 2),
      ],
    },
  )
  target = tmp_path / 'Pong' / '3'
  document = import_json(source, target, '--shards', '--shard_rows=100')
  assert document['game'] == 'Pong' and document['last_step'] == 'transition'
  assert document['order'] == 'time' and document['truncated'] == 1
  logs = target / 'replay_logs'
  runs.assert_same(
    runs.transitions(logs), runs.expected_transitions(made, {1: 'cut'})
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
  # Nobody knows the returns before clipping.
  assert 'unclipped_return' not in manifest['episodes']
  assert manifest['episodes']['count'] == 4
  code, out, _ = run('inspect', target)
  assert code == 0 and 'Pong by dqn' in out
  assert 'note: 1 episodes were truncated' in out
  # Some of them only.
  import_json(source, tmp_path / 'store', '--checkpoints=9-10')
  runs.assert_same(
    runs.transitions(tmp_path / 'store'), runs.expected_transitions(made[2:])
  )


def test_a_shuffled_dataset_says_so(tmp_path, run):
  made = runs.make_episodes(*LENGTHS)
  source = build(
    tmp_path,
    {'train': [raw_episode(episode) for episode in made]},
    name='rlu_atari',
    ordered=False,
  )
  code, out, _ = run('import', source, tmp_path / 'store')
  assert code == 0 and 'in the order of its files' in out
  found = runs.transitions(tmp_path / 'store')
  expected = runs.expected_transitions(made)

  def as_set(columns):
    return {
      b''.join(np.ascontiguousarray(value).tobytes() for value in row)
      for row in zip(
        *(np.asarray(columns[key], np.float32) for key in expected), strict=True
      )
    }

  assert as_set(found) == as_set(expected)


@pytest.mark.parametrize('style', ['transition', 'observation'])
def test_last_steps_are_told_by_returns(tmp_path, import_json, style):
  made = runs.make_episodes(*LENGTHS)
  # The first ends without a reward, which tells nothing.
  made[0][2][-1] = 0
  source = build(
    tmp_path, {'train': [raw_episode(e, style=style) for e in made]}
  )
  assert import_json(source, tmp_path / 'store')['last_step'] == style
  runs.assert_same(
    runs.transitions(tmp_path / 'store'), runs.expected_transitions(made)
  )


def test_without_rewards_at_the_end_rlds_is_believed(tmp_path, import_json):
  made = runs.make_episodes(*LENGTHS)
  for _, _, reward in made:
    reward[-1] = 0
  source = build(tmp_path, {'train': [raw_episode(e) for e in made]})
  document = import_json(source, tmp_path / 'a')
  assert document['last_step'] == 'observation'
  # An episode then ends a step earlier: its return is the same.
  shorter = [tuple(column[:-1] for column in e) for e in made]
  runs.assert_same(
    runs.transitions(tmp_path / 'a'), runs.expected_transitions(shorter)
  )
  import_json(source, tmp_path / 'b', '--last_step=transition')
  runs.assert_same(
    runs.transitions(tmp_path / 'b'), runs.expected_transitions(made)
  )


def test_last_steps_that_contradict_are_an_error(tmp_path, run):
  made = runs.make_episodes(*LENGTHS)
  found = [raw_episode(made[0]), raw_episode(made[1])]
  found[1]['episode_return'] -= made[1][2][-1]
  source = build(tmp_path, {'train': found})
  code, _, err = run('import', source, tmp_path / 'store')
  assert code == 2 and is_one_line(err)
  assert 'episode 1 of split train' in err and '--last_step' in err
  chosen = run('import', source, tmp_path / 'store', '--last_step=transition')
  assert chosen[0] == 0


def test_rewards_are_clipped_and_returns_kept(tmp_path, import_json):
  made = runs.make_episodes(*LENGTHS)
  raw = [raw_episode(episode) for episode in made]
  for episode in raw:
    episode['steps']['reward'] *= 5
    episode['episode_return'] *= 5
  raw[1]['steps']['reward'][3] = 200
  raw[1]['episode_return'] = float(raw[1]['steps']['reward'].sum())
  made[1][2][3] = 1
  source = build(tmp_path, {'train': raw})
  target = tmp_path / 'Pong' / '1'
  assert import_json(source, target, '--shards')['last_step'] == 'transition'
  logs = target / 'replay_logs'
  runs.assert_same(runs.transitions(logs), runs.expected_transitions(made))
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  returns = [e['episode_return'] for e in raw]
  assert manifest['episodes']['unclipped_return']['max'] == max(returns)
  returns = [float(reward.sum()) for _, _, reward in made]
  assert manifest['episodes']['return']['max'] == max(returns)


def test_a_dataset_with_both_rewards(tmp_path, import_json):
  """As rlu_atari had them before version 1.3.0."""
  steps = atari_utils.features_dict()['steps'].feature
  features = tfds.features.FeaturesDict(
    {
      'steps': tfds.features.Dataset({**steps, 'clipped_reward': np.float32}),
      'episode_return': np.float32,
    }
  )
  made = runs.make_episodes(*LENGTHS)
  raw = [raw_episode(episode) for episode in made]
  for episode in raw:
    del episode['checkpoint_id'], episode['episode_id']
    clipped = episode['steps']['reward']
    episode['steps'] |= {'clipped_reward': clipped, 'reward': clipped * 0.5}
    episode['episode_return'] *= 0.5
  source = build(tmp_path, {'train': raw}, features)
  target = tmp_path / 'Pong' / '1'
  import_json(source, target, '--shards')
  logs = target / 'replay_logs'
  runs.assert_same(runs.transitions(logs), runs.expected_transitions(made))
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  assert manifest['episodes']['unclipped_return']['min'] == min(
    e['episode_return'] for e in raw
  )


# --- stopped ------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from batch_rl.dataset import __main__ as tools
from batch_rl.dataset.commands import import_export
from batch_rl.dataset.interchange import rlds
rlds._ROWS_BETWEEN_CUTS = 50
left = int(sys.argv[1])
def progress(self, what, count, total):
  global left
  left -= what == sys.argv[2]
  if not left:
    os.kill(os.getpid(), signal.SIGKILL)
import_export._Progress.__call__ = progress
tools.main(sys.argv[3:])
"""


def run_until_killed(count, what, *arguments):
  command = [sys.executable, '-c', _KILLED, str(count), what]
  command += map(str, arguments)
  done = subprocess.run(command, capture_output=True, check=False)
  assert done.returncode == -signal.SIGKILL, done.stderr


def test_an_import_that_was_killed_goes_on(
  tmp_path, import_json, run, monkeypatch
):
  made = runs.make_episodes(*LENGTHS)
  how = {1: 'cut', 2: 'cut'}
  source = build(
    tmp_path / 'tfds',
    {
      'checkpoint_00': [
        raw_episode(e, i not in how) for i, e in enumerate(made[:3])
      ],
      'checkpoint_01': [raw_episode(made[3])],
    },
  )
  target = tmp_path / 'store'
  arguments = ('import', source, target, '--shard_rows=100')
  run_until_killed(4, 'episodes', *arguments)
  assert sorted(os.listdir(tmp_path)) == ['store.unfinished', 'tfds']
  state = json.loads((tmp_path / 'store.unfinished/state.json').read_text())
  assert state['done'] == {'checkpoint_00': 3} and state['log']['rows'] == 194

  def interrupt(self, what, count, total):
    if what == 'packing':
      raise ValueError('stopped')  # the packer's thread passes it on

  with monkeypatch.context() as patch:
    patch.setattr(import_export._Progress, '__call__', interrupt)
    assert run(*arguments)[0] == 2
  assert not target.exists()
  read = []
  original = rlds._Source.read
  monkeypatch.setattr(
    rlds._Source,
    'read',
    lambda *args, **kwargs: read.append(args) or original(*args, **kwargs),
  )
  document = import_json(source, target, '--shard_rows=100')
  assert not read  # all rows were there
  assert document['episodes'] == 4 and document['truncated'] == 2
  assert sorted(os.listdir(tmp_path)) == ['store', 'tfds']
  runs.assert_same(
    runs.transitions(target), runs.expected_transitions(made, how)
  )


def test_other_options_do_not_go_on_with_it(tmp_path, run, monkeypatch):
  made = runs.make_episodes(*LENGTHS)
  source = build(tmp_path, {'train': [raw_episode(e) for e in made]})
  monkeypatch.setattr(rlds, '_ROWS_BETWEEN_CUTS', 50)

  def stop(what, count, total):
    stop.left -= what == 'episodes'
    if not stop.left:
      raise KeyboardInterrupt

  stop.left = 4
  target = str(tmp_path / 'store')
  with pytest.raises(KeyboardInterrupt):
    rlds.import_run(str(source), target, progress=stop)
  code, _, err = run('import', source, target, '--shard_rows=200')
  assert code == 2 and is_one_line(err) and 'store.unfinished' in err
  code, _, err = run('import', source, target)
  assert code == 0
  runs.assert_same(runs.transitions(target), runs.expected_transitions(made))


def test_an_export_that_was_killed_starts_again(tmp_path, run):
  made = runs.make_episodes(*LENGTHS)
  logs = runs.write_run(tmp_path / 'Pong' / '1', made)
  target = tmp_path / 'rlds'
  run_until_killed(1, 'steps', 'export', logs, target, '--format=rlds')
  assert not target.exists()
  code, _, err = run('export', logs, target, '--format=rlds')
  assert code == 0, err
  assert len(read_steps(target)[1]) == 4
  assert not (tmp_path / 'rlds.unfinished').exists()


# --- mistakes -----------------------------------------------------------------


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  """A good one, and several that are not; the folder they are in."""
  root = tmp_path_factory.mktemp('datasets')
  (episode,) = runs.make_episodes(8)
  good = raw_episode(episode)
  os.symlink(build(root / 'a', {'train': [good]}), root / 'good')
  unnamed = build(root / 'b', {'train': [good]}, config='expert', name='other')
  os.symlink(unnamed, root / 'unnamed')
  shutil.copytree(root / 'good', root / 'empty')
  about = root / 'empty' / 'dataset_info.json'
  info = json.loads(about.read_text())
  info['splits'][0] |= {'shardLengths': ['0'], 'numBytes': '0'}
  about.write_text(json.dumps(info))
  steps = dict(atari_utils.features_dict()['steps'].feature)
  for name, changed in (
    ('no_terminal', {k: v for k, v in steps.items() if k != 'is_terminal'}),
    ('continuous', {**steps, 'action': np.float32}),
    (
      'large',
      {**steps, 'observation': tfds.features.Image(shape=(96, 96, 1))},
    ),
  ):
    features = tfds.features.FeaturesDict(
      {'steps': tfds.features.Dataset(changed)}
    )
    frame = np.zeros((96, 96, 1) if name == 'large' else (84, 84, 1), np.uint8)
    values = {**good['steps'], 'observation': [frame] * 8}
    example = {'steps': {key: values[key] for key in changed}}
    made = build(root / name, {'train': [example]}, features)
    os.symlink(made, root / f'{name}.link')
  flat = tfds.features.FeaturesDict({'image': tfds.features.Image()})
  picture = np.zeros((8, 8, 3), np.uint8)
  made = build(root / 'd', {'train': [{'image': picture}]}, flat)
  os.symlink(made, root / 'flat')
  two = raw_episode(episode)
  two['steps']['is_last'][3] = True
  os.symlink(build(root / 'e', {'train': [two]}), root / 'within')
  shards.write_run(root / 'tiny' / '1' / 'replay_logs', [9], 20)
  runs.write_run(root / 'Pong' / '1', [episode])
  return root


@pytest.mark.parametrize(
  'arguments, messages',
  [
    (
      ['import', '{root}/Pong/1', '{out}', '--format=rlds'],
      ['not a TFDS directory', 'replay_'],
    ),
    (
      ['import', '{root}/nowhere', '{out}', '--format=rlds'],
      ['not a TFDS directory'],
    ),
    (['import', '{root}/tiny', '{out}', '--game=Pong'], ['--game', 'dopamine']),
    (['import', '{root}/good', '{out}', '--dry_run'], ['--dry_run', 'rlds']),
    (['import', '{root}/no_terminal.link', '{out}'], ['no is_terminal, but']),
    (['import', '{root}/continuous.link', '{out}'], ['action is float32']),
    (['import', '{root}/large.link', '{out}'], ['(96, 96, 1)', '(84, 84, 1)']),
    (['import', '{root}/flat', '{out}'], ['no dataset of steps, but image']),
    (['import', '{root}/empty', '{out}'], ['no episodes']),
    (['import', '{root}/within', '{out}'], ['episode 0', 'is_last']),
    (['import', '{root}/good', '{root}/Pong'], ['exists already']),
    (['import', '{root}/good', 'gs://a/b'], ['local']),
    (['import', '{root}/good', '{out}', '--game=Breakout'], ['of Pong, not']),
    (['import', '{root}/unnamed', '{out}'], ['--game']),
    (['import', '{root}/good', '{out}', '--format=parquet'], ['parquet']),
    (['import', '{root}/good', '{out}', '--checkpoints=3'], ['train']),
    (['import', '{root}/good', '{out}', '--checkpoints=x'], ["'x'"]),
    (['import', '{root}/good', '{out}', '--shard_rows=5'], ['at least 100']),
    (['export', '{root}/Pong/1', '{out}'], ['--format']),
    (['export', '{root}/Pong/1', '{out}', '--format=csv'], ['csv']),
    (['export', '{root}/Pong', '{out}', '--format=rlds'], ['choose one']),
    (['export', '{root}/no', '{out}', '--format=rlds'], ['cannot be listed']),
    (['export', '{root}/tiny/1', '{out}', '--format=rlds'], ['2 x 2 uint8']),
    (
      ['export', '{root}/Pong/1', '{out}', '--format=rlds', '--stack=4'],
      ['--stack'],
    ),
    (
      ['export', '{root}/Pong/1', '{out}', '--format=rlds', '--subset=all()'],
      ['is not a subset'],
    ),
    (
      ['export', '{root}/Pong/1', '{root}/good', '--format=rlds'],
      ['exists already'],
    ),
  ],
)
def test_mistakes_are_one_line(dataset, tmp_path, run, arguments, messages):
  out = tmp_path / 'out'
  code, _, err = run(*(a.format(root=dataset, out=out) for a in arguments))
  assert code == 2 and is_one_line(err), err
  assert all(message in err for message in messages), err
  assert not os.listdir(tmp_path)  # nothing is left behind


def test_a_game_can_be_said(dataset, tmp_path, import_json):
  document = import_json(dataset / 'unnamed', tmp_path / 'store', '--game=Pong')
  assert document['game'] == 'Pong' and document['steps'] == 8


@pytest.mark.parametrize('what', ['import', 'export'])
def test_tfds_that_is_not_installed_is_named(
  dataset, tmp_path, run, monkeypatch, what
):
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  source = dataset / {'import': 'good', 'export': 'Pong/1'}[what]
  code, _, err = run(what, source, tmp_path / 'out', '--format=rlds')
  assert code == 2 and is_one_line(err) and 'pip install' in err


def test_a_damaged_dataset_is_one_line(dataset, tmp_path, run):
  copy = tmp_path / 'copy'
  copy.mkdir()
  for name in os.listdir(dataset / 'good'):
    content = bytearray((dataset / 'good' / name).read_bytes())
    if 'tfrecord' in name:
      content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
  code, _, err = run('import', copy, tmp_path / 'out')
  assert code == 2 and is_one_line(err) and str(copy) in err


def test_two_imports_of_one_destination(dataset, tmp_path, run):
  from batch_rl.utils import staging_directory

  with staging_directory.StagingDirectory(str(tmp_path / 'out')):
    code, _, err = run('import', dataset / 'good', tmp_path / 'out')
  assert code == 2 and is_one_line(err) and f'process {os.getpid()}' in err


def test_what_is_in_the_way_is_left_alone(dataset, tmp_path, run):
  other = tmp_path / 'out.unfinished' / 'thesis.tex'
  other.parent.mkdir()
  other.write_text('x')
  code, _, err = run('import', dataset / 'good', tmp_path / 'out')
  assert code == 2 and is_one_line(err) and other.read_text() == 'x'
