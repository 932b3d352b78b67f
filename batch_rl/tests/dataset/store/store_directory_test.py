"""Stores on disk: caches, conversions, damage, and interrupted processes."""

import concurrent.futures
import errno
import json
import logging
import os
import resource
import shutil
import signal
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import packed_shard, store_directory
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.dataset.store import stores
from batch_rl.utils import progress_bars


def test_cache_is_used_until_shards_change(tmp_path, packings, caplog):
  logs, cache = tmp_path / 'logs', str(tmp_path / 'cache')
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  stores.open_store(logs, directory=cache).close()  # Ends its lock.
  assert packings == [0, 1, 2, 3]
  del packings[:]
  name = shard_files.file_name('observation', 1)
  os.utime(logs / name, (1, 1))  # As after a copy.
  assert stores.rows_in(stores.open_store(logs, directory=cache)) == rows
  assert packings == []
  # The next start need not hash it again.
  packed = store_directory.StoreDirectory(cache).open(1)
  assert packed.columns.sources[name]['mtime_ns'] == 10**9
  shutil.rmtree(logs)
  changed = shards.write_run(logs, [30] * 3 + [27] * 4, capacity=50)
  assert stores.rows_in(stores.open_store(logs, directory=cache)) == changed
  assert 2 in packings and 0 not in packings
  assert caplog.text.count('Shard 2 is packed again: it has changed') == 1


def test_damaged_cache_is_packed_again(tmp_path, packings, caplog):
  logs, cache = tmp_path / 'logs', tmp_path / 'cache'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  stores.open_store(logs, directory=str(cache))
  binary = cache / 'shard-0.bin'
  binary.write_bytes(binary.read_bytes()[:-1])
  (cache / 'shard-1.json').write_text('{"suffix": 1')
  os.remove(cache / 'shard-2.bin')
  run_files.flip_a_bit(cache / 'shard-3.bin', -1)  # in the terminals
  del packings[:]
  assert stores.rows_in(stores.open_store(logs, directory=str(cache))) == rows
  assert packings == [0, 1, 2, 3]
  assert 'Shard 1 is packed again' in caplog.text
  assert 'Shard 2 is packed again: No such file or directory.' in caplog.text


def test_a_store_needs_its_own_manifest(tmp_path):
  logs, other, directory = (tmp_path / name for name in ('a', 'b', 'store'))
  shards.write_run(logs, [30] * 6, 50)
  shards.write_run(other, [20] * 9, 50)
  store.convert(str(logs), str(directory))
  path = directory / manifests.FILE_NAME
  shutil.copy(other / manifests.FILE_NAME, path)
  with pytest.raises(ValueError, match='is not the one .* restore it, or'):
    store.Store(str(directory))
  path.unlink()
  with pytest.raises(ValueError, match='is missing; .* convert .* again'):
    store.Store(str(directory))
  store.convert(str(logs), str(directory))
  assert path.read_bytes() == (logs / manifests.FILE_NAME).read_bytes()
  assert store.Store(str(directory)).packed


@pytest.fixture(scope='module')
def intact(tmp_path_factory):
  """The directory of a store of 396 rows, and all its windows of 5 frames."""
  logs = tmp_path_factory.mktemp('logs')
  shards.write_run(logs, [30] * 12, capacity=200)
  directory = tmp_path_factory.mktemp('run') / 'store'
  made = store.convert(str(logs), str(directory))
  return directory, made, made.windows(np.arange(made.rows), 5)


