"""The memory of logged agents samples the same batches as Dopamine's."""

from unittest import mock

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.replay_memory import circular_replay_buffer
from hypothesis import strategies as st

from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset.shards import replay_log
from batch_rl.dataset.store import store


def make_memories(capacity, stack_size, horizon, **kwargs):
  """Returns Dopamine's memory and ours, empty."""
  arguments = ((3, 2), stack_size, capacity, 16, horizon, 0.9)
  return (
    circular_replay_buffer.OutOfGraphReplayBuffer(*arguments, **kwargs),
    logged_replay_buffer.LoggedReplayBuffer(mock.Mock(), *arguments, **kwargs),
  )


def make_rows(lengths, terminals):
  """Yields distinct rows of episodes, and whether an episode ends with them."""
  random = np.random.default_rng(0)
  for length, terminal in zip(lengths, terminals, strict=True):
    for step in range(length):
      last = step == length - 1
      frame = random.integers(0, 256, (3, 2), np.uint8)
      action, reward = int(random.integers(9)), float(random.normal())
      yield (frame, action, reward, int(last and terminal)), last


def fill(memories, lengths, terminals, extra=()):
  for row, last in make_rows(lengths, terminals):
    for memory in memories:
      memory.add(*row, *extra, episode_end=last)


@hypothesis.settings(max_examples=100)
@hypothesis.given(
  capacity=st.integers(12, 60),
  stack_size=st.integers(1, 4),
  horizon=st.integers(1, 4),
  lengths=st.lists(st.integers(1, 20), min_size=1, max_size=12),
  data=st.data(),
)
def test_samples_are_dopamines(capacity, stack_size, horizon, lengths, data):
  terminals = data.draw(st.tuples(*[st.booleans()] * len(lengths)))
  memories = make_memories(capacity, stack_size, horizon)
  fill(memories, lengths, terminals)
  found = []
  for memory in memories:
    np.random.seed(1)
    draw = memory.sample_transition_batch
    try:
      found.append([*draw(), *draw(5)])
    except RuntimeError as error:
      found.append([str(error)[:4]])  # Too few rows, or no valid one.
  assert len(found[0]) == len(found[1])
  if len(found[0]) == 1:
    assert found[0][0] in ('Cann', 'Max ')
    return
  for theirs, ours in zip(*found, strict=True):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if theirs.dtype == np.float32 and horizon > 1:
      np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    else:
      np.testing.assert_array_equal(ours, theirs)


def test_extra_columns_are_sampled(caplog):
  extra = [circular_replay_buffer.ReplayElement('colour', (), np.int32)]
  memories = make_memories(50, 2, 1, extra_storage_types=extra)
  assert 'cannot be resumed' in caplog.text
  fill(memories, [20, 20], [True, True], extra=(7,))
  theirs, ours = (m.sample_transition_batch(2, [5, 30]) for m in memories)
  assert ours[-1].tolist() == theirs[-1].tolist() == [7, 7]
  with pytest.raises(ValueError, match='1 indices'):
    memories[1].sample_transition_batch(2, [5])
  with pytest.raises(ValueError, match='types cannot be restored'):
    memories[1].load('checkpoints', 1)


@hypothesis.given(
  capacity=st.integers(12, 40),
  stack_size=st.integers(1, 4),
  horizon=st.integers(1, 3),
  lengths=st.lists(st.integers(1, 15), min_size=1, max_size=9),
  share=st.floats(0, 1),
)
def test_a_memory_is_restored_from_its_log(
  tmp_path_factory, capacity, stack_size, horizon, lengths, share
):
  """It goes on like one that was never stopped, whatever was added after the save."""
  directory = str(tmp_path_factory.mktemp('run'))
  arguments = (3, 2), stack_size, capacity, 16, horizon, 0.9

  def make():
    log = replay_log.ReplayLog(
      f'{directory}/log', (3, 2), np.uint8, capacity, stack_size, horizon
    )
    return logged_replay_buffer.LoggedReplayBuffer(log, *arguments)

  rows = [*make_rows(lengths, [length % 3 > 0 for length in lengths])]
  kept = round(share * len(rows))
  dopamines = circular_replay_buffer.OutOfGraphReplayBuffer(*arguments)
  stopped = make()
  for row, last in rows[:kept]:
    dopamines.add(*row, episode_end=last)
    stopped.add(*row, episode_end=last)
  stopped.save(directory, 7)
  for row, last in rows[::-1]:
    stopped.add(*row, episode_end=last)
  memories = dopamines, make()
  with pytest.raises(tf.errors.NotFoundError):
    memories[1].load(directory, 8)
  memories[1].load(directory, 7)
  for row, last in [(None, None), *rows]:
    states = []
    for memory in memories:
      if row is not None:
        memory.add(*row, episode_end=last)
      filled = min(int(memory.add_count), capacity)
      columns = [column[:filled].tolist() for column in memory._store.values()]
      invalid = sorted(memory.invalid_range) if filled else None
      ends = sorted(memory.episode_end_indices)
      states.append([*columns, int(memory.add_count), invalid, ends])
    assert states[0] == states[1]


def test_the_log_has_truncated_episodes(tmp_path):
  """Those that end without a terminal; the next one begins with padding."""
  arguments = tmp_path, (3, 2), 3, 50, 8
  memory = logged_replay_buffer.OutOfGraphLoggedReplayBuffer(*arguments)
  for length, terminal in ((5, False), (4, True), (6, False)):
    fill([memory], [length], [terminal])
  memory.log_final_buffer()
  opened = store.Store(str(tmp_path), pack=False)
  assert opened.ends.tolist() == [6, 12, 20]
  assert opened.truncations.tolist() == [6, 20]


@pytest.mark.parametrize('reward', [-7, -0.5, np.float32(0.1), 3.0, np.nan])
def test_rewards_are_clipped_as_dopamine_does(reward):
  clipped = logged_replay_buffer.ClippedReward(reward)
  np.testing.assert_array_equal(float(clipped), np.clip(float(reward), -1, 1))
  np.testing.assert_array_equal(clipped.unclipped, float(reward))
