"""Sampling: the set of transitions, their values, and their distribution."""

import concurrent.futures
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_rl.dataset.sampling import columns, sequences
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.store import store
from batch_rl.tests import known_runs, ring_logs, shards

GAMMA = 0.5  # sums of clipped rewards are exact


def make_sampler(opened, stack_size=4, horizon=1, **kwargs):
  return sampler_lib.Sampler(opened, stack_size, horizon, GAMMA, **kwargs)


def drawn_transitions(sampler, rows):
  """Returns the transitions that a sampler gathers for rows of its store."""
  known_runs.assert_same_without_compiled_code(sampler, rows)
  batch = sampler.gather(rows)
  size = sampler.stack_size
  assert batch.windows.shape[1] == size + sampler.update_horizon
  assert batch.reward.dtype == np.float32 and batch.terminal.dtype == np.uint8
  assert np.array_equal(batch.rows, rows)
  frames = batch.windows
  assert (frames == frames[:, :, :1, :1]).all()
  assert not len(rows) or np.shares_memory(batch.state, batch.windows)
  frames = frames[:, :, 0, 0]
  state, next_state = batch.state[..., 0, 0], batch.next_state[..., 0, 0]
  found = []
  for i in range(len(rows)):
    steps, terminal = int(batch.steps[i]), int(batch.terminal[i])
    assert steps == sampler.update_horizon or terminal
    following = next_state[i].tolist(), int(batch.next_action[i])
    assert following[0] == frames[i, steps : steps + size].tolist()
    values = int(batch.action[i]), float(batch.reward[i]), terminal
    after = (None, None) if terminal else following
    found.append(known_runs.Transition(state[i].tolist(), *values, *after))
  return found


def assert_draws(sampler, run, present, kept=None):
  """Asserts that a sampler draws exactly the valid transitions of a run.

  Its store has the shards `present`; it may be restricted to the shards `kept`.
  """
  in_store = run.rows_of(present)
  chosen = [r for r in in_store if kept is None or run.shard_of[r] in kept]
  sizes = sampler.stack_size, sampler.update_horizon
  expected = known_runs.transitions(run, chosen, *sizes, GAMMA)
  valid = sampler.valid_rows()
  assert [in_store[row] for row in valid] == list(expected)
  assert sampler.num_transitions == len(expected)
  assert drawn_transitions(sampler, valid) == list(expected.values())
  every = np.arange(-2, len(in_store) + 2)
  np.testing.assert_array_equal(every[sampler.is_valid(every)], valid)


@given(data=st.data())
def test_all_transitions_of_the_run_are_valid(tmp_path_factory, data):
  """Some shards may be missing, and the sampler may be restricted to others."""
  run, present = known_runs.draw_run(data, tmp_path_factory.mktemp('run'))
  kept = data.draw(st.none() | st.sets(st.sampled_from(sorted(present))))
  opened = known_runs.open_store(run.directory)
  for stack_size in (1, 2, 3, 4, 5):
    sampler = make_sampler(opened, stack_size, data.draw(st.integers(1, 4)))
    assert_draws(sampler, run, present)
    if kept is not None:
      sampler.restrict(kept)
      assert_draws(sampler, run, present, kept)
      sampler.restrict(None)
      assert_draws(sampler, run, present)


@pytest.mark.parametrize(
  ('lengths', 'run', 'gone', 'left'),
  [([35, 30], (20, 4), 1, (15, 30)), ([15, 40, 40], (26, 8), 0, (40, 40))],
)
def test_padding_after_a_gap_is_no_step(tmp_path, lengths, run, gone, left):
  """The shard begins with two rows of an episode's three, or four of seven."""
  shards.write_run(tmp_path, lengths, *run)
  ring_logs.remove_shard(tmp_path, gone)
  sampler = make_sampler(known_runs.open_store(tmp_path), stack_size=3)
  columns = sampler.named_columns(sampler.valid_rows(), 'timestep')
  assert [*columns['timestep']] == [step for n in left for step in range(n)]
  with pytest.raises(ValueError, match='no row -1: the run has'):
    sampler.named_columns([3, -1], ['return_to_go'])
  with pytest.raises(ValueError, match='batches=-1 is not an integer >= 1'):
    sampler.batches(0, 4, -1)
  for seed, wrong in ((-1, '-1'), (1.5, '1.5'), ('1', "'1'"), ([3, -1], '-1')):
    with pytest.raises(ValueError, match=f'seed={wrong} is not an integer'):
      sampler.reseed(seed)


