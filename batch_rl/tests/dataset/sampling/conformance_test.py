"""All sources of batches have the same batches: those that a loop over the rows gives."""

import itertools

import numpy as np
import pytest

from batch_rl.dataset.sampling import sampler
from batch_rl.tests import known_runs

SIZE, STACK, GAMMA = 7, 4, 0.5


def make_sampler(store, horizon):
  return sampler.Sampler(store, STACK, horizon, GAMMA, seed=1)


def of_sampler(together, frames='windows'):
  """Returns a source: a compiled sampler that makes several batches in a call."""

  def batches(store, horizon):
    source = make_sampler(store, horizon)
    assert source.wait_until_compiled()
    for number in itertools.count(0, together):
      yield from source.batches(number, SIZE, together, frames)

  return batches


def of_reference(store, horizon):
  source = make_sampler(store, horizon)
  for number in itertools.count():
    yield from source.reference(source.draw(number, SIZE))


def of_torch(store, horizon):
  pytest.importorskip('torch', reason='PyTorch is not installed')
  from batch_rl.dataset import torch as torch_data

  return torch_data.TransitionDataset(make_sampler(store, horizon), SIZE)


def of_jax(store, horizon):
  from batch_rl.dataset import jax as jax_data

  return jax_data.DeviceBatches(make_sampler(store, horizon), SIZE)


def of_memory(store, horizon):
  """The arrays of Dopamine's replay memory."""
  from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer

  memory = fixed_replay_buffer.FixedReplayBuffer(
    store.data_dir, None, (2, 2), STACK, 50, SIZE, horizon, GAMMA
  )
  memory.reseed(1)
  names = [element.name for element in memory.get_transition_elements()]
  while True:
    yield dict(zip(names, memory.sample_transition_batch(), strict=True))


def of_graph(**ways):
  """Returns a source: tensors of a graph."""

  def batches(store, horizon):
    import tensorflow as tf

    from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
        store.data_dir,
        *(None, (2, 2), STACK, False, 50, SIZE, horizon, GAMMA),
        **ways,
      )
      replay.memory.reseed(1)
      replay.memory.sampler.wait_until_compiled()
      while True:
        yield session.run(replay.transition)

  return batches


SOURCES = {
  'reference': of_reference,
  'compiled': of_sampler(1),
  'several at once': of_sampler(3),
  'stacks': of_sampler(3, 'stacks'),
  'PyTorch': of_torch,
  'JAX': of_jax,
  'memory': of_memory,
  'graph, stacks': of_graph(stack_on_device=False),
  'graph, windows': of_graph(stack_on_device=True),
  'graph, frames on the device': of_graph(frames_on_device=True),
  'graph, on demand': of_graph(prefetch=0),
  'graph, one batch ahead': of_graph(prefetch=1, prefetch_threads=1),
}


@pytest.mark.parametrize('horizon', [1, 3])
@pytest.mark.parametrize('name', SOURCES)
def test_batches_are_the_drawn_transitions(known_run, opened, name, horizon):
  every = range(len(known_run.rows))
  known = known_runs.transitions(known_run, every, STACK, horizon, GAMMA)
  drawn = make_sampler(opened, horizon)
  batches = itertools.islice(SOURCES[name](opened, horizon), 12)
  for number, batch in enumerate(batches):
    found = batch if isinstance(batch, dict) else None
    rows = drawn.draw(number, SIZE)
    names = {'state', 'next_state', 'action', 'reward', 'terminal'}
    if found is None:
      np.testing.assert_array_equal(batch.rows, rows)
      found = {field: np.asarray(getattr(batch, field)) for field in names}
      if hasattr(batch, 'next_action'):
        found |= {n: getattr(batch, n) for n in ('next_action', 'next_reward')}
      for field in ('state', 'next_state') if name != 'stacks' else ():
        found[field] = np.moveaxis(found[field], 1, -1)
    if 'indices' in found:
      shard, ring = np.divmod(found['indices'], 50)
      np.testing.assert_array_equal(opened.rows_of(shard, ring), rows)
    assert found['state'].shape == (SIZE, 2, 2, STACK)
    assert found['state'].dtype == np.uint8
    for i, row in enumerate(rows.tolist()):
      expected = known[row]
      state, next_state = found['state'][i], found['next_state'][i]
      assert (state == state[:1, :1]).all()
      assert state[0, 0].tolist() == expected.stack
      assert found['action'][i] == expected.action
      assert found['reward'][i] == expected.reward
      assert found['terminal'][i] == expected.terminal
      if expected.terminal:
        continue
      assert next_state[1, 0].tolist() == expected.next_stack
      if 'next_action' in found:
        assert found['next_action'][i] == expected.next_action
        assert found['next_reward'][i] == known_run.rows[row + horizon].reward
