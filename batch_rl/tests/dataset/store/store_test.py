"""The store: the same rows as the shards, however they lie and whatever happens."""

import hashlib
import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import lz4_blocks, packed_shard, store
from batch_rl.tests import shards

SAMPLE = 'data/Pong/1/replay_logs'


def open_store(*args, **kwargs):
  made = store.Store(*map(str, args), **kwargs)
  made.wait()
  return made


def rows_in(made):
  """All rows of a store of 2 x 2 frames, in the tests' form."""
  frames = made.frames(np.arange(made.rows))
  assert (frames == frames[:, :1, :1]).all()
  terminal = np.isin(np.arange(made.rows), made.ends)
  return [
    shards.Row(int(f), int(a), float(r), int(t))
    for f, a, r, t in zip(
      frames[:, 0, 0], made.action, made.reward, terminal, strict=True
    )
  ]


def hashes(directory):
  return {
    str(path): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(directory.rglob('*'))
    if path.is_file()
  }


@settings(max_examples=40, deadline=None)
@given(
  lengths=st.lists(st.integers(1, 40), min_size=1, max_size=10),
  capacity=st.integers(8, 60),
  on_disk=st.booleans(),
  length=st.integers(1, 30),
)
def test_rows_are_those_of_the_shards_in_time_order(
  tmp_path_factory, lengths, capacity, on_disk, length
):
  directory = tmp_path_factory.mktemp('run')
  shards.write_run(directory / 'logs', lengths, capacity)
  before = hashes(directory)
  cache = directory / 'cache' if on_disk else None
  made = store.Store(str(directory / 'logs'), directory=cache and str(cache))
  made.wait()
  rows = shards.read_run(directory / 'logs')
  assert rows_in(made) == rows
  frames = np.array([row.frame for row in rows])
  starts = np.arange(-2, len(rows) + 2)
  windows = made.windows(starts, length)[..., 0, 0]
  for start, window in zip(starts, windows, strict=True):
    if start >= 0:
      expected = frames[start : start + length]
      padded = np.pad(expected, (0, length - len(expected)))
      assert window.tolist() == padded.tolist()
  if on_disk:
    after = hashes(directory)
    assert {path: after[path] for path in before} == before


def test_real_frames(tmp_path):
  made = open_store(SAMPLE, suffixes=[9, 10])
  [nine, ten] = made.placements
  assert made.rows == nine.rows + ten.rows == 30_000 + 12_041
  rows = []
  for placement in made.placements:
    loaded = shard_reader.read_shard(SAMPLE, placement.suffix)
    order = (placement.start + np.arange(placement.rows)) % placement.capacity
    rows.append(loaded.columns['observation'][order])
  frames = np.concatenate(rows)
  np.testing.assert_array_equal(made.frames(np.arange(made.rows)), frames)
  starts = np.random.default_rng(0).integers(0, made.rows - 5, 500)
  starts[:8] = nine.rows - np.arange(8)  # across the seam
  np.testing.assert_array_equal(
    made.windows(starts, 5), frames[starts[:, None] + np.arange(5)]
  )
  assert made.nbytes / made.rows < 100  # of 7,065


def test_frames_of_any_type(tmp_path):
  """As CartPole's: (4, 1) float64."""
  memory = circular_replay_buffer.OutOfGraphReplayBuffer(
    (4, 1), 1, 50, 8, observation_dtype=np.float64
  )
  random = np.random.default_rng(0)
  for _ in range(30):
    memory.add(random.normal(size=(4, 1)), 300, 0.5, 0)
  memory.save(str(tmp_path), 0)
  made = open_store(tmp_path)
  np.testing.assert_array_equal(
    made.frames(np.arange(30)), memory._store['observation'][:30]
  )
  assert set(made.action) == {300} and set(made.reward) == {0.5}


def test_without_direct_access_to_lz4_the_blocks_are_the_same(
  tmp_path, monkeypatch
):
  direct = open_store(SAMPLE, suffixes=[10])
  monkeypatch.setattr(lz4_blocks, '_library', lambda: None)
  package = open_store(SAMPLE, suffixes=[10])
  rows = np.arange(0, package.rows - 5, 7)
  np.testing.assert_array_equal(
    package.windows(rows, 5), direct.windows(rows, 5)
  )
  assert package.nbytes == direct.nbytes


# --- shards that do not simply follow one another -----------------------------


