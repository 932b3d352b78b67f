"""Dopamine's own memories sampled as one."""

import weakref

import numpy as np
import pytest
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import given
from hypothesis import strategies as st

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import store
from batch_rl.fixed_replay.replay_memory import (
  fixed_replay_buffer,
  loaded_buffers,
)
from batch_rl.tests import known_runs, shards
from batch_rl.tests.old_code_test import CAPACITY, LoadsDopamines
from batch_rl.tests.old_code_test import load as load_buffer

STATE, ACTION, REWARD, NEXT_STATE, _, _, TERMINAL, INDICES = range(8)


def load(directory, suffix, capacity, stack_size=4, horizon=1):
  arguments = (2, 2), stack_size, capacity, 8, horizon, 0.5
  memory = circular_replay_buffer.OutOfGraphReplayBuffer(*arguments)
  memory.load(str(directory), suffix)
  return memory


def transitions(run, suffix, stack_size, horizon):
  """Returns `{position in the ring: Transition}` of a shard alone."""
  kept = set(run.rows_of({suffix}))
  known = known_runs.transitions(run, kept, stack_size, horizon, 0.5)
  # Dopamine's memory needs the next state even if the episode ends before.
  return {
    row % run.capacity: transition
    for row, transition in known.items()
    if row + horizon in kept
  }


@given(
  lengths=st.lists(st.integers(1, 25), min_size=2, max_size=10),
  capacity=st.integers(12, 50),
  stack_size=st.integers(1, 5),
  horizon=st.integers(1, 4),
)
def test_draws_are_the_transitions_of_each_shard(
  tmp_path_factory, lengths, capacity, stack_size, horizon
):
  directory = tmp_path_factory.mktemp('run')
  run = known_runs.write_run(directory, lengths, capacity)
  sizes = capacity, stack_size, horizon
  memories = [load(directory, suffix, *sizes) for suffix in run.suffixes]
  opened = store.Store(str(directory), pack=False)
  buffers = loaded_buffers.LoadedBuffers(opened, memories, run.suffixes, seed=0)
  expected = {}
  for suffix in run.suffixes:
    known = transitions(run, suffix, stack_size, horizon)
    expected |= {suffix * capacity + at: known[at] for at in known}
  valid = buffers.valid_indices()
  if stack_size >= 4:
    assert sorted(valid) == sorted(expected)
  else:  # Short stacks hide padding, so first steps may be missing.
    assert set(valid) <= set(expected)
  assert buffers.num_transitions == len(valid) == len(set(valid.tolist()))
  if not len(valid):
    return
  order = np.random.default_rng(0).permutation(valid)
  batch = buffers.transitions(order)
  assert batch[INDICES].tolist() == order.tolist()
  for i, index in enumerate(order):
    stack, action, reward, terminal, next_stack, _ = expected[index]
    assert batch[STATE][i, 0, 1].tolist() == stack
    assert batch[ACTION][i] == action and batch[REWARD][i] == reward
    assert batch[TERMINAL][i] == terminal
    if not terminal:
      assert batch[NEXT_STATE][i, 1, 0].tolist() == next_stack


def test_a_log_without_padding_may_start_with_zeros(tmp_path, caplog):
  """Its manifest tells; otherwise the first transitions would be lost."""
  with shards.make_log(tmp_path, CAPACITY, stack_size=1) as log:
    for step in range(40):
      log.add(np.full((2, 2), step % 10), step % 4, 0.0, step % 10 == 9)
  buffer = load_buffer(tmp_path, class_=LoadsDopamines, stack_size=1)
  assert buffer.valid_indices().tolist() == list(range(39))
  assert buffer.action_range() == (0, 3)
  assert 'are not used' not in caplog.text
  load_buffer(tmp_path)
  assert 'The first 3 steps of each episode' in caplog.text


def test_loaded_memories_are_drawn_by_the_last_seed(tmp_path):
  shards.write_run(tmp_path, [30] * 4, CAPACITY)
  buffer = load_buffer(tmp_path, class_=LoadsDopamines, num_buffers=1, seed=0)
  drawn = {}
  for seed in range(12):
    buffer.reseed(seed)
    assert buffer.redraw()
    [memory] = buffer._replay_buffers
    draws = tuple(buffer.sample_index_batch(20).tolist())
    drawn.setdefault(int(memory.add_count), []).append(draws)
  # The same shard, drawn with several seeds, gives several batches.
  assert any(len(batches) > 1 for batches in drawn.values())
  for batches in drawn.values():
    assert len(set(batches)) == len(batches)


