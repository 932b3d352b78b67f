"""Compiled batches: availability, threads, and the same batches as without.

`sampler_test` and `frame_blocks_test` compare batches of many runs, and damaged stores.
"""

import concurrent.futures
import os
import subprocess
import sys

import numpy as np
import pytest

from batch_rl.dataset import store
from batch_rl.dataset.sampling import prefetch
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import replay_log, shard_reader
from batch_rl.tests import shards
from batch_rl.utils.native import mapped_files

SAMPLE = 'data/Pong/1/replay_logs'


@pytest.fixture(scope='module')
def sample(tmp_path_factory):
  """Directory of a store of one shard of Pong."""
  directory = tmp_path_factory.mktemp('sample') / 'store'
  store.Store(SAMPLE, [0], str(directory)).wait()
  return str(directory)


@pytest.fixture(params=['mapped', 'in memory'])
def opened(sample, request):
  return store.Store(SAMPLE, [0], sample, preload=request.param == 'in memory')


def without_compiled_code(sampler):
  sampler.wait_until_compiled()
  sampler._compiled._kernel = None
  return sampler


def assert_same(left, right):
  for a, b in zip(left, right, strict=True):
    if isinstance(a, tuple):
      assert_same(a, b)
    else:
      assert np.asarray(a).dtype == np.asarray(b).dtype
      np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
  ('stack_size', 'horizon'), [(4, 1), (1, 1), (4, 3), (3, 20)]
)
@pytest.mark.parametrize('count', [1, 32, 100])
def test_batches_are_the_same_without(opened, stack_size, horizon, count):
  samplers = [
    sampler_lib.Sampler(opened, stack_size, horizon, 0.99, seed=7)
    for _ in range(2)
  ]
  compiled, plain = samplers[0], without_compiled_code(samplers[1])
  assert compiled.wait_until_compiled()
  # One large batch has more rows than three others, and takes long without.
  for number in range(1 if count == 100 else 3):
    which = number, count
    assert_same(compiled.batch(*which), plain.batch(*which))
    assert_same(compiled.windows(which), plain.windows(which))
    assert_same(compiled.stacks(which), plain.stacks(which))
    rows = compiled.draw(*which)
    assert_same(compiled.gather(rows), plain.gather(rows))
    assert_same(compiled.stacks(rows), plain.stacks(rows))


def test_threads_make_the_same_batches(opened):
  sampler = sampler_lib.Sampler(opened, 4, seed=3)
  assert sampler.wait_until_compiled()
  expected = [sampler.stacks((number, 16)) for number in range(20)]
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    found = list(
      pool.map(lambda n: sampler.stacks((n % 20, 16)), range(10 * 20))
    )
  for i, batch in enumerate(found):
    assert_same(batch, expected[i % 20])


@pytest.mark.parametrize('batches', [1, 4])
@pytest.mark.parametrize('count', [1, 8, 33])
def test_consecutive_batches_are_those_made_one_by_one(opened, batches, count):
  sampler = sampler_lib.Sampler(opened, 4, 3, seed=5)
  assert sampler.wait_until_compiled()
  for is_stacked in (False, True):
    columns, frames = sampler.consecutive(7, count, batches, is_stacked)
    assert len(frames) == batches
    for i, found in enumerate(frames):
      which = 7 + i, count
      part = slice(i * count, (i + 1) * count)
      parts = tuple(column[part] for column in columns)
      if is_stacked:
        assert_same((parts, *found), sampler.stacks(which))
      else:
        assert_same((parts, found), sampler.windows(which))
      assert found.ctypes.data % 64 == 0


def test_consecutive_batches_may_have_to_be_made_one_by_one(opened):
  sampler = sampler_lib.Sampler(opened, 4, seed=5)
  without_compiled_code(sampler)
  assert sampler.consecutive(0, 8, 4, is_stacked=False) is None


