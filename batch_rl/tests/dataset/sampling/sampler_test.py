"""What is drawn: which transitions, with which values, how often, in which order."""

import collections
import concurrent.futures
import dataclasses
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs, shards

SAMPLE = 'data/Pong/1/replay_logs'
GAMMA = 0.5  # sums of clipped rewards are exact


def open_store(data_dir, **kwargs):
  opened = store.Store(str(data_dir), **kwargs)
  opened.wait()
  return opened


def make_sampler(opened, stack_size=4, horizon=1, **kwargs):
  return sampler.Sampler(opened, stack_size, horizon, GAMMA, **kwargs)


def open_sampler(data_dir, **kwargs):
  return make_sampler(open_store(data_dir), **kwargs)


@dataclasses.dataclass(frozen=True)
class Run:
  """A run on disk, and what is known of its rows, all in time order.

  `is_step` tells transitions from padding, which on disk nothing does for sure;
  `shard_of` has the shard that each row is part of.
  """

  directory: str
  capacity: int
  rows: list[shards.Row]
  is_step: list[bool]
  shard_of: list[int]

  @property
  def suffixes(self):
    return sorted(set(self.shard_of))

  def rows_of(self, present):
    """Rows of these shards, as far as it is known what they are.

    What precedes row 0 of the ring in a final shard is the end of the shard
    before it, or nothing at all.
    """
    last = max(self.suffixes)
    unknown = last * self.capacity - 1
    if len(self.rows) % self.capacity == self.capacity - 1 or not last:
      unknown = None  # it is no different from the others
    return [
      row
      for row, suffix in enumerate(self.shard_of)
      if suffix in present and (row != unknown or last - 1 in present)
    ]


def write_run(directory, lengths, capacity, logged_with=4, black=(), cut=0):
  """Writes episodes; `black[e]` of the first frames of episode e are zero.

  The last `cut` rows are left out, as if the run had been stopped.
  """
  episodes = shards.make_episodes(lengths)
  for episode, count in zip(episodes, black, strict=False):
    for step in range(min(count, len(episode))):
      episode[step] = dataclasses.replace(episode[step], frame=0)
  rows = shards.with_padding(episodes, logged_with)
  is_step = [
    at >= logged_with - 1
    for length in lengths
    for at in range(logged_with - 1 + length)
  ]
  stop = max(1, len(rows) - cut)
  shard_of = ring_logs.write_run(directory, rows[:stop], capacity)
  return Run(str(directory), capacity, rows[:stop], is_step[:stop], shard_of)


Transition = collections.namedtuple(
  'Transition', 'stack action reward terminal next_stack next_action'
)


def transitions(run, kept, stack_size, horizon):
  """Slow: `{row of the run: Transition}`, if there are only the rows `kept`."""
  rows, kept = run.rows, set(kept)

  def there(row):
    return row in kept

  def stack_at(row):
    return [rows[r].frame for r in range(row - stack_size + 1, row + 1)]

  found = {}
  for row in sorted(kept):
    before = range(row - stack_size + 1, row)
    if not run.is_step[row]:
      continue
    if not all(there(r) and not rows[r].terminal for r in before):
      continue
    reward, terminal, after = 0.0, 0, row
    while after < row + horizon and there(after) and not terminal:
      reward += GAMMA ** (after - row) * rows[after].reward
      terminal = rows[after].terminal
      after += 1
    if terminal:
      following = None, None
    elif after == row + horizon and there(after):
      following = stack_at(after), rows[after].action
    else:
      continue
    found[row] = Transition(
      stack_at(row), rows[row].action, reward, terminal, *following
    )
  return found