def copy_shard(directory, old, new):
  for name in shard_files.FILES:
    shutil.copy(
      directory / shard_files.file_name(name, old),
      directory / shard_files.file_name(name, new),
    )


def remove_shard(directory, suffix):
  for name in shard_files.FILES:
    os.remove(directory / shard_files.file_name(name, suffix))


def test_missing_rows_are_a_seam(tmp_path, caplog):
  rows = shards.write_run(tmp_path, [30] * 6, capacity=50)
  remove_shard(tmp_path, 1)
  made = open_store(tmp_path)
  assert 'no shard between 0 and 2' in caplog.text
  assert rows_in(made) == rows[:49] + rows[99:]
  [window] = made.windows(np.array([47]), 4)[..., 0, 0]
  assert window.tolist() == [rows[47].frame, rows[48].frame, 0, 0]


def test_a_lost_dump_is_noticed(tmp_path, caplog):
  """As the original logger lost them: numbers go on, counts jump."""
  rows = shards.write_run(tmp_path, [30] * 8, capacity=50)
  remove_shard(tmp_path, 1)
  for suffix in (1, 2):
    copy_shard(tmp_path, suffix + 1, suffix)
  made = open_store(tmp_path, suffixes=[0, 1, 2])
  assert '50 rows are missing between shards 0 and 1' in caplog.text
  assert rows_in(made) == rows[:49] + rows[99:199]


def test_a_shard_that_is_there_twice_is_used_once(tmp_path, caplog):
  rows = shards.write_run(tmp_path, [30] * 6, capacity=50)
  last = max(shard_files.list_suffixes(str(tmp_path)))
  copy_shard(tmp_path, last, last + 1)
  copy_shard(tmp_path, last - 1, last)
  made = open_store(tmp_path)
  assert 'repeats 50 rows of shard' in caplog.text
  assert rows_in(made) == rows


def test_checkpoints_of_a_growing_ring_overlap(tmp_path):
  """Dopamine's own checkpoints hold what the ring holds, again and again."""
  memory = circular_replay_buffer.OutOfGraphReplayBuffer((2, 2), 4, 60, 8)
  episodes = shards.make_episodes([27, 31, 44, 29])
  rows, suffix = [], 0
  for episode in episodes:
    for row in episode:
      shards.add_row(memory, row)
      rows.append(row)
      if len(rows) % 25 == 0:
        memory.save(str(tmp_path), suffix)
        suffix += 1
  made = open_store(tmp_path)
  [*whole] = [row for row in rows_in(made) if row.frame]
  assert whole == rows[:125]
  assert all(p.follows for p in made.placements[1:])


def test_two_runs_in_one_directory_are_refused(tmp_path):
  shards.write_run(tmp_path / 'a', [30] * 8, capacity=50)
  shards.write_run(tmp_path / 'b', [30] * 8, capacity=40)
  for name in shard_files.FILES:
    shutil.copy(tmp_path / 'b' / shard_files.file_name(name, 2), tmp_path / 'a')
  with pytest.raises(ValueError, match='50 and 40 rows: are these two runs'):
    store.Store(str(tmp_path / 'a'))
  copy_shard(tmp_path / 'b', 0, 2)
  with pytest.raises(ValueError, match='add_count falls from .* in shard 1'):
    store.Store(str(tmp_path / 'b'))


# --- in the background --------------------------------------------------------


def test_shards_arrive_one_by_one_those_that_are_preferred_first(
  tmp_path, gate
):
  rows = shards.write_run(tmp_path, [30] * 8, capacity=50)
  made = store.Store(str(tmp_path), pack=False)
  made.start(first=[2])
  assert made.packed == [] and made.rows == len(rows)
  assert not made.frames(np.arange(made.rows)).any()
  gate.release()
  made.wait(count=1)
  assert made.packed == [2]
  made.prefer([4])
  gate.release()
  made.wait(count=2)
  if made.packed != [2, 4]:  # another one was at the gate already
    gate.release()
    made.wait(count=3)
  assert 4 in made.packed and len(made.packed) <= 3
  frames = made.frames(np.arange(made.rows))[:, 0, 0]
  present = [i for i, row in enumerate(rows) if frames[i] == row.frame != 0]
  assert len(present) > 80
  seen = {int(np.searchsorted(made.starts, i, 'right')) - 1 for i in present}
  assert [made.suffixes[i] for i in sorted(seen)] == made.packed
  for _ in made.suffixes:
    gate.release()
  made.wait()
  assert rows_in(made) == rows