def test_loaded_shards_are_dropped_before_others_are_loaded(tmp_path):
  """Both may not fit into memory."""
  shards.write_run(tmp_path, [30] * 4, CAPACITY)
  loaded, alive = [], []

  class Counted(LoadsDopamines):
    def _load_buffer(self, suffix):
      alive.append(sum(memory() is not None for memory in loaded))
      memory = super()._load_buffer(suffix)
      loaded.append(weakref.ref(memory))
      return memory

  buffer = load_buffer(tmp_path, class_=Counted, num_buffers=1)
  for suffix in (0, 1):
    buffer.load_single_buffer(suffix)
  assert len(alive) > 1 and not any(alive)


class LoadsAll(fixed_replay_buffer.FixedReplayBuffer):
  """Samples the memories of the store."""

  def _load_replay_buffers(self, num_buffers=None):
    self._replay_buffers = [self._load_buffer(s) for s in self._replay_indices]
    self._loaded_buffers = True


class AllDopamines(LoadsAll, LoadsDopamines):
  pass


def write_truncated_run(directory, lengths, stack_size, is_truncated):
  with shards.make_log(directory, CAPACITY, stack_size) as log:
    for i, episode in enumerate(shards.make_episodes(lengths)):
      for row in episode:
        ended = bool(row.terminal)
        frame = np.full((2, 2), row.frame)
        terminal = ended and not is_truncated[i]
        log.add(frame, row.action, row.reward, terminal, truncated=ended)


def inner_indices(directory, stack_size, horizon):
  """Returns the indices of rows with state and next state in their shard."""
  found = []
  for i, suffix in enumerate(shard_files.list_suffixes(str(directory))):
    count = shard_reader.read_add_count(str(directory), suffix)
    order = np.roll(np.arange(min(count, CAPACITY)), -count)
    found += (i * CAPACITY + order[stack_size - 1 : -horizon]).tolist()
  return set(found)


@pytest.mark.parametrize('class_', [LoadsDopamines, LoadsAll, AllDopamines])
@pytest.mark.parametrize(('horizon', 'stack_size'), [(1, 4), (3, 1), (5, 4)])
def test_truncation_is_no_termination(tmp_path, class_, stack_size, horizon):
  """Also at the ring's end, and beside an episode that terminates."""
  lengths = [10, 1, 1, 2] * 9
  is_truncated = [i % 4 != 1 for i in range(len(lengths))]
  write_truncated_run(tmp_path, lengths, stack_size, is_truncated)
  ways = {'stack_size': stack_size, 'update_horizon': horizon, 'gamma': 0.5}
  whole = load_buffer(tmp_path, num_buffers=99, **ways)
  own = load_buffer(tmp_path, class_=class_, num_buffers=99, **ways)
  indices = own.valid_indices()
  expected = inner_indices(tmp_path, stack_size, horizon)
  expected &= set(whole.valid_indices().tolist())
  assert set(indices.tolist()) == expected and len(expected) > 40
  for index in (-1, 10**6):
    with pytest.raises(ValueError, match=f'rows exist: .{index}'):
      own.sample_transition_batch(1, [index])
  batch = own.sample_transition_batch(len(indices), indices)
  assert 0 < batch[TERMINAL].sum() < len(indices) / 4
  others = whole.sample_transition_batch(len(indices), indices)
  for name in (STATE, ACTION, REWARD, TERMINAL):
    np.testing.assert_array_equal(batch[name], others[name])
  assert own.file_hashes() == whole.file_hashes() != {}
  if class_ is LoadsDopamines:
    memories = own._replay_buffers
    own.reload_buffer()  # reads no shard again
    assert list(map(id, own._replay_buffers)) == list(map(id, memories))


@pytest.mark.parametrize('first', [0, 7])
def test_truncations_in_a_part_of_the_ring(tmp_path, first):
  """`JaxFixedReplayBuffer` may keep rows from the middle of the ring."""
  from dopamine.labs.offline_rl import fixed_replay

  write_truncated_run(tmp_path, [6] * 20, 4, [True] * 20)
  whole = load_buffer(tmp_path, 1)
  ways = {'replay_capacity': 20, 'replay_transitions_start_index': first}
  part = load_buffer(tmp_path, 1, fixed_replay.JaxFixedReplayBuffer, **ways)
  kept = range(first + 3, first + 20 - 1)
  expected = [i - first for i in whole.valid_indices() if i in kept]
  assert part.valid_indices().tolist() == expected and len(expected) > 5