@settings(max_examples=50)
@given(
  name=st.sampled_from(
    [*['shard-1.bin'] * 3, 'shard-1.json', 'store.json', 'dictionary']
  ),
  kind=st.sampled_from(['truncate', 'repeat', 'change']),
  preload=st.booleans(),
  place=st.floats(0, 1, exclude_max=True),
)
def test_no_silent_damage(tmp_path_factory, intact, name, kind, preload, place):
  """Damage is found on opening, or by every read that needs the damaged block."""
  directory = tmp_path_factory.mktemp('damaged') / 'store'
  shutil.copytree(intact[0], directory)
  path = directory / name
  content = path.read_bytes()
  # Times in the files make their lengths vary from run to run.
  at = int(place * len(content))
  rest = {
    'truncate': b'',
    'repeat': (content[max(0, at - 40) :])[: len(content) - at],
    'change': bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :],
  }[kind]
  path.write_bytes(content[:at] + rest)
  if path.read_bytes().rstrip() == content.rstrip():
    return  # JSON may lack its last line break.
  if 'shard' in name:
    assert str(path) in packed_shard.verify_packed(str(directory), 1)
  try:
    opened = store.Store(str(directory), preload=preload)
  except ValueError as error:
    assert str(directory) in str(error) and '\n' not in str(error)
    return
  assert name == 'shard-1.bin'  # Descriptions and dictionary have hashes.
  _, made, expected = intact
  assert opened.action.tolist() == made.action.tolist()
  assert opened.ends.tolist() == made.ends.tolist()
  compiled = sampler.Sampler(opened, stack_size=4)
  assert compiled.wait_until_compiled()
  for row in range(195, 255, 10):
    for read in (
      lambda rows: opened.frames(rows),
      lambda rows: opened.windows(rows[:1], 5)[0],
      lambda rows: compiled.read(rows[3:4])[0].windows[0],
    ):
      try:
        found = read(np.arange(row, row + 5))
      except shard_reader.DataError as error:
        assert f'{path} is damaged' in str(error) and '\n' not in str(error)
        assert f'convert {made.data_dir} again' in str(error)
      else:
        np.testing.assert_array_equal(found, expected[row])


@pytest.mark.parametrize('moment', [0.0, 0.6])
def test_killed_conversion_continues(tmp_path, moment, packings, run_code):
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
  run_code(code, returncode=-signal.SIGKILL)
  packed = {int(p.stem[6:]) for p in directory.glob('shard-*.json')}
  opened = store.convert(str(logs), str(directory))
  assert stores.rows_in(opened) == rows
  assert set(packings) == set(opened.suffixes) - packed
  assert not list(directory.glob('*.tmp'))
  for suffix in opened.suffixes:
    assert packed_shard.verify_packed(str(directory), suffix) is None


def test_two_conversions_at_once(tmp_path, gate, caplog):
  """A second conversion, or a training run, waits and uses the result."""
  caplog.set_level(logging.INFO, 'absl')
  logs, directory = tmp_path / 'replay_logs', tmp_path / 'store'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  first = store.Store(str(logs), directory=str(directory))
  gate.release()
  first.wait([0])
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    converted = thread.submit(store.convert, str(logs), str(directory))
    second = store.Store(str(logs), directory=str(directory))
    gate.release()
    second.wait([0, 1])
    gate.release(2)
    second.wait()
    assert f'are being packed by process {os.getpid()}' in caplog.text
    for made in (second, converted.result()):
      assert stores.rows_in(made) == rows


def test_unusable_directories_are_refused(tmp_path):
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [30] * 2, capacity=50)
  (tmp_path / 'file').write_text('')
  for target, message in (
    ('gs://bucket/store', 'remote'),
    (f'{tmp_path}/file', 'Not a directory'),
    ('/proc/store', 'cannot be written'),
    (str(logs), 'something else'),
    ('', 'is empty'),
  ):
    with pytest.raises(ValueError, match=message):
      store.convert(str(logs), target)
  # A conversion was killed while it wrote these.
  (tmp_path / 'store').mkdir()
  for name in ('dictionary.tmp', 'store.json.0123456789abcdef.tmp'):
    (tmp_path / 'store' / name).write_text('')
  other = tmp_path / 'other'
  shards.write_run(other, [20] * 2, capacity=50)
  store.convert(str(logs), str(tmp_path / 'store'))
  with pytest.raises(ValueError, match='is the store of .*replay_logs, not of'):
    store.convert(str(other), str(tmp_path / 'store'))
  with pytest.raises(ValueError, match='is already a store'):
    store.convert(str(tmp_path / 'store'), str(tmp_path / 'again'))
  before = stores.rows_in(stores.open_store(tmp_path / 'store'))
  shutil.rmtree(logs)
  shards.write_run(logs, [40], capacity=50)
  with pytest.raises(ValueError, match='for another log choose a new'):
    store.convert(str(logs), str(tmp_path / 'store'))
  assert stores.rows_in(stores.open_store(tmp_path / 'store')) == before


