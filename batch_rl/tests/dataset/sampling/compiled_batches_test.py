"""Compiled batches: availability, forks, real frames and damage.

`sampler_test` compares batches of many small runs.
"""

import subprocess
import sys

import numpy as np
import pytest

from batch_rl.dataset import store
from batch_rl.dataset.sampling import prefetch
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import shard_reader
from batch_rl.tests import shards


@pytest.mark.parametrize('preload', [False, True])
@pytest.mark.parametrize(
  ('stack_size', 'horizon', 'count', 'batches'),
  [(4, 1, 32, 3), (1, 1, 1, 4), (3, 20, 2000, 1)],
)
def test_batches_are_the_same_without(
  tmp_path, preload, stack_size, horizon, count, batches
):
  """Frames of a game: a mapped block may need a larger buffer."""
  logs, directory = 'data/Pong/1/replay_logs', str(tmp_path / 'store')
  store.Store(logs, [0], directory).wait()
  opened = store.Store(logs, [0], directory, preload=preload)
  sampler = sampler_lib.Sampler(opened, stack_size, horizon, 0.99, seed=7)
  assert sampler.wait_until_compiled()
  for frames in ('windows', 'stacks', None):
    found = sampler.batches(7, count, batches, frames)
    assert len(found) == batches
    for number, batch in enumerate(found, 7):
      rows = sampler.draw(number, count)
      [expected] = sampler.reference(rows, 1, frames)
      for a, b in zip(batch, expected, strict=True):
        np.testing.assert_array_equal(a, b)
      if frames == 'windows':
        assert batch.windows.ctypes.data % 64 == 0
  rows = np.array([5, opened.rows])
  assert sampler._compiled_batches(rows, 1, 'windows') is None
  with pytest.raises(IndexError):
    sampler.read(rows)


@pytest.mark.parametrize('is_compiled', [True, False])
def test_a_damaged_block_is_an_error_of_no_earlier_batch(
  tmp_path, is_compiled, monkeypatch
):
  """Other threads may find it before."""
  shards.write_run(tmp_path, [40] * 40, capacity=200)
  made = store.Store(str(tmp_path))
  made.wait()
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


# --- availability ---------------------------------------------------------------

_SAMPLE = """
import sys
from absl import logging
logging.set_verbosity(logging.INFO)
from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler
drawn = sampler.Sampler(store.Store(sys.argv[1]), 4, seed=0)
print(drawn.wait_until_compiled(), drawn.batch(0, 32).windows.sum())
"""


def sample_in_new_process(code, *arguments):
  return subprocess.run(
    [sys.executable, '-c', code, *arguments],
    capture_output=True,
    text=True,
    timeout=300,
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


def test_a_forked_process_samples(small):
  """A fork waits until the code is loaded."""
  directory, expected = small
  done = sample_in_new_process(_FORK, directory)
  assert done.stdout == f'(True, True) {expected}', done.stderr
