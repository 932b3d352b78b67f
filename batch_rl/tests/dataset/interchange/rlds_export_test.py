import os
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import atari_utils

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import shards

pytestmark = pytest.mark.usefixtures('eager')


def test_tfds_loads_an_exported_run(tmp_path, run, monkeypatch):
  """A killed export has left a staging folder."""
  logged = runs.make_episodes(*runs.LENGTHS)
  runs.write_run(tmp_path / 'Pong' / '4', logged)
  target = tmp_path / 'rlds'
  killed = tmp_path / 'rlds.unfinished'
  (killed / 'made').mkdir(parents=True)
  (killed / '.lock').write_text('')
  (killed / 'made' / 'dataset_info.json').write_text('{')
  (killed / 'made' / 'dqn_replay-train.tfrecord-00000').write_bytes(b'x')
  out = run.output('export', tmp_path / 'Pong/4', target, '--format=rlds')
  assert '4 episodes, 215 steps' in out and 'trunc' not in out
  builder = tfds.builder_from_directory(str(target))
  assert repr(builder.info.features) == repr(atari_utils.features_dict())
  assert builder.info.full_name == 'dqn_replay/Pong_run_4/1.0.0'
  assert builder.info.metadata['environment'] == runs.ENVIRONMENT
  config = tfds.ReadConfig(interleave_cycle_length=1)
  dataset = [*builder.as_dataset(split='train', read_config=config)]
  assert len(dataset) == len(logged)
  # Padding counts: the fourth episode begins in row 194 of shards of 100.
  for i, example in enumerate(dataset):
    rows = list(example.pop('steps').as_numpy_iterator())
    steps = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    rest = {key: value.numpy() for key, value in example.items()}
    observation, action, reward = logged[i]
    n = len(action)
    step = np.arange(n + 1)
    expected = {
      'observation': np.pad(observation[..., None], [(0, 1), *[(0, 0)] * 3]),
      'action': np.append(action, 0),
      'reward': np.append(reward, 0),
      # 0 for the last action and for the step without a valid action.
      'discount': step < n - 1,
      'is_first': step == 0,
      'is_last': step == n,
      'is_terminal': step == n,
    }
    np.testing.assert_equal(steps, expected)
    assert rest['episode_return'] == reward.sum()
    assert rest['episode_id'] == i and rest['checkpoint_id'] == (0, 0, 1, 1)[i]
  assert sorted(os.listdir(tmp_path)) == ['Pong', 'rlds']
  shards.write_run(tmp_path / 'tiny/1/replay_logs', [9], 20)
  flags = tmp_path / 'out', '--format=rlds'
  assert '2 x 2 uint8' in run.error('export', tmp_path / 'tiny/1', *flags)
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  assert 'pip install' in run.error('export', tmp_path / 'Pong/4', *flags)
  assert not list(tmp_path.glob('out*'))  # nothing is left behind


@pytest.mark.parametrize(
  'kinds',
  [{1: 'truncated', 3: 'open'}, {0: 'truncated', 1: 'late', 2: 'truncated'}],
)
def test_a_round_trip_changes_nothing(tmp_path, run, kinds):
  logged = runs.make_episodes(*runs.LENGTHS)
  logged[2][1][5], logged[2][2][5] = 20, 5  # no action or reward of Atari
  given = dict(kinds=kinds, environment={'game': 'Pong'})
  logs = runs.write_run(tmp_path / 'Pong' / '1', logged, **given)
  out = run.output('export', logs, tmp_path / 'rlds', '--format=rlds')
  target = tmp_path / 'store'
  document = run.document('import', tmp_path / 'rlds', target)
  reader = episodes.Reader(run_directories.as_run(str(logs)))
  assert reader.hash in out and 'note: 2 episodes are truncated' in out
  assert document['last_step'] == 'observation'
  assert document['truncated'] == 2
  expected = runs.expected_transitions(logged, kinds)
  runs.assert_same(runs.transitions(target), expected)