def test_full_disk_leaves_no_partial_shard(tmp_path):
  """A limit on file sizes simulates the full disk."""
  logs, directory = tmp_path / 'logs', tmp_path / 'store'
  shards.write_images(logs)
  with run_files.limited(resource.RLIMIT_FSIZE, 100_000):
    with pytest.raises(ValueError, match='File too large'):
      store.convert(str(logs), str(directory))
  assert not list(directory.glob('shard-*'))
  store.convert(str(logs), str(directory))
  assert json.loads((directory / 'store.json').read_text())['shards'] == [0, 1]


def test_a_conversion_continues_without_a_removed_shard(tmp_path, monkeypatch):
  logs, directory = tmp_path / 'replay_logs', tmp_path / 'store'
  shards.write_run(logs, [30] * 8, capacity=50)
  with monkeypatch.context() as patch:
    stores.damage_frames(patch, 2)
    with pytest.raises(ValueError, match='shard 2 are damaged'):
      store.convert(str(logs), str(directory))
  ring_logs.remove_shard(logs, 2)
  with mock.patch.object(progress_bars, 'bar') as bar:
    made = store.convert(str(logs), str(directory))
  total, update = bar.call_args.kwargs['total'], bar().__enter__().update
  counts = [call.args[0] for call in update.call_args_list]
  # Shards 0 and 1 are packed already.
  assert sum(counts) == total == 50 * (len(made.suffixes) - 2)
  assert store_directory.list_shards(str(directory)) == made.suffixes
  assert stores.rows_in(stores.open_store(directory)) == stores.rows_in(made)


def test_a_conversion_takes_a_manifest_that_came_later(tmp_path):
  logs, directory = tmp_path / 'replay_logs', tmp_path / 'store'
  shards.write_run(logs, [30] * 4, capacity=50)
  manifest = manifests.read(str(logs))
  (logs / manifests.FILE_NAME).unlink()
  store.convert(str(logs), str(directory))
  manifests.write(str(logs), manifest)
  store.convert(str(logs), str(directory))
  assert manifests.read(str(directory)) == manifest
  # A log under way that was restored before its last shard.
  ring_logs.remove_shard(logs, max(shard_files.list_suffixes(str(logs))))
  (logs / shard_files.PARTIAL).mkdir()
  with pytest.raises(ValueError, match='is unfinished, and lacks shard'):
    store.convert(str(logs), str(directory))


def test_a_store_replaces_the_shards_and_may_lack_some(tmp_path, caplog):
  logs, directory = tmp_path / 'run' / 'replay_logs', tmp_path / 'store'
  rows = shards.write_run(logs, [30] * 6, capacity=50)
  store.convert(str(logs), str(directory))
  shutil.rmtree(logs)
  assert stores.rows_in(stores.open_store(directory)) == rows
  assert stores.rows_in(stores.open_store(directory, suffixes=[0])) == rows[:49]
  assert (directory / 'manifest.json').exists()
  os.remove(directory / 'shard-2.json')
  with pytest.raises(ValueError, match='incomplete store: shards 2 are'):
    store.Store(str(directory))
  assert stores.open_store(directory, skip_damaged=True).suffixes == [0, 1, 3]
  assert 'shards 2 are missing' in caplog.text
  for path in directory.glob('shard-*.json'):
    path.unlink()
  with pytest.raises(ValueError, match='shards 0, 1, 2, 3 are missing'):
    stores.open_store(directory, skip_damaged=True)


@pytest.mark.parametrize('name', ['shard-0.bin', 'dictionary'])
def test_a_failed_read_leaves_the_cache(tmp_path, monkeypatch, packings, name):
  logs, cache = tmp_path / 'logs', tmp_path / 'cache'
  shards.write_run(logs, [30] * 2, capacity=50)
  stores.open_store(logs, directory=str(cache)).close()
  del packings[:]
  original = open

  def fail(path, *args, **kwargs):
    if str(path).endswith(name):
      raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return original(path, *args, **kwargs)

  monkeypatch.setattr('builtins.open', fail)
  message = f'{name} cannot be read: Input/output error.$'
  for skip_damaged in (False, True):
    with pytest.raises((ValueError, shard_reader.ReadError), match=message):
      store.Store(str(logs), None, str(cache), skip_damaged=skip_damaged)
  assert packings == []