def test_what_fails_in_the_background_is_raised(tmp_path, caplog):
  for suffix in (8, 9, 10):
    for name in shard_files.FILES:
      shutil.copy(f'{SAMPLE}/{shard_files.file_name(name, suffix)}', tmp_path)
  path = tmp_path / shard_files.file_name('observation', 9)
  content = bytearray(path.read_bytes())
  content[-len(content) // 3] ^= 255
  path.write_bytes(content)
  made = store.Store(str(tmp_path))
  made.wait([8])
  with pytest.raises(ValueError, match='observation_ckpt.9.gz is damaged'):
    made.wait()
  skipping = open_store(tmp_path, skip_damaged=True)
  assert skipping.packed == [8, 10] and skipping.damaged == {9}
  assert 'Shard 9 is not used' in caplog.text


@pytest.mark.parametrize('name', ['reward', 'add_count', 'observation'])
def test_damage_that_shows_at_once(tmp_path, name, caplog):
  shards.write_run(tmp_path, [30] * 6, capacity=50)
  (tmp_path / shard_files.file_name(name, 1)).write_bytes(b'')
  with pytest.raises(ValueError, match=rf'{name}_ckpt.1.gz is damaged'):
    store.Store(str(tmp_path))
  os.remove(tmp_path / shard_files.file_name('action', 2))
  with pytest.raises(ValueError, match='Shard 2 .* incomplete'):
    store.Store(str(tmp_path))
  made = open_store(tmp_path, skip_damaged=True)
  assert made.suffixes == [0, 3]
  assert 'Shard 1 is not used' in caplog.text


def test_a_shard_that_changes_under_way_is_an_error(tmp_path, gate):
  shards.write_run(tmp_path, [30] * 6, capacity=50)
  made = store.Store(str(tmp_path))
  other = tmp_path / 'other'
  shards.write_run(other, [25] * 8, capacity=50)
  for name in shard_files.FILES:
    shutil.copy(other / shard_files.file_name(name, 2), tmp_path)
  for _ in made.suffixes:
    gate.release()
  with pytest.raises(ValueError, match='Shard 2 .* has changed'):
    made.wait()


# --- on disk ------------------------------------------------------------------


@pytest.fixture
def packings(monkeypatch):
  """Numbers of the shards that are packed."""
  done = []
  original = packed_shard.pack

  def pack(data_dir, columns, *args, **kwargs):
    done.append(columns.suffix)
    return original(data_dir, columns, *args, **kwargs)

  monkeypatch.setattr(packed_shard, 'pack', pack)
  return done


def test_a_cache_is_used_while_the_shards_are_the_same(
  tmp_path, packings, caplog
):
  logs, cache = tmp_path / 'logs', str(tmp_path / 'cache')
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  open_store(logs, directory=cache)
  assert packings == [0, 1, 2, 3]
  del packings[:]
  os.utime(logs / shard_files.file_name('observation', 1))  # copied, say
  assert rows_in(open_store(logs, directory=cache)) == rows
  assert packings == []
  shutil.rmtree(logs)
  changed = shards.write_run(logs, [30] * 3 + [27] * 4, capacity=50)
  assert rows_in(open_store(logs, directory=cache)) == changed
  assert 2 in packings and 0 not in packings
  assert caplog.text.count('Shard 2 is packed again: it has changed') == 1


def test_a_damaged_cache_is_made_again(tmp_path, packings, caplog):
  logs, cache = tmp_path / 'logs', tmp_path / 'cache'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  open_store(logs, directory=str(cache))
  binary = cache / 'shard-0.bin'
  binary.write_bytes(binary.read_bytes()[:-1])
  (cache / 'shard-1.json').write_text('{"suffix": 1')
  os.remove(cache / 'shard-2.bin')
  content = bytearray((cache / 'shard-3.bin').read_bytes())
  content[-1] ^= 1  # in the terminals
  (cache / 'shard-3.bin').write_bytes(content)
  del packings[:]
  assert rows_in(open_store(logs, directory=str(cache))) == rows
  assert packings == [0, 1, 2, 3]
  assert 'Shard 1 is packed again' in caplog.text


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_store_never_crashes(tmp_path_factory, data):
  """A flipped bit of frames may pass; `verify` finds it. Nothing else may."""
  logs = tmp_path_factory.mktemp('run')
  shards.write_run(logs, [30] * 2, capacity=50)
  directory = tmp_path_factory.mktemp('store')
  rows = rows_in(store.convert(str(logs), str(directory)))
  names = ['shard-0.bin', 'shard-0.json', 'store.json', 'dictionary']
  path = directory / data.draw(st.sampled_from(names))
  content = bytearray(path.read_bytes())
  if not content:
    return
  # Times in the files make their lengths vary.
  at = data.draw(st.integers(0, 1 << 20)) % len(content)
  if data.draw(st.booleans()):
    content = content[:at]
  else:
    content[at] ^= 1 << data.draw(st.integers(0, 7))
  path.write_bytes(content)
  try:
    made = open_store(directory)
    frames = made.frames(np.arange(made.rows))
    made.windows(np.arange(made.rows), 5)
  except ValueError as error:
    assert '\n' not in str(error)
    return
  terminal = np.isin(np.arange(made.rows), made.ends)
  assert [r.action for r in rows] == made.action.tolist()
  assert [r.terminal for r in rows] == terminal.tolist()
  if [r.frame for r in rows] != frames[:, 0, 0].tolist():
    assert packed_shard.verify_packed(str(directory), 0)


def test_a_store_takes_the_place_of_the_shards(tmp_path):
  logs, directory = tmp_path / 'run' / 'replay_logs', tmp_path / 'store'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  store.convert(str(logs), str(directory))
  shutil.rmtree(logs)
  assert store.find_data(str(directory)) == str(directory)
  assert rows_in(open_store(directory)) == rows
  assert rows_in(open_store(directory, suffixes=[0])) == rows[:49]
  assert (directory / 'manifest.json').exists()
  os.remove(directory / 'shard-2.json')
  with pytest.raises(
    ValueError, match='incomplete store: shards 2 are missing'
  ):
    store.Store(str(directory))


@pytest.mark.parametrize('moment', [0.0, 0.3, 0.6, 0.9])
def test_a_killed_conversion_goes_on(tmp_path, moment, packings):
  logs, directory = tmp_path / 'replay_logs', tmp_path / 'store'
  rows = shards.write_run(logs, [40] * 10, capacity=50)
  code = (
    'import os, signal\n'
    'from batch_rl.dataset.store import packed_shard, store\n'
    'count = 0\n'
    'write = packed_shard.files.write_json\n'
    'def stop(path, content):\n'
    '  global count\n'
    '  count += 1\n'
    f'  if count == {2 + int(moment * 9)}:\n'
    '    os.kill(os.getpid(), signal.SIGKILL)\n'
    '  write(path, content)\n'
    'packed_shard.files.write_json = stop\n'
    f'store.convert({str(logs)!r}, {str(directory)!r})\n'
  )
  killed = subprocess.run([sys.executable, '-c', code], capture_output=True)
  assert killed.returncode == -signal.SIGKILL, killed.stderr
  there = {int(p.stem[6:]) for p in directory.glob('shard-*.json')}
  made = store.convert(str(logs), str(directory))
  assert rows_in(made) == rows
  assert set(packings) == set(made.suffixes) - there
  assert not list(directory.glob('*.tmp'))
  assert all(
    packed_shard.verify_packed(str(directory), s) is None for s in made.suffixes
  )


def test_two_conversions_at_once(tmp_path, gate, caplog):
  """The second says who is at it; a training run waits, and shares the work."""
  caplog.set_level(logging.INFO, 'absl')
  logs, directory = tmp_path / 'replay_logs', tmp_path / 'store'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  first = store.Store(str(logs), directory=str(directory))
  gate.release()
  first.wait(count=1)
  with pytest.raises(ValueError, match=f'written by process {os.getpid()}'):
    store.convert(str(logs), str(directory))
  second = store.Store(str(logs), directory=str(directory))
  for _ in range(3):
    gate.release()
  second.wait()
  assert 'is being packed by process' in caplog.text
  assert rows_in(second) == rows


def test_a_directory_that_cannot_hold_a_store(tmp_path):
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [30] * 2, capacity=50)
  (tmp_path / 'file').write_text('')
  with pytest.raises(ValueError, match='Not a directory'):
    store.convert(str(logs), str(tmp_path / 'file'))
  with pytest.raises(ValueError, match='cannot be written'):
    store.convert(str(logs), '/proc/store')
  with pytest.raises(ValueError, match='holds something else'):
    store.convert(str(logs), str(logs))
  other = tmp_path / 'other'
  shards.write_run(other, [20] * 2, capacity=50)
  store.convert(str(logs), str(tmp_path / 'store'))
  with pytest.raises(ValueError, match='is the store of .*replay_logs, not of'):
    store.convert(str(other), str(tmp_path / 'store'))
  with pytest.raises(ValueError, match='is a store already'):
    store.convert(str(tmp_path / 'store'), str(tmp_path / 'again'))


