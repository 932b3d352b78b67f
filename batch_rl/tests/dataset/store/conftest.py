"""Fixtures of the store's tests."""

import concurrent.futures

import pytest

from batch_rl.dataset.store import shard_packing


@pytest.fixture(scope='module')
def pool():
  with concurrent.futures.ThreadPoolExecutor(2) as threads:
    yield threads


@pytest.fixture
def packings(monkeypatch):
  """Collects the numbers of the shards that are packed."""
  done = []
  original = shard_packing.pack

  def pack(data_dir, columns, *args, **kwargs):
    done.append(columns.suffix)
    return original(data_dir, columns, *args, **kwargs)

  monkeypatch.setattr(shard_packing, 'pack', pack)
  return done
