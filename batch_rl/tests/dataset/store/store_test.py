import os
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset import store
from batch_rl.dataset.shards import shard_files
from batch_rl.tests import known_runs, ring_logs, shards
from batch_rl.tests.dataset.fetch import fetched_files
from batch_rl.tests.dataset.store import stores


@settings(max_examples=60)
@given(on_disk=st.booleans(), length=st.integers(1, 30), data=st.data())
def test_rows_are_shards_in_time_order(tmp_path_factory, on_disk, length, data):
  """Windows end at the first gap, and gaps are reported."""
  directory = tmp_path_factory.mktemp('run')
  run, present = known_runs.draw_run(data, directory / 'logs')
  before = fetched_files.contents(directory / 'logs')
  cache = str(directory / 'cache') if on_disk else None
  opened = stores.open_store(run.directory, directory=cache)
  kept = run.rows_of(present)
  assert stores.rows_in(opened) == [run.rows[row] for row in kept]
  has_gap = max(present) - min(present) >= len(present)
  assert bool(opened.problems) == has_gap
  assert all('no shard between' in problem for problem in opened.problems)
  windows = opened.windows(np.arange(len(kept) + 2), length)[..., 0, 0]
  for start, window in enumerate(windows.tolist()):
    expected = [
      run.rows[row].frame
      for i, row in enumerate(kept[start : start + length])
      if row == kept[start] + i
    ]
    assert window == expected + [0] * (length - len(expected))
  assert not opened.windows(np.array([-1, -40]), 1).any()
  assert fetched_files.contents(directory / 'logs') == before


def test_frames_of_the_sample_take_few_bytes():
  opened = stores.open_store(stores.SAMPLE, suffixes=[10])
  assert opened.rows == 12_040
  assert 0 < opened.frame_tables.offsets[-1] < 100 * opened.rows  # Of 7,065.


def test_padding_is_not_looked_for_after_a_gap(tmp_path):
  """The first episode ends before the gap; the second began in a lost shard."""
  path = known_runs.write_run(tmp_path, [16, 64], 20).directory
  for suffix in (1, 2, 3):
    ring_logs.remove_shard(path, suffix)
  for opened in stores.open_store(path), store.Store(path, pack=False):
    assert opened.ends[0] == 18 and opened.starts[1] == 19
    assert opened.first_padding() == 3


def test_a_copy_in_another_process_has_the_same_shards(tmp_path, monkeypatch):
  logs, cache = tmp_path / 'logs', tmp_path / 'cache'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  with pytest.raises(ValueError, match='in memory only'):
    pickle.dumps(stores.open_store(logs))
  opened = stores.open_store(logs, directory=str(cache), skip_damaged=True)
  opened.close()
  content = pickle.dumps(opened)
  os.remove(cache / 'shard-2.json')  # It has to be packed again.
  with monkeypatch.context() as patch:
    stores.damage_frames(patch, 2)
    with pytest.raises(ValueError, match='Shard 2 .* damaged'):
      pickle.loads(content)
  copy = pickle.loads(content)
  assert copy.packed == opened.packed and stores.rows_in(copy) == rows
  copy.close()
  os.remove(logs / shard_files.file_name('terminal', 3))
  with pytest.raises(ValueError, match='Shard 3 .* has changed since'):
    pickle.loads(content)
  shutil.rmtree(logs)
  shards.write_run(logs, [25] * 8, capacity=50)
  with pytest.raises(ValueError, match='Shard 0 .* changed'):
    pickle.loads(content)


def test_shards_damaged_on_opening_are_named_or_skipped(tmp_path, caplog):
  shards.write_run(tmp_path, [30] * 10, capacity=50)
  assert shard_files.list_suffixes(str(tmp_path)) == [*range(7)]
  wrong = {}
  for suffix, name in enumerate(('reward', 'add_count', 'observation')):
    wrong[suffix] = rf'{name}_ckpt.{suffix}.gz is damaged'
    (tmp_path / shard_files.file_name(name, suffix)).write_bytes(b'')
  for suffix, value in ((3, np.nan), (4, -np.inf)):
    wrong[suffix] = f'Shard {suffix} in .* has reward {value}'
    frames, zeros = np.zeros((50, 2, 2), np.uint8), np.zeros(50)
    columns = frames, zeros, np.full(50, value), zeros
    ring_logs.write_shard(tmp_path, suffix, 50 * suffix + 49, *columns)
  for suffix, message in wrong.items():
    with pytest.raises(ValueError, match=message):
      store.Store(str(tmp_path), [suffix])
  os.remove(tmp_path / shard_files.file_name('action', 5))
  with pytest.raises(ValueError, match='Shard 5 .* incomplete'):
    store.Store(str(tmp_path))
  opened = stores.open_store(tmp_path, skip_damaged=True)
  assert opened.suffixes == opened.packed == [6]
  opened = stores.open_store(tmp_path, suffixes=[5, 6], skip_damaged=True)
  assert opened.packed == [6]
  for suffix in wrong:
    assert f'Shard {suffix} is not used' in caplog.text
  with pytest.raises(ValueError, match='Every shard'):
    store.Store(str(tmp_path), [1, 2], skip_damaged=True)