def test_a_full_disk_leaves_no_part_of_a_shard(tmp_path):
  """A limit on the size of files stands for the full disk."""
  logs, directory = tmp_path / 'logs', tmp_path / 'store'
  logs.mkdir()
  for suffix, name in itertools.product((9, 10), shard_files.FILES):
    shutil.copy(f'{SAMPLE}/{shard_files.file_name(name, suffix)}', logs)
  code = (
    'import resource, signal\n'
    'from batch_rl.dataset.store import store\n'
    'signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n'
    'resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n'
    f'store.convert({str(logs)!r}, {str(directory)!r})\n'
  )
  full = subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True
  )
  assert full.returncode == 1
  assert 'cannot be written: File too large' in full.stderr.splitlines()[-1]
  assert not list(directory.glob('shard-*'))
  store.convert(str(logs), str(directory))
  content = json.loads((directory / 'store.json').read_text())
  assert content['shards'] == [9, 10]


def test_closing_stops_the_packing(tmp_path, gate):
  shards.write_run(tmp_path, [30] * 6, capacity=50)
  made = store.Store(str(tmp_path))
  threading.Timer(0.2, gate.release).start()
  started = time.monotonic()
  made.close()
  assert time.monotonic() - started < 20
  with pytest.raises(ValueError, match='was closed'):
    made.wait()