def reveals_its_padding(run, suffix, logged_with):
  """Returns whether a shard has an episode whose first step is not black."""
  first_rows = [
    row + 1
    for row in range(1, len(run.rows) - 3)
    if run.rows[row].terminal
    and run.shard_of[row - 1] == run.shard_of[row + 3] == suffix
  ]
  return any(run.rows[row + logged_with - 1].frame for row in first_rows)


@given(
  lengths=st.lists(st.integers(1, 20), min_size=2, max_size=16),
  capacity=st.integers(6, 50),
  black=st.lists(st.integers(0, 5), max_size=10),
  logged_with=st.integers(1, 4),
  gone=st.integers(-1, 3),
)
def test_padding_is_never_drawn_and_black_frames_are(
  tmp_path_factory, lengths, capacity, black, logged_with, gone
):
  """Loggers pad with 0 to 3 rows, which black first frames resemble.

  Where the data cannot distinguish them, the first steps of an episode may be
  lost, but never with four frames in a state.
  """
  directory = tmp_path_factory.mktemp('run')
  run = known_runs.write_run(directory, lengths, capacity, logged_with, black)
  present = set(run.suffixes) - {gone} or {gone}
  if gone >= 0 and len(run.suffixes) > 1:
    ring_logs.remove_shard(directory, gone)
  opened, in_store = known_runs.open_store(directory), run.rows_of(present)
  for stack_size in (1, 2, 3, 4):
    sampler = make_sampler(opened, stack_size)
    expected = known_runs.transitions(run, in_store, stack_size, 1, GAMMA)
    valid = sampler.valid_rows()
    rows = [in_store[row] for row in valid]
    assert drawn_transitions(sampler, valid) == [expected[row] for row in rows]
    missing = set(expected) - set(rows)
    if stack_size == 4:
      assert not missing
    for row in missing:
      begin = row
      while begin - 1 in in_store and not run.rows[begin - 1].terminal:
        begin -= 1
      assert row < begin + 3
      if reveals_its_padding(run, run.shard_of[begin], logged_with):
        # Only black frames after a gap are lost.
        assert begin - 1 not in in_store
        assert not any(run.rows[r].frame for r in range(begin, row + 1))


def test_rows_that_cannot_be_drawn_are_not_gathered(tmp_path):
  known_runs.write_run(tmp_path, [30, 25, 40], capacity=50)
  sampler = make_sampler(known_runs.open_store(tmp_path))
  valid = sampler.valid_rows()
  assert sampler.gather(valid.tolist()).rows.tolist() == valid.tolist()
  # The first row, padding, padding of the next episode, none, and beyond the run.
  for row in (-1, 0, 2, 34, 9.5, sampler.store.rows):
    with pytest.raises(ValueError, match=f'^Row {row} '):
      sampler.gather(np.array([valid[0], row, -9]))
  with pytest.raises(ValueError, match='No shard 7 in'):
    sampler.restrict([7])
  sampler.restrict([])
  with pytest.raises(ValueError, match='No valid transition'):
    sampler.draw(0, 1)


def test_wrong_batches_and_frames_are_refused(opened):
  sampler = make_sampler(opened)
  rows = sampler.valid_rows()[:10]
  with pytest.raises(ValueError, match='10 rows do not divide by batches=3'):
    sampler.read(rows, 3)
  with pytest.raises(ValueError, match="frames='stack' is not 'windows'"):
    sampler.gather(rows, 'stack')
  of_sequences = sequences.SequenceSampler(opened, 4)
  for make in sampler.draw, sampler.batch, of_sequences.batch:
    for numbers in (1.5, 4), (-1, 4), (0, True):
      with pytest.raises(ValueError, match='is not an integer >= 0'):
        make(*numbers)


@pytest.mark.parametrize(
  ('dtype', 'function'),
  [
    (np.float32, lambda at: at.store.reward),  # of the whole run
    (np.float32, lambda at: 1.0),
    (np.int32, lambda at: np.full(len(at.rows), 0.5)),
    (np.uint8, lambda at: at.rows + 256),
  ],
)
def test_a_column_has_one_number_of_its_type_a_row(opened, dtype, function):
  at = columns.Rows(make_sampler(opened), np.arange(4), np.ones(1))
  with pytest.raises(ValueError, match='The column <lambda> returned'):
    columns.Column(function, dtype)(at)
  column = columns.Column(lambda at: at.rows, np.uint8)
  assert column(at).tolist() == [*range(4)]