def drawn_transitions(made, rows):
  """The same, as a sampler gathers them for rows of its store."""
  batch = made.gather(rows)
  next_action, _ = made.next_action_and_reward(batch)
  size = made.stack_size
  assert batch.windows.shape[1] == size + made.update_horizon
  assert batch.reward.dtype == np.float32 and batch.terminal.dtype == np.uint8
  assert np.array_equal(batch.rows, rows)
  frames = batch.windows
  assert (frames == frames[:, :, :1, :1]).all()
  frames = frames[:, :, 0, 0]
  found = []
  for i in range(len(rows)):
    steps, terminal = int(batch.steps[i]), int(batch.terminal[i])
    assert steps == made.update_horizon or terminal
    following = frames[i, steps : steps + size].tolist(), int(next_action[i])
    found.append(
      Transition(
        frames[i, :size].tolist(),
        int(batch.action[i]),
        float(batch.reward[i]),
        terminal,
        *((None, None) if terminal else following),
      )
    )
  return found


def assert_draws(made, run, present, kept=None):
  """The sampler has exactly the transitions of a run that it should have.

  Args:
    made: the sampler.
    run: on disk.
    present: the shards in the sampler's store.
    kept: those that it may draw from; None for all.
  """
  in_store = run.rows_of(present)
  chosen = [
    row for row in in_store if kept is None or run.shard_of[row] in kept
  ]
  expected = transitions(run, chosen, made.stack_size, made.update_horizon)
  valid = made.valid_rows()
  assert [in_store[row] for row in valid] == list(expected)
  assert made.num_transitions == len(expected)
  assert drawn_transitions(made, valid) == list(expected.values())
  every = np.arange(-2, len(in_store) + 2)
  np.testing.assert_array_equal(every[made.is_valid(every)], valid)


@settings(max_examples=40, deadline=None)
@given(
  lengths=st.lists(st.integers(1, 30), min_size=1, max_size=10),
  capacity=st.integers(6, 50),
  cut=st.integers(0, 5),
  data=st.data(),
)
def test_what_is_drawn_are_the_transitions_of_the_run(
  tmp_path_factory, lengths, capacity, cut, data
):
  """With shards missing, and with a choice of those that are there."""
  run = write_run(tmp_path_factory.mktemp('run'), lengths, capacity, cut=cut)
  present = set(run.suffixes)
  if len(present) > 1 and data.draw(st.booleans(), label='some are missing'):
    gone = data.draw(st.sets(st.sampled_from(run.suffixes), max_size=3))
    present = present - gone or present
    for suffix in set(run.suffixes) - present:
      ring_logs.remove_shard(run.directory, suffix)
  kept = data.draw(st.none() | st.sets(st.sampled_from(sorted(present))))
  opened = open_store(run.directory)
  for stack_size in (1, 2, 3, 4, 5):
    horizon = data.draw(st.integers(1, 4))
    made = make_sampler(opened, stack_size, horizon)
    assert_draws(made, run, present)
    if kept is not None:
      made.restrict(kept)
      assert_draws(made, run, present, kept)
      made.restrict(None)
      assert_draws(made, run, present)


@pytest.mark.parametrize('offset', range(10))
def test_no_transition_is_lost_at_a_seam(tmp_path, offset):
  """Wherever an episode lies around it, padding, first step and last."""
  run = write_run(tmp_path, [15 + offset, 1, 2, 30, 12], capacity=20)
  for horizon in (1, 3):
    assert_draws(open_sampler(tmp_path, horizon=horizon), run, run.suffixes)
  made = open_sampler(tmp_path)
  assert made.num_transitions == sum(run.is_step)
  crossing = [
    row
    for row in made.valid_rows()
    if run.shard_of[row - 3] != run.shard_of[min(row + 1, len(run.rows) - 1)]
  ]
  assert crossing


def shows_its_padding(run, suffix, logged_with):
  """Whether a shard has an episode whose first step is seen not to be padding."""
  first_rows = [
    row + 1
    for row in range(1, len(run.rows) - 3)
    if run.rows[row].terminal
    and run.shard_of[row - 1] == run.shard_of[row + 3] == suffix
  ]
  return any(run.rows[row + logged_with - 1].frame for row in first_rows)


