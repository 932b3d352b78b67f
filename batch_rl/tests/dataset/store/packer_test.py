import shutil
import threading
import time
from unittest import mock

import numpy as np
import pytest

from batch_rl.dataset import store
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.dataset.store import packing, stores


def test_preferred_shards_are_packed_first(tmp_path, gate):
  rows = shards.write_run(tmp_path, [30] * 8, capacity=50)
  opened = store.Store(str(tmp_path), pack=False)
  opened.start(first=[2])
  assert opened.packed == [] and opened.rows == len(rows)
  assert not opened.frames(np.arange(opened.rows)).any()
  gate.release()
  opened.wait([2])
  assert opened.packed == [2]
  opened.prefer([4])
  gate.release(2)  # Another shard is at the gate already.
  deadline = time.monotonic() + 60
  while len(opened.packed) < 3:
    assert time.monotonic() < deadline
    time.sleep(0.01)
  assert 4 in opened.packed
  frames = opened.frames(np.arange(opened.rows))[:, 0, 0]
  present = [i for i, row in enumerate(rows) if frames[i] == row.frame != 0]
  assert len(present) > 80
  seen = {int(np.searchsorted(opened.starts, i, 'right')) - 1 for i in present}
  assert [opened.suffixes[i] for i in sorted(seen)] == opened.packed
  gate.release(len(opened.suffixes))
  opened.wait()
  assert stores.rows_in(opened) == rows


def test_background_errors_are_raised(tmp_path, caplog):
  # The damage is beyond the rows that training of the dictionary reads.
  frames = np.zeros((1300, 84, 84), np.uint8)
  frames[1000:] = np.random.default_rng(0).integers(0, 256, (300, 84, 84))
  for suffix in range(3):
    add_count = 1300 * (suffix + 1) - 1
    packing.write(tmp_path, suffix, add_count, np.zeros(1300), frames)
  path = tmp_path / shard_files.file_name('observation', 1)
  run_files.flip_a_bit(path, -path.stat().st_size // 3)
  opened = store.Store(str(tmp_path))
  opened.wait([0])
  with pytest.raises(ValueError, match='observation_ckpt.1.gz is damaged'):
    opened.wait()
  skipping = stores.open_store(tmp_path, skip_damaged=True)
  assert skipping.packed == [0, 2] and skipping.damaged == {1}
  assert 'Shard 1 is not used' in caplog.text


@pytest.mark.parametrize('on_disk', [False, True])
def test_a_failed_read_is_no_damage_to_skip(tmp_path, monkeypatch, on_disk):
  shards.write_run(tmp_path / 'logs', [30] * 6, capacity=50)
  cache = str(tmp_path / 'cache') if on_disk else None
  logs = str(tmp_path / 'logs')
  opened = store.Store(logs, None, cache, skip_damaged=True, pack=False)
  fail = mock.Mock(side_effect=shard_reader.ReadError('x.gz cannot be read.'))
  monkeypatch.setattr(shard_reader, 'iterate_rows', fail)
  opened.start()
  with pytest.raises(OSError, match='^x.gz cannot be read'):
    opened.wait()
  assert not opened.damaged


def test_shard_changed_since_opening_is_an_error(tmp_path, gate):
  shards.write_run(tmp_path, [30] * 6, capacity=50)
  opened = store.Store(str(tmp_path))
  other = tmp_path / 'other'
  shards.write_run(other, [25] * 8, capacity=50)
  stores.copy_shard(other, 2, 2, to=tmp_path)
  gate.release(len(opened.suffixes))
  with pytest.raises(ValueError, match='Shard 2 .* has changed'):
    opened.wait()


def test_a_shard_changed_before_another_process_packed_it_is_an_error(tmp_path):
  logs, cache = tmp_path / 'logs', str(tmp_path / 'cache')
  shards.write_run(logs, [30] * 6, capacity=50)
  opened = store.Store(str(logs), directory=cache, pack=False)
  shutil.rmtree(logs)
  shards.write_run(logs, [25] * 8, capacity=50)
  stores.open_store(logs, directory=cache).close()
  opened.start()
  with pytest.raises(ValueError, match='Shard 0 .* has changed since'):
    opened.wait()


def test_a_dictionary_stays_where_readers_have_its_address(tmp_path):
  shards.write_run(tmp_path / 'logs', [300] * 3, capacity=400)
  logs, cache = str(tmp_path / 'logs'), str(tmp_path / 'cache')
  stores.open_store(logs, suffixes=[0], directory=cache).close()
  opened = store.Store(logs, directory=cache, pack=False)
  address, size = opened.frame_tables.calls[1:3]
  opened.start()
  opened.wait()
  assert opened.frame_tables.calls[1] == address and size > 0


def test_a_preloaded_cache_is_in_memory_at_once(tmp_path):
  shards.write_run(tmp_path / 'logs', [30], capacity=50)
  for _ in range(2):
    cache = {'directory': str(tmp_path / 'cache'), 'preload': True}
    opened = stores.open_store(tmp_path / 'logs', **cache)
    assert [packed.file for packed in opened._packed] == [None]


def test_closing_stops_packing(tmp_path, gate):
  shards.write_run(tmp_path, [30] * 6, capacity=50)
  opened = store.Store(str(tmp_path), pack=False)
  with pytest.raises(ValueError, match='has not begun'):
    opened.wait()
  opened.start()
  with mock.patch.object(opened._thread, 'is_alive', lambda: False):
    with pytest.raises(ValueError, match='this one was forked from'):
      opened.wait()
  threading.Timer(0.2, gate.release).start()
  started = time.monotonic()
  opened.close()
  assert time.monotonic() - started < 20
  with pytest.raises(ValueError, match='was stopped by close'):
    opened.wait()