@pytest.mark.parametrize('name', ['stack_size', 'update_horizon'])
@pytest.mark.parametrize('value', [0, -1, 1.5])
def test_wrong_numbers(opened, name, value):
  """Compiled code would write outside its memory."""
  with pytest.raises(ValueError, match=f'{name}={value}'):
    sampler_lib.Sampler(opened, **{'stack_size': 4, name: value})
  for gamma in (1.1, '0.9', None):
    with pytest.raises(ValueError, match=f'gamma={gamma!r} is not a number'):
      sampler_lib.Sampler(opened, 4, gamma=gamma)
  with pytest.raises(ValueError, match="'' is not a subset"):
    sampler_lib.Sampler(opened, 4, subset='')


@pytest.mark.parametrize(
  'seed, number, rows',
  [
    (0, 0, [29, 5, 204, 57, 85, 102]),
    (1, 10**9, [168, 89, 82, 70, 100, 197]),
    (2**64, 7, [216, 37, 87, 57, 91, 68]),
  ],
)
def test_the_draws_of_a_seed_never_change(opened, seed, number, rows):
  """Recorded draws: a run resumed with a new version continues on the same data."""
  sampler = make_sampler(opened, seed=seed)
  assert sampler.draw(number, 6).tolist() == rows
  assert sampler.wait_until_compiled()
  assert sampler.batch(number, 6).rows.tolist() == rows


def assert_uniform(drawn, valid):
  """Chi-square test with a bound that one run in millions exceeds by chance."""
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
  sampler = make_sampler(opened, subset=subset, seed=0)
  sampler.restrict(kept)
  valid = sampler.valid_rows()
  assert len(valid) > 10
  assert_uniform(sampler.draw(0, 300 * len(valid)), valid)
  drawn = np.concatenate([sampler.draw(n, 3) for n in range(70 * len(valid))])
  assert_uniform(drawn, valid)


def test_batches_depend_on_seed_and_number_only(opened):
  """Not on their order, on threads, or on the counter of batches."""
  sampler = make_sampler(opened, seed=3)
  expected = [sampler.batch(number, 16) for number in range(40)]
  order = list(range(40)) * 2
  random.Random(0).shuffle(order)
  shared = make_sampler(opened, seed=3)
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    numbers = list(pool.map(lambda _: shared.next_number(), order))
    found = list(pool.map(lambda n: shared.batch(n, 16), order))
  assert sorted(numbers) == list(range(80))
  for number, batch in zip(order, found, strict=True):
    known_runs.assert_same(batch, expected[number])
  shared.reseed(4)
  assert shared.next_number() == 0
  assert shared.draw(0, 16).tolist() != expected[0].rows.tolist()
  shared.reseed(3)
  known_runs.assert_same(shared.batch(0, 16), expected[0])
  shared.reseed(None)
  other = make_sampler(opened).draw(0, 16)
  assert shared.draw(0, 16).tolist() != other.tolist()


def test_draws_wait_for_the_shards(known_run, opened, gate):
  packing = store.Store(known_run.directory, pack=False)
  packing.start(first=[3, 1])
  sampler = make_sampler(packing, seed=0)
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    for shards, count in ((None, 5), ([3, 1], 2)):
      sampler.restrict(shards)
      batch = thread.submit(sampler.batch, 9, 50)
      if shards is None:
        gate.release(count - 1)
        assert not concurrent.futures.wait([batch], timeout=0.1).done
        gate.release()
      other = make_sampler(opened, seed=0)
      other.restrict(shards)
      known_runs.assert_same(batch.result(60), other.batch(9, 50))


def test_hash_and_subset_are_known_before_frames_are_packed(known_run, gate):
  """Neither the hash of the data nor the subset's trajectories change later."""
  packing = store.Store(known_run.directory)
  early = make_sampler(packing, subset='first_transitions(77)')
  known = early.subset_hash(), early.num_trajectories
  gate.release(5)
  packing.wait()
  late = make_sampler(packing, subset='first_transitions(77)')
  assert known == (early.subset_hash(), early.num_trajectories)
  assert known == (late.subset_hash(), late.num_trajectories)
  assert early.num_transitions == late.num_transitions == 77


@pytest.mark.parametrize('weighting', ['trajectories', 'returns'])
def test_weighted_batches_have_the_drawn_rows(opened, weighting):
  """`sequences_test` has the distribution of the draws."""
  sampler = make_sampler(opened, weighting=weighting, seed=1)
  assert sampler.wait_until_compiled()
  uniform = make_sampler(opened, seed=1)
  for number, batch in enumerate(sampler.batches(3, 8, 3), 3):
    rows = sampler.draw(number, 8)
    assert sampler.is_valid(rows).all()
    assert rows.tolist() != uniform.draw(number, 8).tolist()
    np.testing.assert_array_equal(batch.rows, rows)