@settings(max_examples=60, deadline=None)
@given(
  lengths=st.lists(st.integers(1, 20), min_size=2, max_size=16),
  capacity=st.integers(6, 50),
  black=st.lists(st.integers(0, 5), max_size=10),
  logged_with=st.integers(1, 4),
  gone=st.integers(-1, 3),
)
def test_black_frames_and_other_padding(
  tmp_path_factory, lengths, capacity, black, logged_with, gone
):
  """Padding is never drawn, whoever logged it; steps that look like it are.

  Where nothing tells one from the other, the first steps of an episode may be
  lost, but with four frames in a state none are.
  """
  directory = tmp_path_factory.mktemp('run')
  run = write_run(directory, lengths, capacity, logged_with, black)
  present = set(run.suffixes) - {gone} or {gone}
  if gone >= 0 and len(run.suffixes) > 1:
    ring_logs.remove_shard(directory, gone)
  opened, in_store = open_store(directory), run.rows_of(present)
  for stack_size in (1, 2, 3, 4):
    made = make_sampler(opened, stack_size)
    expected = transitions(run, in_store, stack_size, 1)
    valid = made.valid_rows()
    rows = [in_store[row] for row in valid]
    assert drawn_transitions(made, valid) == [expected[row] for row in rows]
    missing = set(expected) - set(rows)
    if stack_size == 4:
      assert not missing
    for row in missing:
      begin = row
      while begin - 1 in in_store and not run.rows[begin - 1].terminal:
        begin -= 1
      assert row < begin + 3
      if shows_its_padding(run, run.shard_of[begin], logged_with):
        # Only at the start of what is there, and only if it is black.
        assert begin - 1 not in in_store
        assert not any(run.rows[r].frame for r in range(begin, row + 1))


def test_a_run_may_begin_with_any_shard(tmp_path):
  """Its first row is the one that precedes row 0 of the ring."""
  run = write_run(tmp_path, [30, 25, 40, 11, 60, 33, 8], capacity=50)
  for suffix in (0, 1, 2):
    ring_logs.remove_shard(tmp_path, suffix)
  opened = open_store(tmp_path)
  assert opened.suffixes == [3, 4]
  assert opened.rows == len(run.rows) - 149
  for stack_size in (1, 4):
    assert_draws(make_sampler(opened, stack_size), run, {3, 4})


@pytest.mark.parametrize('rows_at_the_end', [1, 2, 5, 48, 49, 50])
def test_the_final_shard_ends_at_its_cursor(tmp_path, rows_at_the_end):
  """What lies beyond is the lap before, which is in the shard before."""
  run = write_run(tmp_path, [146 + rows_at_the_end], capacity=50)
  frames = [row.frame for row in run.rows if row.frame]
  assert len(set(frames)) == len(frames)  # so each is known by its frame
  made = open_sampler(tmp_path)
  assert made.store.suffixes == list(range(3 + (rows_at_the_end > 0)))
  newest = made.gather(made.valid_rows()).windows[:, 3, 0, 0]
  assert newest.tolist() == frames
  assert_draws(made, run, run.suffixes)


# --- batches ------------------------------------------------------------------


def assert_same(left, right):
  for a, b in zip(left, right, strict=True):
    np.testing.assert_array_equal(a, b)


def batches_differ(left, right):
  return not np.array_equal(left.rows, right.rows)


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """A run of five shards, shared: nothing here writes to it."""
  directory = tmp_path_factory.mktemp('small')
  return write_run(directory, [30, 25, 40, 11, 60, 33], capacity=50)


@pytest.fixture(scope='module')
def opened(small):
  return open_store(small.directory)


def test_a_batch_is_a_function_of_seed_and_number(opened):
  one, two = make_sampler(opened, seed=3), make_sampler(opened, seed=3)
  expected = [one.batch(number, 16) for number in range(40)]
  order = list(range(40)) * 2
  random.Random(0).shuffle(order)
  for number in order:
    two.next_number()  # whatever numbers were given out
    assert_same(two.batch(number, 16), expected[number])


