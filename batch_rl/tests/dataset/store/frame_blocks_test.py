"""Frames that are damaged, or disappear while in use, are an error."""

import os

import numpy as np
import pytest

from batch_rl.dataset import store
from batch_rl.dataset.shards import shard_reader
from batch_rl.tests import shards
from batch_rl.tests.dataset.store import stores


@pytest.fixture
def directory(tmp_path):
  """The directory of a store of 149 rows."""
  shards.write_run(tmp_path / 'logs', [30] * 5, capacity=50)
  store.convert(str(tmp_path / 'logs'), str(tmp_path / 'store'))
  return tmp_path / 'store'


def test_damaged_memory_is_an_error(tmp_path):
  shards.write_run(tmp_path, [30] * 3, capacity=50)
  opened = stores.open_store(tmp_path)
  opened.raise_error()
  opened._packed[0].blocks[3] ^= 16
  message = r'Shard 0 of .* in memory, is damaged \(.*\); start again\.'
  with pytest.raises(shard_reader.DataError, match=message):
    opened.windows(np.arange(10), 5)
  with pytest.raises(shard_reader.DataError, match='Shard 0'):
    opened.raise_error()


@pytest.mark.parametrize('size', [0, 10])
def test_a_store_truncated_before_it_is_read_is_an_error(directory, size):
  opened = store.Store(str(directory))
  os.truncate(directory / 'shard-1.bin', size)
  for rows in ([60], [60, 1], range(49, 99)):
    with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
      opened.windows(np.array(rows), 2)
  with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
    opened.frames(np.arange(149))
  assert opened.windows(np.arange(100, 140), 2).any()  # Of another shard.


_SAMPLE_WHILE_TRUNCATED = """
import concurrent.futures, os, shutil, sys, time
import numpy as np
from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler
def sample(seed):
  random = np.random.default_rng(seed)
  while True:
    some = random.integers(opened.rows - 3, size=32)
    read = compiled.read(some + 3)[0].windows if seed % 2 else opened.windows(some, 5)
    assert (read == expected[some]).all()
for size in 10, 0:
  directory = shutil.copytree(sys.argv[1], f'{sys.argv[1]}-{size}')
  opened = store.Store(directory)
  rows = np.arange(opened.rows)
  expected = opened.windows(rows, 5)
  compiled = sampler.Sampler(opened, stack_size=4)
  assert compiled.wait_until_compiled()
  with concurrent.futures.ThreadPoolExecutor(4) as threads:
    samplers = [threads.submit(sample, seed) for seed in range(4)]
    time.sleep(0.2)
    os.truncate(f'{directory}/shard-1.bin', size)
    for sampling in samplers:
      print(repr(sampling.exception()))
"""


def test_a_store_truncated_while_sampled_is_an_error(directory, run_code):
  """In a process of its own, which the signal of such a read would end."""
  lines = run_code(_SAMPLE_WHILE_TRUNCATED, directory).stdout.splitlines()
  assert len(lines) == 8
  assert all('shard-1.bin is damaged' in line for line in lines)
  assert all(line.startswith('DataError') for line in lines)
