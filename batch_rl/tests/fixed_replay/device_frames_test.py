"""Frames in the device's memory: places, the same batches, and refusals."""

import contextlib
import functools
import logging
import time
import unittest.mock

import gin
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given
from hypothesis import strategies as st
from tensorflow.python.framework import kernels

from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import shard_packing, store
from batch_rl.fixed_replay.replay_memory import (
  device_frames,
  fixed_replay_buffer,
)
from batch_rl.tests import cartpole, known_runs, observations, old_code_test
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.fixed_replay import update_loop_test
from batch_rl.utils import machine

Wrapped = fixed_replay_buffer.WrappedFixedReplayBuffer
MEMORY = 'WrappedFixedReplayBuffer'


@given(
  stack_size=st.integers(1, 5),
  horizon=st.integers(1, 4),
  subset=st.sampled_from(
    [None, 'random_trajectories(0.4)', 'last_transitions(7)']
  ),
  data=st.data(),
)
def test_places_have_the_frames_from_states_to_next_states_and_no_others(
  tmp_path_factory, stack_size, horizon, subset, data
):
  """Also beside gaps, and at the ends of episodes and of the run."""
  drawn, _ = known_runs.draw_run(data, tmp_path_factory.mktemp('run'))
  run = known_runs.open_store(drawn.directory)
  # A run without a step is refused.
  assume(len(subsets.trajectories(run).selected))
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
      expected = batch.windows[i, first : first + stack_size]
      np.testing.assert_array_equal(frames[found], expected)
  assert used == set(range(places.count))


@contextlib.contextmanager
def make_replay(data_dir, kind='planes', suffix=None, **kwargs):
  """Yields a replay in a graph of its own, and a session."""
  shape, dtype = observations.KINDS[kind]
  arguments = str(data_dir), suffix, shape, kwargs.pop('stack_size', 3)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    kwargs |= {'observation_dtype': dtype, 'batch_size': 16, 'seed': 5}
    yield Wrapped(*arguments, **kwargs), session


def batches(data_dir, kind, iterations=2, **kwargs):
  """Returns the first batches of iterations, as the graph gets them."""
  with make_replay(data_dir, kind, **kwargs) as (replay, session):
    found = []
    for iteration in range(iterations):
      replay.begin_iteration(iteration, 3 * iteration)
      found += [session.run(replay.transition) for _ in range(5)]
    return found


def assert_same(one, other):
  for left, right in zip(one, other, strict=True):
    assert list(left) == list(right)
    known_runs.assert_same(left.values(), right.values())


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
    # Parts of the data.
    ('planes', {'prefetch': 100, 'suffix': 1}),
    ('planes', {'num_buffers': 1, 'iterations': 4}),
    ('planes', {'num_buffers': 2, 'subset': 'random_trajectories(0.5)'}),
    ('planes', {'subset': 'last_transitions(20)', 'update_horizon': 5}),
  ],
)
def test_batches_of_any_observations_are_the_same(logs, kind, ways):
  ways = {'stack_size': 1 if kind == 'large' else 3, **ways}
  expected = batches(logs[kind], kind, **ways, stack_on_device=False)
  for way in ('frames_on_device', 'stack_on_device'):
    assert_same(expected, batches(logs[kind], kind, **ways, **{way: True}))


def test_replays_of_a_session_have_their_own_frames(logs):
  path, (shape, dtype) = str(logs['planes']), observations.KINDS['planes']
  ways = {'subset': 'last_transitions(20)', 'observation_dtype': dtype}
  with make_replay(path, frames_on_device=True) as (replay, session):
    other = Wrapped(path, None, shape, 3, frames_on_device=True, **ways)
    for made in (replay, other):
      made.begin_iteration(0)
    found = [session.run(r.transition) for r in (replay, other, replay)]
  assert_same(found[::2], batches(path, 'planes', 1)[:2])


@pytest.mark.parametrize(('ways', 'loads'), [({}, 1), ({'num_buffers': 1}, 3)])
def test_frames_are_loaded_again_for_other_shards(logs, caplog, ways, loads):
  caplog.set_level(logging.INFO, 'absl')
  ways = {**ways, 'frames_on_device': True}
  with make_replay(logs['planes'], **ways) as (replay, session):
    for iteration in range(3):
      replay.begin_iteration(iteration)
      session.run(replay.transition)
      session.run(replay.transition)
  assert caplog.text.count('GB of frames into') == loads


def test_a_failed_load_is_repeated(logs, monkeypatch):
  ways = {'frames_on_device': True}
  with make_replay(logs['planes'], **ways) as (replay, session):
    replay.begin_iteration(0)
    with monkeypatch.context() as patch:
      patch.setattr(replay.memory.sampler.store, 'frames', lambda rows: 1 / 0)
      with pytest.raises(tf.errors.OpError, match='division by zero'):
        session.run(replay.transition)
    replay.begin_iteration(0)
    found = session.run(replay.transition)
  expected = batches(logs['planes'], 'planes', iterations=1, **ways)
  assert_same([found], expected[:1])


def test_an_agent_waits_while_frames_are_loaded(log_dir, monkeypatch):
  decode = device_frames.DeviceFrames._decode

  def slow(self):
    time.sleep(0.2)
    return decode(self)

  monkeypatch.setattr(device_frames.DeviceFrames, '_decode', slow)
  gin.bind_parameter(f'{MEMORY}.frames_on_device', True)
  agent = cartpole.build_offline_agent('dqn', log_dir)
  begin = time.monotonic()
  assert len(list(agent.train_steps(8))) == 2
  assert 0.2 <= agent.seconds_waited <= time.monotonic() - begin


