"""A small run, and the contract of its batches in each framework."""

import gc
import itertools
import threading

import numpy as np
import pytest

from batch_rl.dataset.sampling import sampler, sequences
from batch_rl.tests import shards
from batch_rl.tests.dataset.store import stores

SIZE = 4  # entries of a batch
STACK = 4


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  """A store on disk: six episodes of 2 x 2 frames."""
  directory = tmp_path_factory.mktemp('run')
  shards.write_run(directory / 'logs', [30, 25, 40, 11, 60, 33], 80)
  kept = str(directory / 'store')
  return stores.open_store(directory / 'logs', directory=kept)


def transitions(store, horizon=1, seed=1):
  return sampler.Sampler(store, STACK, horizon, seed=seed)


def steps(store):
  return sequences.SequenceSampler(store, 6, STACK, seed=1)


def numbers(source, batches):
  """Returns the numbers of batches of a sampler, by their rows."""
  known = {source.batch(k, SIZE).rows.tobytes(): k for k in range(60)}
  rows = [np.asarray(batch.rows).astype(np.int64) for batch in batches]
  return [known[some.tobytes()] for some in rows]


def take(batches, count):
  return list(itertools.islice(batches, count))


def assert_equal(batch, expected, names):
  """Asserts that fields, and the properties `names`, have the same values."""
  fields = [name for name in expected._fields if hasattr(batch, name)]
  for name in (*fields, *names):
    found = getattr(batch, name)
    np.testing.assert_array_equal(found, getattr(expected, name), name)


class Contract:
  """Tests of the streams of a framework, of class `kind`."""

  writable = True

  def make(self, source, batch_size=SIZE, **kwargs):
    return self.kind(source, batch_size, **kwargs)

  def test_batches_are_the_samplers(self, store):
    """Changes of a batch change no other."""
    for source in (transitions(store), steps(store)):
      stream = self.make(source, np.int64(SIZE))
      for number, batch in enumerate(take(stream, 12)):
        expected = source.batch(number, SIZE)
        assert_equal(batch, expected, ['state'])
        for name in expected._fields if self.writable else ():
          if name != 'stack_size' and getattr(batch, name, None) is not None:
            getattr(batch, name)[:] = 0
    assert batch.state.shape == (SIZE, 6, STACK, 2, 2)

  def test_batches_that_are_kept_are_not_overwritten(self, store):
    """Large batches are made in the memory of batches that are gone."""
    source, size = transitions(store), 4096
    source.wait_until_compiled()
    stream = self.make(source, size, ahead=2)
    states = [batch.next_state for batch in take(stream, 6)]
    kept = take(stream, 6)
    for number, state in enumerate(states):
      expected = source.batch(number, size)
      np.testing.assert_array_equal(state, expected.next_state)
    for number, batch in enumerate(kept, 6):
      assert_equal(batch, source.batch(number, size), ['state'])

  def test_an_iteration_goes_on_after_the_last_batch_taken(self, store):
    source = transitions(store)
    stream = self.make(source, batches_per_epoch=np.int64(5))
    assert numbers(source, stream) == [0, 1, 2, 3, 4]
    assert {*map(type, stream.state_dict().values())} == {int}  # for JSON
    assert numbers(source, take(stream, 3)) == [5, 6, 7]
    assert numbers(source, stream) == [8, 9]
    for first in (10, 15):  # A loop that counts does not ask for the end.
      assert numbers(source, take(stream, 5)) == [*range(first, first + 5)]

  @pytest.mark.parametrize('done', [0, 3, 5, 7])
  def test_a_resumed_stream_has_the_same_epochs(self, store, done):
    source = transitions(store)
    stream = self.make(source, batches_per_epoch=5)
    epoch = iter(stream)
    for _ in range(done):
      if next(epoch, None) is None:
        epoch = iter(stream)
        next(epoch)
    state = stream.state_dict()
    rest = numbers(source, epoch), numbers(source, stream)
    resumed = self.make(source, batches_per_epoch=5)
    resumed.load_state_dict(state)
    assert (numbers(source, resumed), numbers(source, resumed)) == rest

  @pytest.mark.parametrize(('size', 'rest'), [(None, 4), (10, 3)])
  def test_a_stream_moves_to_a_number(self, store, size, rest):
    """The state may be of epochs of another size."""
    source = transitions(store)
    stream = self.make(source, batches_per_epoch=size)
    stream.load_state_dict({'next_batch': 17})
    assert numbers(source, take(stream, 4)) == [17, 18, 19, 20][:rest]
    wrong = [{'next_batch': number} for number in (-3, 1.7, True)]
    wrong += [{'next_batch': 3, 'epoch': epoch} for epoch in (-1, 0.5, 9)]
    for state in ({}, *wrong):
      with pytest.raises(ValueError, match='is not an integer|epoch=9 has no'):
        stream.load_state_dict(state)
    assert stream.state_dict()['next_batch'] > 17  # as before

  def test_threads_end_with_the_iteration(self, store):
    before = set(threading.enumerate())
    source = transitions(store)
    source.wait_until_compiled()
    iterator = iter(self.make(source, threads=3))
    next(iterator)
    started = set(threading.enumerate()) - before
    # One more thread compiles.
    workers = [t for t in started if t.name.startswith('batches_')]
    assert len(workers) == 3
    del iterator
    gc.collect()
    for worker in workers:
      worker.join(10)
      assert not worker.is_alive()

  @pytest.mark.parametrize(
    ('name', 'value'),
    [('threads', True), ('ahead', 1.5), ('batches_per_epoch', 0)],
  )
  def test_numbers_are_checked(self, store, name, value):
    with pytest.raises(ValueError, match=f'{name}={value} is not'):
      self.make(transitions(store), **{name: value})
    with pytest.raises(ValueError, match='run.transitions'):
      self.make(store)  # a run is no sampler
