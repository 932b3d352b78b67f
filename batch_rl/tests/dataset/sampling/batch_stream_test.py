"""Batches of a sampler in order, as NumPy arrays, and copies of samplers."""

import concurrent.futures
import pickle

import numpy as np
import pytest

from batch_rl.dataset.sampling import batch_stream, sampler
from batch_rl.dataset.store import store as store_lib
from batch_rl.tests import shards
from batch_rl.tests.dataset import streams
from batch_rl.tests.dataset.streams import store  # noqa: F401


class TestBatchStream(streams.Contract):
  kind = batch_stream.BatchStream


def test_copies_draw_the_same_batches(store):  # noqa: F811
  source = streams.transitions(store, seed=None)
  source.restrict([0, 1])
  for original in (source, streams.steps(store)):
    again = pickle.loads(pickle.dumps(original))
    streams.assert_equal(again.batch(3, 50), original.batch(3, 50), ['state'])
  assert np.max(source.batch(3, 50).rows) < store.starts[2]
  # The store has the rewards; copies do not carry them.
  assert store.reward.tobytes() not in pickle.dumps(streams.steps(store))


def test_states_of_other_batches_are_refused(store):  # noqa: F811
  one, two = (streams.transitions(store, seed=[1, rank]) for rank in (0, 1))
  assert (one.draw(0, 50) != two.draw(0, 50)).any()
  few = sampler.Sampler(store, 4, subset='first_fraction(0.5)', seed=[1, 0])
  state = batch_stream.BatchStream(one, 4).state_dict()
  other = sampler.Sampler(store, 4, weighting='trajectories', seed=[1, 0])
  others = (two, 4, 'seed_hash'), (one, 5, 'batch_size'), (few, 4, 'rows')
  for source, size, name in (*others, (other, 4, 'rows_hash')):
    with pytest.raises(ValueError, match=f'of different batches, {name}='):
      batch_stream.BatchStream(source, size).load_state_dict(state)


def test_an_own_batch_method_is_called(store):  # noqa: F811
  class Own(sampler.Sampler):
    def batch(self, number, count):
      return super().batch(number + 1, count)

  own = Own(store, streams.STACK, seed=1)
  taken = streams.take(batch_stream.BatchStream(own, streams.SIZE), 3)
  assert streams.numbers(own, taken) == [0, 1, 2]


def test_a_stream_waits_for_the_shards(tmp_path, gate):
  """A forked worker would have no thread that packs them."""
  shards.write_run(tmp_path, [30], 80)
  packing = store_lib.Store(str(tmp_path))
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    made = thread.submit(batch_stream.BatchStream, streams.transitions(packing))
    assert not concurrent.futures.wait([made], timeout=0.1).done
    gate.release()
    made.result(60)
  assert packing.packed == [0]
