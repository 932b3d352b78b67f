import importlib
import os
import sys
from unittest import mock

import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.dataset.store import store as store_lib
from batch_rl.tests import known_runs, shards


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  """A dataset with one run of two shards, in a folder that is not Unicode."""
  root = tmp_path_factory.mktemp('root') / os.fsdecode(b'caf\xe9')
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
      known_runs.assert_same(batch, expected)
  cache = tmp_path / 'no cache'
  run = dataset.open(run_dir, shards=np.array([1]), cache_dir=tmp_path)
  assert run.store.suffixes == [1]
  dataset.open(tmp_path / 'store', cache_dir=cache)
  assert not cache.exists()  # a store has no use for one


@pytest.mark.parametrize(
  ('below', 'options', 'message'),
  [
    ('Pong', {}, r'not a run; .* e\.g\. .*Pong/1\.$'),
    ('Pong/1', {'shards': [7]}, 'There is no shard 7 in'),
    ('Pong/1', {'shards': 7}, 'There is no shard 7 in'),
    ('Pong/1', {'shards': True}, 'shards=True: give a number, or several'),
    ('Pong/1', {'shards': []}, '=.*: give at least one number, in asc'),
    ('Pong/1', {'shards': [1, 0]}, '=.*: give at least one number, in asc'),
    ('Pong/1', {'shards': [0, 0]}, '=.*: give at least one number, in asc'),
    ('Pong/1', {'cache_dir': __file__}, 'cache_dir=.* cannot be written'),
  ],
)
def test_what_cannot_be_opened(root, below, options, message):
  with pytest.raises(ValueError, match=message):
    dataset.open(str(root / below), **options)


def test_packing_stops_if_opening_is_interrupted(root, monkeypatch):
  interrupt, close = mock.Mock(side_effect=KeyboardInterrupt), mock.Mock()
  monkeypatch.setattr(store_lib.Store, 'wait', interrupt)
  monkeypatch.setattr(store_lib.Store, 'close', close)
  with pytest.raises(KeyboardInterrupt):
    dataset.open(root / 'Pong' / '1')
  close.assert_called()


def test_pytorch_is_asked_for(monkeypatch):
  monkeypatch.delitem(sys.modules, 'batch_rl.dataset.torch', raising=False)
  monkeypatch.setitem(sys.modules, 'torch', None)  # as if not installed
  with pytest.raises(ImportError, match='needs PyTorch: pip install torch'):
    importlib.import_module('batch_rl.dataset.torch')
