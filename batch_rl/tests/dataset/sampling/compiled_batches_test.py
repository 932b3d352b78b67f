"""Compiled batches: availability and threads; `batch_kernel_test` compares them."""

import pytest

from batch_rl.dataset.sampling import prefetch
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import shard_reader
from batch_rl.tests import known_runs, shards


@pytest.mark.parametrize('is_compiled', [True, False])
def test_damage_fails_no_earlier_batch(tmp_path, is_compiled, monkeypatch):
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


_SAMPLE_IN_FORKS = """
import os, signal, sys, time
import lz4.block
from absl import logging
from batch_rl.dataset import store
from batch_rl.dataset.sampling import sampler
logging.set_verbosity(logging.INFO)
lz4.block._block = lz4  # It is private.
opened = store.Store(sys.argv[1])
def new():
  return sampler.Sampler(opened, 4, seed=0)
def sample_in_fork(*samplers):
  if not os.fork():
    signal.alarm(100)
    if not samplers:
      sys.modules['numba'] = None
      os.dup2(1, 2)
    for drawn in samplers or [new()]:
      usable = drawn.wait_until_compiled()
      print(usable, drawn.batch(0, 32).windows.sum(), flush=True)
    os._exit(0)
  assert os.wait()[1] == 0
sample_in_fork()
drawn = new()
drawn.batch(0, 1)
while 'numba' not in sys.modules:
  time.sleep(0.001)
sample_in_fork(drawn, new())  # A fork waits until the code is loaded.
assert drawn.wait_until_compiled()
sample_in_fork(drawn, new())
stats = sys.modules['batch_rl.dataset.sampling.batch_kernel'].make_batch.stats
print(len(stats.cache_hits), len(stats.cache_misses))
"""


def test_new_and_forked_processes_use_kept_code_or_no_numba(tmp_path, run_code):
  shards.write_run(tmp_path / 'logs', [30] * 5, capacity=50)
  kept = str(tmp_path / 'store')
  opened = known_runs.open_store(tmp_path / 'logs', directory=kept)
  drawn = sampler_lib.Sampler(opened, 4, seed=0)
  assert drawn.wait_until_compiled()  # From now on the result is kept.
  expected = drawn.batch(0, 32).windows.sum()
  done = run_code(_SAMPLE_IN_FORKS, tmp_path / 'store')
  assert 'WARNING' not in done.stderr
  slow, *lines = done.stdout.splitlines()
  assert 'sampling is slow' in slow and 'ModuleNotFoundError' in slow
  assert lines == [f'False {expected}', *[f'True {expected}'] * 4, '1 0']
