"""Frames in the device's memory: places, the same batches, and refusals."""

import gin
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.store import shard_packing, store
from batch_rl.fixed_replay.replay_memory import (
  device_frames,
  fixed_replay_buffer,
)
from batch_rl.tests import cartpole, observations, ring_logs, shards
from batch_rl.utils import machine

Wrapped = fixed_replay_buffer.WrappedFixedReplayBuffer


# --- places of frames -----------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
  lengths=st.lists(st.integers(1, 25), min_size=3, max_size=12),
  capacity=st.integers(20, 60),
  stack_size=st.integers(1, 5),
  horizon=st.integers(1, 4),
  subset=st.sampled_from(
    [None, 'random_trajectories(0.4)', 'last_transitions(7)']
  ),
  data=st.data(),
)
def test_places_have_the_frames_from_states_to_next_states_and_no_others(
  tmp_path_factory, lengths, capacity, stack_size, horizon, subset, data
):
  """Also beside gaps, and at the ends of episodes and of the run."""
  directory = tmp_path_factory.mktemp('log')
  shards.write_run(directory, lengths, capacity)
  suffixes = store.list_shards(str(directory))
  if len(suffixes) > 2 and data.draw(st.booleans()):
    ring_logs.remove_shard(
      directory, data.draw(st.sampled_from(suffixes[1:-1]))
    )
  run = store.Store(str(directory))
  run.wait()
  sampler = sampler_lib.Sampler(run, stack_size, horizon, 0.9, subset)
  kept = data.draw(st.sets(st.sampled_from(run.suffixes), min_size=1))
  sampler.restrict(kept)
  rows = sampler.valid_rows()
  if not len(rows):
    return
  places = device_frames.FramePlaces(sampler)
  frames = run.frames(places.rows())
  batch = sampler.gather(rows)
  last = places.of(rows)
  used = set()
  for i, steps in enumerate(batch.steps):
    used |= set(range(last[i] - stack_size + 1, last[i] + steps + 1))
    for first in (0, steps):
      found = last[i] - stack_size + 1 + first + np.arange(stack_size)
      np.testing.assert_array_equal(
        frames[found], batch.windows[i, first : first + stack_size]
      )
  assert used == set(range(places.count))


# --- batches --------------------------------------------------------------------


def batches(data_dir, kind, iterations=2, suffix=None, **kwargs):
  """Returns the first batches of iterations, as the graph gets them."""
  shape, dtype = observations.KINDS[kind]
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    replay = Wrapped(
      str(data_dir),
      suffix,
      shape,
      kwargs.pop('stack_size', 3),
      observation_dtype=dtype,
      batch_size=16,
      seed=5,
      **kwargs,
    )
    found = []
    for iteration in range(iterations):
      replay.begin_iteration(iteration, 3 * iteration)
      found += [session.run(replay.transition) for _ in range(5)]
    return found


def assert_same(one, other):
  for left, right in zip(one, other, strict=True):
    assert list(left) == list(right)
    for name, array in left.items():
      assert array.dtype == right[name].dtype, name
      np.testing.assert_array_equal(array, right[name], err_msg=name)


@pytest.fixture(scope='module')
def logs(tmp_path_factory):
  """Directories of logs by kind of observation."""
  directory = tmp_path_factory.mktemp('logs')
  for kind in observations.KINDS:
    observations.write(directory / kind, kind)
  return {kind: directory / kind for kind in observations.KINDS}


@pytest.mark.parametrize(
  ('kind', 'ways'),
  [
    *((kind, {'update_horizon': 3}) for kind in observations.KINDS),
    ('planes', {'stack_size': 1, 'prefetch': 0}),
    ('planes', {'prefetch': 100, 'suffix': 1}),
    ('planes', {'num_buffers': 1, 'iterations': 4}),
    ('planes', {'num_buffers': 2, 'subset': 'random_trajectories(0.5)'}),
    ('planes', {'subset': 'last_transitions(20)', 'update_horizon': 5}),
  ],
)
def test_batches_are_the_same(logs, kind, ways):
  if kind == 'large':
    ways = {**ways, 'stack_size': 1}
  expected = batches(logs[kind], kind, **ways, stack_on_device=False)
  for way in ('frames_on_device', 'stack_on_device'):
    assert_same(expected, batches(logs[kind], kind, **ways, **{way: True}))


@pytest.mark.parametrize(('num_buffers', 'loads'), [(None, 2), (1, 4)])
def test_frames_are_loaded_once_for_the_same_shards(
  logs, monkeypatch, num_buffers, loads
):
  """After an error, again."""
  shape, dtype = observations.KINDS['planes']
  ways = {'observation_dtype': dtype, 'num_buffers': num_buffers, 'seed': 5}
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    replay = Wrapped(
      str(logs['planes']), None, shape, 2, frames_on_device=True, **ways
    )
    run, calls = replay.memory.sampler.store, []
    original = run.frames

    def frames(rows):
      calls.append(rows)
      return original(rows) if len(calls) > 1 else 1 / 0

    monkeypatch.setattr(run, 'frames', frames)
    replay.begin_iteration(0)
    with pytest.raises(tf.errors.OpError, match='division by zero'):
      session.run(replay.transition)
    for iteration in range(3):
      replay.begin_iteration(iteration)
      session.run(replay.transition)
      session.run(replay.transition)
  assert len(calls) == loads


