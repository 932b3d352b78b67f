"""Compiled batches: availability and threads.

`batch_kernel_test` and `sampler_test` compare batches, `frame_blocks_test` damaged stores.
"""

import os
import subprocess
import sys

import pytest

from batch_rl.dataset import store
from batch_rl.dataset.sampling import prefetch
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import shard_reader
from batch_rl.tests import known_runs, shards


@pytest.mark.parametrize('is_compiled', [True, False])
def test_a_damaged_block_is_an_error_of_no_earlier_batch(
  tmp_path, is_compiled, monkeypatch
):
  """Other threads may find it before."""
  shards.write_run(tmp_path, [40] * 40, capacity=200)
  made = known_runs.open_store(tmp_path)
  made._packed[3].blocks[3] ^= 1
  for seed in range(10):
    sampler = sampler_lib.Sampler(made, 4, seed=seed)
    sampler.wait_until_compiled()
    if not is_compiled:
      monkeypatch.setattr(sampler._compiled, '_kernel', None)
    expected = 0
    with pytest.raises(shard_reader.DataError, match='its checksum differs'):
      while True:
        sampler.batch(expected, 2)
        expected += 1

    def load(number, count, sampler=sampler):
      return sampler.batches(number, 2, count)

    feed = prefetch.Prefetcher(load, 8, 2, 4)
    found = 0
    with pytest.raises(shard_reader.DataError):
      while True:
        feed.take()
        found += 1
    assert found == expected
    feed.stop()


_SAMPLE = """
import sys
from absl import logging
logging.set_verbosity(logging.INFO)
from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler
drawn = sampler.Sampler(store.Store(sys.argv[1]), 4, seed=0)
print(drawn.wait_until_compiled(), drawn.batch(0, 32).windows.sum())
"""


def sample_in_new_process(code, *arguments, **environment):
  return subprocess.run(
    [sys.executable, '-c', code, *arguments],
    capture_output=True,
    text=True,
    timeout=300,
    env={**os.environ, **environment},
  )


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """Directory of a store of 150 rows, and the output of `_SAMPLE`."""
  logs = tmp_path_factory.mktemp('logs')
  shards.write_run(logs, [30] * 5, capacity=50)
  directory = tmp_path_factory.mktemp('small') / 'store'
  store.convert(str(logs), str(directory)).close()
  done = sample_in_new_process(_SAMPLE, str(directory))
  assert done.stdout.startswith('True ')
  assert 'WARNING' not in done.stderr
  return str(directory), done.stdout.removeprefix('True ')


@pytest.mark.parametrize(
  ('before', 'is_compiled', 'reason'),
  [
    ('sys.modules["numba"] = None', False, 'ModuleNotFoundError'),
    ('import lz4.block; lz4.block._block = lz4', True, ''),
  ],
)
def test_sampling_works_without(small, before, is_compiled, reason):
  directory, expected = small
  done = sample_in_new_process(f'import sys; {before}\n{_SAMPLE}', directory)
  assert done.stdout == f'{is_compiled} {expected}', done.stderr
  assert ('sampling is slow' in done.stderr) == bool(reason)
  assert reason in done.stderr and 'Traceback' not in done.stderr


def test_the_result_of_compiling_is_kept(small, tmp_path):
  directory, expected = small
  # Little optimisation, for speed; with none, Numba keeps nothing.
  settings = {'NUMBA_CACHE_DIR': str(tmp_path), 'NUMBA_OPT': '1'}
  kept = []
  for _ in range(2):
    done = sample_in_new_process(_SAMPLE, directory, **settings)
    assert done.stdout == f'True {expected}'
    files = [path for path in tmp_path.rglob('*') if path.is_file()]
    kept.append({path: path.stat().st_mtime_ns for path in files})
  assert kept[0] == kept[1] != {}


_FORK = """
import multiprocessing, sys, time
from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler
def sample(out):
  other = sampler.Sampler(opened, 4, seed=0)
  usable = drawn.wait_until_compiled(), other.wait_until_compiled()
  out.put((usable, int(drawn.batch(0, 32).windows.sum())))
opened = store.Store(sys.argv[1])
drawn = sampler.Sampler(opened, 4, seed=0)
if 'loaded' in sys.argv:
  drawn.wait_until_compiled()
else:
  drawn.batch(0, 1)
  while 'numba' not in sys.modules:
    time.sleep(0.001)
context = multiprocessing.get_context('fork')
out = context.Queue()
process = context.Process(target=sample, args=(out,))
process.start()
print(*out.get(timeout=100))
process.join()
"""


@pytest.mark.parametrize('mode', ['loaded', 'loading'])
def test_a_forked_process_samples(small, mode):
  """A fork waits until the code is loaded."""
  directory, expected = small
  done = sample_in_new_process(_FORK, directory, mode)
  assert done.stdout == f'(True, True) {expected}', done.stderr
