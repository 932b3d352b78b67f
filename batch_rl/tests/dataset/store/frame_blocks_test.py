"""Frames that are damaged, or disappear while in use, are an error."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import shard_reader
from batch_rl.tests import shards
from batch_rl.tests.dataset.store import stores

LENGTHS = (1, 5, 16)


@pytest.fixture(scope='module')
def intact(tmp_path_factory):
  """The directory of a store of 149 rows, and all its windows by length."""
  logs = tmp_path_factory.mktemp('logs')
  shards.write_run(logs, [30] * 5, capacity=50)
  directory = tmp_path_factory.mktemp('run') / 'store'
  made = store.convert(str(logs), str(directory))
  rows = np.arange(made.rows)
  return directory, {length: made.windows(rows, length) for length in LENGTHS}


@pytest.fixture
def copy(intact, tmp_path):
  """A function that returns the directory of a new copy of the store."""

  def copy(i=0):
    return shutil.copytree(intact[0], tmp_path / f'store-{i}')

  return copy


def test_no_damage_to_blocks_is_silent(intact, copy):
  """Damage is found on opening, or by every window that needs the block."""
  directory, (_, expected) = copy(), intact
  path = directory / 'shard-1.bin'
  content = path.read_bytes()
  random = np.random.default_rng(0)
  found = 0
  for i in range(60):
    damaged = bytearray(content)
    at = random.integers(len(content))
    if i % 4:
      damaged[at] ^= 1 << random.integers(8)
    else:
      damaged[at : at + 40] = damaged[at - 40 : at][: len(content) - at]
    path.write_bytes(damaged)
    try:
      opened = store.Store(str(directory), preload=bool(i % 2))
    except ValueError as error:
      assert 'shard-1.bin cannot be used' in str(error)
      continue
    sampler = sampler_lib.Sampler(opened, stack_size=4)
    assert sampler.wait_until_compiled()
    errors = 0
    for length in LENGTHS:
      for row in range(45, 105, length):
        rows = np.arange(row, row + length)
        try:
          if length == 1:
            frames = opened.frames(rows)
          elif length == 5 and i % 2:
            frames = sampler.read(rows[3:4])[0].windows[0]
          else:
            frames = opened.windows(rows[:1], length)[0]
        except shard_reader.DataError as error:
          assert 'shard-1.bin is damaged' in str(error)
          assert f'convert {opened._directory.shards_dir} again' in str(error)
          errors += 1
          continue
        np.testing.assert_array_equal(frames, expected[length][row])
    found += bool(errors)
  assert found > 5


def test_damaged_memory_is_an_error(tmp_path):
  shards.write_run(tmp_path, [30] * 3, capacity=50)
  opened = stores.open_store(tmp_path)
  opened._packed[0].blocks[3] ^= 16
  with pytest.raises(
    shard_reader.DataError,
    match=r'Shard 0 of .* in memory, is damaged \(.*\); start again\.',
  ):
    opened.windows(np.arange(10), 5)
  with pytest.raises(shard_reader.DataError, match='Shard 0'):
    opened.raise_error()


@pytest.mark.parametrize('size', [0, 10])
def test_a_store_truncated_before_it_is_read_is_an_error(copy, size):
  directory = copy()
  opened = store.Store(str(directory))
  os.truncate(directory / 'shard-1.bin', size)
  for rows in ([60], [60, 1], range(49, 99)):
    with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
      opened.windows(np.array(rows), 2)
  with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
    opened.frames(np.arange(149))
  assert opened.windows(np.arange(100, 140), 2).any()  # Of another shard.


_SAMPLE_WHILE_TRUNCATED = """
import concurrent.futures, os, sys, time
import numpy as np
from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler

opened = store.Store(sys.argv[1])
rows = np.arange(opened.rows)
expected = opened.windows(rows, 5)
compiled = sampler.Sampler(opened, stack_size=4)
assert compiled.wait_until_compiled()

def sample(seed):
  random = np.random.default_rng(seed)
  while True:
    some = random.integers(opened.rows - 3, size=32)
    if seed % 2:
      windows = compiled.read(some + 3)[0].windows
    else:
      windows = opened.windows(some, 5)
    assert (windows == expected[some]).all()

with concurrent.futures.ThreadPoolExecutor(4) as threads:
  samplers = [threads.submit(sample, seed) for seed in range(4)]
  time.sleep(0.2)
  os.truncate(sys.argv[1] + '/shard-1.bin', int(sys.argv[2]))
  for sampler in samplers:
    print(repr(sampler.exception()))
"""


def test_a_store_truncated_while_sampled_is_an_error(copy):
  for size in (0, 10):
    done = subprocess.run(
      [sys.executable, '-c', _SAMPLE_WHILE_TRUNCATED, copy(size), str(size)],
      capture_output=True,
      text=True,
      timeout=100,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all('shard-1.bin is damaged' in line for line in lines)
    assert all(line.startswith('DataError') for line in lines)