@pytest.mark.parametrize(
  'seed, number, rows',
  [
    (0, 0, [29, 5, 204, 57, 85, 102]),
    (1, 10**9, [168, 89, 82, 70, 100, 197]),
    (2**64, 7, [216, 37, 87, 57, 91, 68]),
  ],
)
def test_what_a_seed_draws_never_changes(opened, seed, number, rows):
  """As recorded: runs that began with another version go on with the same data."""
  assert make_sampler(opened, seed=seed).draw(number, 6).tolist() == rows


def test_a_batch_is_the_same_from_any_thread(opened):
  expected = [make_sampler(opened, seed=3).batch(n, 64) for n in range(60)]
  shared = make_sampler(opened, seed=3)
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda n: shared.batch(n, 64), [*range(60)] * 3))
  for number, batch in enumerate(found):
    assert_same(batch, expected[number % 60])


def test_numbers_never_repeat(opened):
  made = make_sampler(opened, seed=0)
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    numbers = list(pool.map(lambda _: made.next_number(), range(5000)))
  assert sorted(numbers) == list(range(5000))


def test_batches_of_other_seeds_and_numbers_are_others(opened):
  drawn = set()
  for seed in (0, 1, 2, 2**31 - 1, 2**32, 2**64):
    made = make_sampler(opened, seed=seed)
    for number in (0, 1, 2, 255, 256, 2**32, 2**32 + 1, 2**63):
      drawn.add(tuple(made.draw(number, 12)))
  assert len(drawn) == 6 * 8


def test_no_batch_is_part_of_another(opened):
  """As neighbouring numbers would be, if they were places in one stream."""
  made = make_sampler(opened, seed=1)
  long = made.draw(7, 20_000)
  for number in (0, 6, 8, 9):
    short = made.draw(number, 5)
    places = np.flatnonzero(long[:-4] == short[0])
    assert len(places) > 50
    assert not any(np.array_equal(long[p : p + 5], short) for p in places)


def test_without_a_seed_it_is_chance(opened):
  one, two = make_sampler(opened), make_sampler(opened)
  assert batches_differ(one.batch(0, 32), two.batch(0, 32))


def test_reseeding_starts_again(opened):
  made = make_sampler(opened, seed=5)
  first = made.batch(made.next_number(), 32)
  assert made.next_number() == 1
  made.reseed(6)
  assert made.next_number() == 0
  assert batches_differ(made.batch(0, 32), first)
  made.reseed(5)
  assert_same(made.batch(made.next_number(), 32), first)
  made.reseed(None)
  assert batches_differ(made.batch(made.next_number(), 32), first)


def assert_uniform(drawn, valid):
  """Chi-square, against a bound that one run in millions would exceed."""
  counts = np.array([np.count_nonzero(drawn == row) for row in valid])
  assert counts.sum() == len(drawn)
  expected = len(drawn) / len(valid)
  chi_square = ((counts - expected) ** 2 / expected).sum()
  freedom = len(valid) - 1
  assert abs(chi_square - freedom) < 6 * np.sqrt(2 * freedom)


@pytest.mark.parametrize('kept', [None, {0, 3}])
@pytest.mark.parametrize('subset', [None, 'random_trajectories(0.5)'])
def test_draws_are_uniform(opened, kept, subset):
  """Within a batch, and from batch to batch."""
  made = make_sampler(opened, subset=subset, seed=0)
  made.restrict(kept)
  valid = made.valid_rows()
  assert len(valid) > 10
  assert_uniform(made.draw(0, 300 * len(valid)), valid)
  drawn = np.concatenate([made.draw(n, 3) for n in range(70 * len(valid))])
  assert_uniform(drawn, valid)
  # One says nothing of the next, nor of the next batch.
  for lag in (1, 3):
    correlation = np.corrcoef(drawn[lag:], drawn[:-lag])[0, 1]
    assert abs(correlation) < 6 / np.sqrt(len(drawn))


