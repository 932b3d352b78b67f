"""What every test starts from."""

import gc
import os
import sys
import threading

import gin
import pytest

# Of workers side by side (`-n`), each has its share of the processors: two threads on
# each of them are slower than one. Programs that tests start do likewise.
_workers = int(os.environ.get('PYTEST_XDIST_WORKER_COUNT', '1'))
if _workers > 1:
  os.environ.setdefault(
    'TF_NUM_INTRAOP_THREADS', str(max(1, (os.cpu_count() or 1) // _workers))
  )


def pytest_collection_modifyitems(items):
  """Tests that wait for programs begin first: others run beside them."""
  items.sort(key=lambda item: item.get_closest_marker('waits') is None)


def pytest_collection_finish():
  """What was imported stays: the garbage collector need not look at it again."""
  gc.collect()
  gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_left_behind():
  """Each test finds gin without bindings and the default graph empty."""
  yield
  gin.clear_config()
  # Many tests do without TensorFlow, which takes seconds to import.
  if 'tensorflow' in sys.modules:
    sys.modules['tensorflow'].compat.v1.reset_default_graph()


@pytest.fixture
def gate(monkeypatch):
  """Lets shards be packed one at a time, by `release`."""
  from batch_rl.dataset.store import shard_packing

  semaphore, before = threading.Semaphore(0), set(threading.enumerate())
  original = shard_packing.pack

  def pack(*args, **kwargs):
    semaphore.acquire()
    return original(*args, **kwargs)

  monkeypatch.setattr(shard_packing, 'pack', pack)
  yield semaphore
  # No thread is left waiting, nor comes to the gate of another test.
  semaphore.release(100)
  for thread in set(threading.enumerate()) - before:
    thread.join(60)