# --- agents ---------------------------------------------------------------------


@pytest.mark.parametrize('name', ['dqn', 'multi_head_dqn'])
def test_agents_learn_the_same_to_the_bit(shared_agents, name):
  agents = shared_agents(name), shared_agents(name, frames_on_device=True)
  first_values = cartpole.values(agents[0])
  found = []
  for agent in agents:
    cartpole.restart(agent, first_values)
    losses = [loss for count in (50, 7) for loss in agent.train_steps(count)]
    agent.begin_iteration(1, updates=3)
    losses += agent.train_steps(31)
    found.append((losses, cartpole.values(agent)))
  (losses, variables), (others, other_variables) = found
  assert losses == others and variables.keys() == other_variables.keys()
  for name, array in variables.items():
    np.testing.assert_array_equal(array, other_variables[name], err_msg=name)


def test_frames_stay_on_the_agents_device(log_dir, monkeypatch):
  """Two CPU devices stand in for a CPU and a GPU."""
  new_session, device = tf.compat.v1.Session, tf.device

  def session(target, config, **kwargs):
    config.device_count['CPU'] = 2
    config.allow_soft_placement = False
    return new_session(target, config=config, **kwargs)

  monkeypatch.setattr(tf.compat.v1, 'Session', session)
  monkeypatch.setattr(
    tf, 'device', lambda n: device('/cpu:0' if n == '/cpu:*' else n)
  )
  gin.bind_parameter('WrappedFixedReplayBuffer.frames_on_device', True)
  agent = cartpole.build_offline_agent('dqn', log_dir, tf_device='/cpu:1')
  metadata = tf.compat.v1.RunMetadata()
  agent._sess.run(
    agent._loop._results,
    {agent._loop._first_step: 0, agent._loop._end: 30},
    options=tf.compat.v1.RunOptions(output_partition_graphs=True),
    run_metadata=metadata,
  )
  _, accelerator = sorted(
    metadata.partition_graphs, key=lambda graph: graph.node[0].device
  )
  assert accelerator.node[0].device.endswith('CPU:1')
  (frames,) = [n for n in accelerator.node if n.name == 'frames']
  assert frames.op == 'VarHandleOp'
  sent = [n.input[0] for n in accelerator.node if n.op == '_Send']
  assert not any(name.startswith('while/') for name in sent)


# --- refusals -------------------------------------------------------------------


def test_a_small_subset_needs_little_memory(logs, monkeypatch):
  # Frames of 400 bytes, 26 of them: two before the first step, the 12 of an episode,
  # three between, the first 8 of the next one, and their next frame.
  monkeypatch.setattr(machine, 'available_memory', lambda: 11_600)
  ways = {'subset': 'first_transitions(20)', 'iterations': 1}
  found = batches(logs['planes'], 'planes', **ways, frames_on_device=True)
  assert_same(batches(logs['planes'], 'planes', **ways), found)

  def pack(*args, **kwargs):
    raise AssertionError('packed')

  # Those of the steps are checked first, before packing.
  for free, frames in ((11_500, 26), (8_000, 20)):
    monkeypatch.setattr(machine, 'available_memory', lambda free=free: free)
    if frames == 20:
      monkeypatch.setattr(shard_packing, 'pack', pack)
    with pytest.raises(ValueError, match=f' for {frames} frames, but of'):
      batches(logs['planes'], 'planes', **ways, frames_on_device=True)


def test_the_memory_of_a_gpu_counts(monkeypatch):
  """Without one, its functions are replaced."""

  class Device:
    name, memory_limit = '/device:GPU:1', 5_000

  def used(name):
    return {'current': 1_000 if name == 'GPU:1' else 0, 'peak': 2_000}

  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [kind])
  local = device_frames.device_lib
  monkeypatch.setattr(local, 'list_local_devices', lambda config: [Device])
  monkeypatch.setattr(tf.config.experimental, 'get_memory_info', used)
  with tf.Graph().as_default():
    frames = device_frames.DeviceFrames('', (10, 10), np.dtype(np.uint8), 4)
  frames._device = '/device:GPU:1'
  frames.check(36)
  with pytest.raises(ValueError, match='3.7e-06 GB on /device:GPU:1.* 4e-06 G'):
    frames.check(37)
  frames._device = '/device:GPU:0'  # not listed: unknown
  frames.check(10**12)


@pytest.mark.parametrize(
  ('ways', 'message'),
  [
    ({'frames_on_device': 'yes'}, "='yes'"),
    ({'stack_on_device': False}, 'stack_on_device=False'),
    ({'start_early': True}, 'start_early=True'),
    ({'deterministic': False}, 'start_early=True'),
  ],
)
def test_contradictions_are_refused(logs, ways, message):
  ways = {'frames_on_device': True, **ways}
  with pytest.raises(ValueError, match=message):
    Wrapped(str(logs['planes']), None, (10, 10, 4), 2, **ways)
