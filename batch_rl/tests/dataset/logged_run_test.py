"""Runs opened by their folders."""

import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.dataset.store import store as store_lib
from batch_rl.tests import shards


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  """A dataset with one run of two shards."""
  root = tmp_path_factory.mktemp('root')
  shards.write_run(root / 'Pong' / '1' / 'replay_logs', [7, 9, 8], 20)
  return root


def test_folder_shards_store_and_cache_hold_the_same_run(root, tmp_path):
  run_dir = root / 'Pong' / '1'
  store_lib.convert(str(run_dir / 'replay_logs'), str(tmp_path / 'store'))
  expected = None
  for _ in range(2):  # the cache is filled, then used
    for directory, options in (
      (run_dir, {}),
      (f'{run_dir}/', {}),
      (run_dir / 'replay_logs', {}),
      (tmp_path / 'store', {}),
      (run_dir, {'cache_dir': str(tmp_path / 'cache')}),
    ):
      run = dataset.open(str(directory), **options)
      batch = run.transitions(2, seed=1).batch(0, 8)
      expected = expected or batch
      for array, other in zip(batch, expected, strict=True):
        np.testing.assert_array_equal(array, other)


def test_a_store_has_no_use_for_a_cache(root, tmp_path, caplog):
  store_lib.convert(str(root / 'Pong/1/replay_logs'), str(tmp_path / 'store'))
  cache = tmp_path / 'cache'
  dataset.open(tmp_path / 'store', cache_dir=cache)
  assert not cache.exists()
  assert f'cache_dir={cache} has no effect: {tmp_path}/store' in caplog.text


def test_some_shards_are_opened(root):
  run = dataset.open(str(root / 'Pong' / '1'), shards=[1])
  assert run.store.suffixes == [1]
  with pytest.raises(ValueError, match='There is no shard 7 in'):
    dataset.open(str(root / 'Pong' / '1'), shards=[7])
  for shards_of in ([], [1, 0], [0, 0]):
    with pytest.raises(ValueError, match='are not ascending numbers'):
      dataset.open(str(root / 'Pong' / '1'), shards=shards_of)


@pytest.mark.parametrize('below', ['', 'Pong'])
def test_a_folder_of_runs_is_refused_with_one_of_them(root, below):
  with pytest.raises(ValueError, match=r'not a run: .* e\.g\. .*Pong/1\.$'):
    dataset.open(str(root / below))


def test_a_cache_that_cannot_be_written_is_one_line(root, tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(ValueError, match='cache_dir=.*/file cannot be written'):
    dataset.open(str(root / 'Pong' / '1'), cache_dir=str(tmp_path / 'file'))


def test_sequences_and_trajectories_of_a_run(root):
  run = dataset.open(str(root / 'Pong' / '1'))
  found = list(run.trajectories())
  assert [len(trajectory.action) for trajectory in found] == [7, 9, 8]
  sampler = run.sequences(9, subset='trajectories_by_return(-9, 9)', seed=0)
  ends = np.array([trajectory.ended for trajectory in found])
  batch = sampler.gather(sampler.steps()[np.cumsum([7, 9, 8]) - 1])
  assert ends.all() and batch.terminal[:, -1].all()
  assert batch.state.shape == (3, 9, 4, 2, 2)
  for i, trajectory in enumerate(found):
    mask = batch.mask[i]
    for name in ('action', 'reward', 'timestep'):
      np.testing.assert_array_equal(
        getattr(batch, name)[i][mask], getattr(trajectory, name)
      )
    np.testing.assert_array_equal(
      batch.return_to_go[i][mask], trajectory.return_to_go()
    )
    np.testing.assert_array_equal(
      batch.state[i, mask, -1], trajectory.observation
    )
  with pytest.raises(ValueError, match='splits trajectories'):
    run.trajectories('first_transitions(3)')