def test_frames_stay_on_the_agents_device(log_dir, monkeypatch):
  gin.bind_parameter(f'{MEMORY}.frames_on_device', True)
  build = functools.partial(cartpole.build_offline_agent, 'dqn', log_dir)
  *_, accelerator = update_loop_test.run_on_two_devices(monkeypatch, build)
  (frames,) = [n for n in accelerator.node if n.name == 'frames']
  assert frames.op == 'VarHandleOp'
  sent = [n.input[0] for n in accelerator.node if n.op == '_Send']
  assert not any(name.startswith('while/') for name in sent)


def has_gpu_kernel(op):
  """Returns whether a kernel for GPUs is registered for an operation's types."""
  for kernel in kernels.get_registered_kernels_for_op(op.type).kernel:
    if kernel.device_type in ('GPU', 'DEFAULT') and all(
      op.get_attr(constraint.name) in constraint.allowed_values.list.type
      for constraint in kernel.constraint
    ):
      return True
  return False


@pytest.mark.parametrize('kind', observations.KINDS)
@pytest.mark.parametrize(
  'ways', [{'frames_on_device': True}, {'stack_on_device': True}]
)
@pytest.mark.skipif(
  not any(
    kernel.device_type == 'GPU'
    for kernel in kernels.get_registered_kernels_for_op('MatMul').kernel
  ),
  reason='TensorFlow was built without GPU kernels',
)
def test_operations_on_frames_have_gpu_kernels(logs, kind, ways, monkeypatch):
  """Otherwise TensorFlow would take the frames back to the host."""
  monkeypatch.setattr(device_frames, 'is_host', lambda device: False)
  monkeypatch.setattr(device_frames, '_free_memory', lambda device: None)
  ways = {**ways, 'update_horizon': 2}
  with make_replay(logs[kind], kind, **ways) as (replay, session):
    graph = session.graph
    before = set(graph.get_operations())
    arrays = replay._arrays.types.values()
    replay.unpack([tf.compat.v1.placeholder(*array) for array in arrays])
    added = [op for op in graph.get_operations() if op not in before]
    loading = 'VarHandleOp', 'AssignVariableOp'
    added += [op for op in before if op.type in loading]
  assert len(added) > 8
  assert [op.type for op in added if not has_gpu_kernel(op)] == []


def test_a_small_subset_needs_little_memory(logs, monkeypatch):
  # Frames of 400 bytes, 26 of them: two before the first step, the 12 of an episode,
  # three between, the first 8 of the next one, and their next frame.
  monkeypatch.setattr(machine, 'available_memory', lambda: 11_600)
  ways = {'subset': 'first_transitions(20)', 'iterations': 1}
  found = batches(logs['planes'], 'planes', **ways, frames_on_device=True)
  assert_same(batches(logs['planes'], 'planes', **ways), found)
  # Those of the steps are checked first, before packing.
  pack = unittest.mock.Mock(wraps=shard_packing.pack)
  monkeypatch.setattr(shard_packing, 'pack', pack)
  for free, message, packs in (
    (11_500, '1.04e-05 GB of memory for 26 frames, but of 1.15e-05 GB', True),
    (8_000, '8e-06 GB of memory for 20 frames, but of 8e-06 GB', False),
  ):
    pack.reset_mock()
    monkeypatch.setattr(machine, 'available_memory', lambda free=free: free)
    with pytest.raises(ValueError, match=message):
      batches(logs['planes'], 'planes', **ways, frames_on_device=True)
    assert pack.called == packs


def test_the_memory_of_a_gpu_counts(monkeypatch):
  """Without one, its functions are replaced."""

  class Device:
    name, memory_limit_bytes = '/job:a/task:0/device:GPU:1', 5_000

  def used(name):
    return {'current': 1_000 if name == 'GPU:1' else 0, 'peak': 2_000}

  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [kind])
  session = tf.compat.v1.Session
  monkeypatch.setattr(session, 'list_devices', lambda self: [Device])
  monkeypatch.setattr(tf.config.experimental, 'get_memory_info', used)
  with tf.Graph().as_default():
    frames = device_frames.DeviceFrames((10, 10), np.dtype(np.uint8), 4)
  frames._device = '/device:GPU:1'
  frames.check(36)
  with pytest.raises(ValueError, match='3.7e-06 GB on /device:GPU:1.* 4e-06 G'):
    frames.check(37)
  frames._device = '/device:GPU:0'  # not listed: unknown
  frames.check(10**12)


def test_memories_loaded_by_a_subclass_are_refused(logs, monkeypatch):
  loads = old_code_test.LoadsDopamines
  monkeypatch.setattr(Wrapped, 'memory_class', loads)
  monkeypatch.setattr(loads, '_load_buffer', pytest.fail)
  with pytest.raises(ValueError, match='so frames_on_device would have no eff'):
    batches(logs['planes'], 'planes', frames_on_device=True)


def test_damage_ends_in_one_line(log_dir, tmp_path):
  directory = tmp_path / 'store'
  store.convert(str(log_dir), str(directory))
  run_files.flip_a_bit(directory / 'shard-1.bin', 10)
  gin.bind_parameter(f'{MEMORY}.frames_on_device', True)
  agent = cartpole.build_offline_agent('dqn', directory)
  with pytest.raises(shard_reader.DataError, match='shard-1.bin is damaged'):
    list(agent.train_steps(10))