def test_mapped_blocks_may_need_a_larger_buffer(sample, monkeypatch):
  sampler = sampler_lib.Sampler(store.Store(SAMPLE, [0], sample), 4)
  assert sampler.wait_until_compiled()
  rows = sampler.draw(0, 2000)
  sizes, reserve = [], mapped_files.reserve

  def reserve_and_count(size=0):
    sizes.append(size)
    return reserve(size)

  monkeypatch.setattr(mapped_files, 'reserve', reserve_and_count)
  with concurrent.futures.ThreadPoolExecutor(1) as pool:  # without a buffer yet
    compiled = pool.submit(sampler.gather, rows).result()
  assert len(sizes) > 1 and max(sizes) > 2**18
  assert_same(compiled, without_compiled_code(sampler).gather(rows))


def test_frames_of_floating_point_numbers(tmp_path):
  random = np.random.default_rng(0)
  frames = random.normal(size=(90, 3, 2)).astype(np.float32)
  with replay_log.ReplayLog(tmp_path, (3, 2), np.float32) as log:
    for i, frame in enumerate(frames):
      log.add(frame, i % 5, i / 3, i % 30 == 29)
  opened = store.Store(str(tmp_path))
  opened.wait()
  sampler = sampler_lib.Sampler(opened, 2, 2, seed=1)
  assert sampler.wait_until_compiled()
  assert sampler._compiled_batch((0, 8), is_stacked=False)
  assert sampler.consecutive(0, 8, 2, is_stacked=False)
  assert sampler.consecutive(0, 8, 2, is_stacked=True) is None
  batch = sampler.batch(0, 8), sampler.stacks((0, 8))
  without_compiled_code(sampler)
  assert_same(batch, (sampler.batch(0, 8), sampler.stacks((0, 8))))


def test_rows_outside_the_run_are_errors_as_without(opened):
  sampler = sampler_lib.Sampler(opened, 4)
  assert sampler.wait_until_compiled()
  for row in (-1, opened.rows):
    assert sampler._compiled_batch(np.array([5, row]), False) is None
  with pytest.raises(IndexError):
    sampler.windows(np.array([5, opened.rows]))


def test_no_batch_is_compiled_from_a_damaged_block(tmp_path):
  shards.write_run(tmp_path, [30] * 3, capacity=50)
  made = store.Store(str(tmp_path))
  made.wait()
  sampler = sampler_lib.Sampler(made, 4)
  assert sampler.wait_until_compiled()
  made._packed[0].blocks[3] ^= 1
  rows = np.arange(5, 20)
  assert sampler._compiled_batch(rows, False) is None
  # Each of these batches reads the block.
  assert sampler.consecutive(0, 200, 3, is_stacked=True) is None
  with pytest.raises(shard_reader.DataError, match='its checksum differs'):
    sampler.gather(rows)


@pytest.mark.parametrize('is_compiled', [True, False])
def test_a_damaged_block_is_an_error_of_no_earlier_batch(tmp_path, is_compiled):
  """Other threads may find it before."""
  shards.write_run(tmp_path, [40] * 40, capacity=200)
  made = store.Store(str(tmp_path))
  made.wait()
  made._packed[3].blocks[3] ^= 1
  for seed in range(20):
    sampler = sampler_lib.Sampler(made, 4, seed=seed)
    if is_compiled:
      assert sampler.wait_until_compiled()
    else:
      without_compiled_code(sampler)
    expected = 0
    with pytest.raises(shard_reader.DataError):
      while True:
        sampler.windows((expected, 2))
        expected += 1

    def load(number, sampler=sampler):
      return sampler.windows((number, 2))

    def load_consecutive(number, count, sampler=sampler):
      batches = sampler.consecutive(number, 2, count, is_stacked=False)
      return batches and batches[1]

    feed = prefetch.Prefetcher(load, 8, 2, load_consecutive, 4)
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
  done = sample_in_new_process(_SAMPLE, directory, **settings)
  assert done.stdout == f'True {expected}'
  assert 'sampling was compiled in' in done.stderr
  done = sample_in_new_process(_SAMPLE, directory, **settings)
  assert done.stdout == f'True {expected}'
  assert 'compiled' not in done.stderr


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
  directory, expected = small
  done = sample_in_new_process(_FORK, directory, mode)
  usable = (True, True) if mode == 'loaded' else (False, False)
  assert done.stdout == f'{usable} {expected}', done.stderr
