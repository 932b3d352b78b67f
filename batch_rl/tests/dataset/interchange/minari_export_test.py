import sys

import numpy as np
import pytest

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import observations

if sys.version_info < (3, 11):
  pytest.skip('Minari needs Python 3.11', allow_module_level=True)
import minari  # noqa: E402


@pytest.mark.parametrize('kinds', [{}, {0: 'truncated', 1: 'late', 3: 'open'}])
def test_minari_has_the_same_transitions(tmp_path, run, monkeypatch, kinds):
  logged = runs.make_episodes(*runs.LENGTHS)
  logs = runs.write_run(tmp_path / 'Pong' / '1', logged, kinds=kinds)
  root = tmp_path / 'datasets'
  monkeypatch.setenv('MINARI_DATASETS_PATH', str(root))
  target = root / 'atari' / 'pong-v0'
  document = run.document('export', logs, target, '--format=minari')
  dataset = minari.load_dataset('atari/pong-v0')
  for i, episode in enumerate(dataset.iterate_episodes()):
    observation, action, reward = logged[i]
    is_cut = kinds.get(i) in ('truncated', 'open')
    steps = len(action) - is_cut
    is_last = np.arange(steps) == steps - 1
    # The observation after a terminal was never logged.
    after = np.zeros_like(observation[: 1 - is_cut])
    for found, expected in (
      (episode.observations, np.concatenate([observation, after])),
      (episode.actions, action[:steps]),
      (episode.rewards, reward[:steps]),
      (episode.terminations, is_last & (not is_cut)),
      (episode.truncations, is_last & is_cut),
    ):
      np.testing.assert_array_equal(found, expected)
    [metadata] = dataset.storage.get_episode_metadata([episode.id])
    assert metadata['begins_at_reset'] == (kinds.get(i) != 'late')
  reader = episodes.Reader(run_directories.as_run(str(logs)))
  about = dataset.storage.metadata
  assert about['total_steps'] == document['steps'] == dataset.total_steps
  assert about['total_episodes'] == document['episodes'] == 4
  assert about['game'] == 'Pong' and about['algorithm_name'] == 'dqn'
  assert about['seed'] == 7 and about['environment'] == runs.ENVIRONMENT
  assert about['source_hash'] == document['hash'] == reader.hash
  assert about['source'] == str(logs)
  assert about['action_meanings'][:3] == ['NOOP', 'FIRE', 'RIGHT']
  assert document['truncated'] == len(kinds) - ('late' in kinds.values())
  assert dataset.action_space.n == 6
  env = dataset.recover_environment()
  assert env.spec.id == 'ALE/Pong-v5'
  observation, _ = env.reset(seed=1)
  assert env.observation_space == dataset.observation_space
  # The same preprocessing: the first screen is like the logged one.
  assert (observation != logged[0][0][0]).mean() < 0.05
  env.close()


@pytest.mark.parametrize('kind', observations.KINDS)
def test_minari_has_any_observations(tmp_path, run, monkeypatch, kind):
  columns = observations.write(tmp_path / 'World/1/replay_logs', kind)
  monkeypatch.setitem(sys.modules, 'ale_py', None)  # not installed
  monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
  arguments = tmp_path / 'World/1', tmp_path / 'world-v0', '--format=minari'
  document = run.document('export', *arguments)
  assert document['environment'] is None
  dataset = minari.load_dataset('world-v0')
  shape, dtype = observations.KINDS[kind]
  space = dataset.observation_space
  assert (space.shape, space.dtype) == (shape, dtype)
  assert 'requirements' not in dataset.storage.metadata
  found = list(dataset.iterate_episodes())
  parts = [e.observations[: len(e) + e.truncations[-1]] for e in found]
  np.testing.assert_array_equal(np.concatenate(parts), columns['observation'])
  kept = ~columns['last']
  for name, column in (('action', 'actions'), ('reward', 'rewards')):
    values = np.concatenate([getattr(e, column) for e in found])
    expected = columns[name][kept].astype(values.dtype)
    np.testing.assert_array_equal(values, expected)
  assert document['steps'] == kept.sum() and document['truncated'] == 2


def test_a_mistake_is_one_line(tmp_path, run, monkeypatch):
  root = tmp_path / 'Pong' / '1'
  runs.write_run(root, runs.make_episodes(8))
  for target, message in ((tmp_path / 'out', 'pong-v0'), (root, 'exists')):
    assert message in run.error('export', root, target, '--format=minari')
  monkeypatch.setitem(sys.modules, 'h5py', None)
  err = run.error('export', root, tmp_path / 'pong-v0', '--format=minari')
  assert 'h5py' in err and 'pip install' in err
  assert [path.name for path in tmp_path.iterdir()] == ['Pong']