def test_restricting_is_like_having_no_other_shards(small, opened):
  made = make_sampler(opened, seed=2)
  for kept in ([1], [0, 1], [0, 2, 3], [4]):
    made.restrict(kept)
    alone = make_sampler(open_store(small.directory, suffixes=kept), seed=2)
    batch, other = made.batch(0, 50), alone.batch(0, 50)
    if kept == [4]:
      # Of a final shard alone it is not known what precedes its first row.
      assert made.num_transitions == alone.num_transitions + 1
      continue
    assert made.num_transitions == alone.num_transitions
    assert_same(batch[1:], other[1:])
    assert not np.array_equal(batch.rows, other.rows) or kept[0] == 0
  made.restrict([])
  with pytest.raises(ValueError, match='No whole transition'):
    made.draw(0, 1)


# --- while shards arrive ------------------------------------------------------


def test_shards_are_taken_in_as_they_arrive(small, opened, gate):
  arriving = store.Store(small.directory, pack=False)
  arriving.start(first=[3, 1])
  made = make_sampler(arriving, horizon=2, seed=0)
  assert made.num_transitions == 0
  with pytest.raises(ValueError, match='No whole transition'):
    made.draw(0, 1)
  for count in range(1, 6):
    gate.release()
    arriving.wait(count=count)
    packed = set(arriving.packed)
    assert len(packed) == count
    there = [r for r, suffix in enumerate(small.shard_of) if suffix in packed]
    expected = transitions(small, there, 4, 2)
    rows = made.draw(count, 100)
    assert made.valid_rows().tolist() == list(expected)
    assert drawn_transitions(made, rows) == [expected[row] for row in rows]
  whole = make_sampler(opened, horizon=2, seed=0)
  assert_same(made.batch(9, 50), whole.batch(9, 50))


def test_refreshing_is_enough_to_take_in_a_shard(small, gate):
  arriving = store.Store(small.directory)
  made = make_sampler(arriving)
  gate.release(5)
  arriving.wait()
  assert made.num_transitions == 0
  made.refresh()
  assert made.num_transitions == sum(small.is_step)


def test_a_shard_that_arrives_while_threads_draw_is_not_forgotten(
  small, gate, monkeypatch
):
  """One thread takes in the first shards, slowly, another all of them."""
  arriving = store.Store(small.directory)
  gate.release(2)
  arriving.wait(count=2)
  made = make_sampler(arriving)
  slow, may_end = threading.Event(), threading.Event()
  original = arriving.lead

  def lead(suffix):
    if threading.current_thread() is first and not slow.is_set():
      slow.set()
      may_end.wait(1)
    return original(suffix)

  monkeypatch.setattr(arriving, 'lead', lead)
  first = threading.Thread(target=made.refresh)
  first.start()
  assert slow.wait(10)
  gate.release(3)
  arriving.wait()
  second = threading.Thread(target=made.draw, args=(0, 8))
  second.start()
  second.join(0.5)  # unless it waits for the first one
  may_end.set()
  first.join()
  second.join()
  made.draw(1, 8)
  assert made.num_transitions == sum(small.is_step)


def test_what_is_known_before_frames_arrive(small, gate):
  """The identity of the data, and what a subset selects, do not change."""
  arriving = store.Store(small.directory)
  early = make_sampler(arriving, subset='first_transitions(77)')
  found = early.subset_hash(), early.num_trajectories
  gate.release(5)
  arriving.wait()
  late = make_sampler(arriving, subset='first_transitions(77)')
  assert found == (early.subset_hash(), early.num_trajectories)
  assert found == (late.subset_hash(), late.num_trajectories)
  early.refresh()
  assert early.num_transitions == late.num_transitions == 77