def test_a_description_that_was_edited_is_not_trusted(tmp_path):
  logs, directory = tmp_path / 'replay_logs', tmp_path / 'store'
  shards.write_run(logs, [30] * 6, capacity=50)
  store.convert(str(logs), str(directory))
  path = directory / 'shard-1.json'
  about = json.loads(path.read_text())
  path.write_text(json.dumps({**about, 'add_count': 90}))
  assert 'is damaged' in packed_shard.verify_packed(str(directory), 1)
  with pytest.raises(ValueError, match=r'shard-1.json is damaged'):
    store.Store(str(directory))


def test_new_times_of_the_same_files_are_noted(tmp_path, monkeypatch):
  logs, cache = tmp_path / 'logs', str(tmp_path / 'cache')
  shards.write_run(logs, [30] * 2, capacity=50)
  open_store(logs, directory=cache)
  os.utime(logs / shard_files.file_name('reward', 0))
  hashed = []
  original = packed_shard.files.sha256
  monkeypatch.setattr(
    packed_shard.files, 'sha256', lambda p: hashed.append(p) or original(p)
  )
  for _ in range(3):
    open_store(logs, directory=cache)
  assert [os.path.basename(path) for path in hashed] == [
    shard_files.file_name('reward', 0)
  ]


def test_a_store_is_local():
  with pytest.raises(ValueError, match='is remote; a store is a local'):
    store.convert(SAMPLE, 'gs://bucket/store')


def test_waiting_for_what_was_not_started_is_an_error(tmp_path):
  shards.write_run(tmp_path, [30] * 2, capacity=50)
  with pytest.raises(ValueError, match='was not started'):
    store.Store(str(tmp_path), pack=False).wait()


def test_remote_shards(tmp_path):
  """TensorFlow's file system in memory stands for gs://."""
  import tensorflow as tf

  rows = shards.write_run(tmp_path / 'logs', [30] * 6, capacity=50)
  remote = 'ram://store_test/replay_logs'
  tf.io.gfile.makedirs(remote)
  for path in (tmp_path / 'logs').iterdir():
    if path.is_file():
      tf.io.gfile.copy(str(path), f'{remote}/{path.name}')
  assert rows_in(open_store(remote)) == rows
  cache = str(tmp_path / 'cache')
  assert rows_in(open_store(remote, directory=cache)) == rows
  assert rows_in(open_store(remote, directory=cache)) == rows
  with pytest.raises(ValueError, match='ram://nowhere'):
    store.Store('ram://nowhere')
