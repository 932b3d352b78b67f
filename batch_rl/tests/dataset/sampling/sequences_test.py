"""Sequences: their content, compared with a loop over the rows, and their distribution."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl.dataset.sampling import sequences
from batch_rl.tests import interchange_runs, known_runs, ring_logs
from batch_rl.tests.known_runs import LENGTHS, open_store, write_run


def make(opened, length=5, stack_size=3, **kwargs):
  return sequences.SequenceSampler(opened, length, stack_size, **kwargs)


def trajectories_of(run, kept):
  """Divides rows of a run at ends and gaps: `(rows, begins at a reset)` of each."""
  found = []
  for row in kept:
    follows = row - 1 in kept
    if not follows or run.rows[row - 1].terminal:
      found.append(([], follows or row == 0))
    found[-1][0].append(row)
  return found


def expected_sequences(run, kept, selected, length, stack_size, gamma):
  """Returns `{row: columns}` of the sequences that end at each row, step by step."""
  expected = {}
  for trajectory, at_reset in trajectories_of(run, kept):
    padding = [row for row in trajectory if not run.is_step[row]]
    first = len(padding)
    steps = trajectory[first if at_reset else max(first, stack_size - 1) :]
    steps = [row for row in steps if row in selected]
    to_go, after = {}, 0.0
    for row in trajectory[::-1]:
      to_go[row] = after = run.rows[row].reward + gamma * after
    for i, last in enumerate(steps):
      inside = steps[max(0, i - length + 1) : i + 1]
      context = range(inside[0] - stack_size + 1, last + 1)
      frames = [run.rows[r].frame if r in trajectory else 0 for r in context]
      columns = []
      for row in inside:
        _, *logged = dataclasses.astuple(run.rows[row])
        place, left = trajectory.index(row) - first, np.float32(to_go[row])
        columns.append((row, *logged, place, float(left), True))
      absent = length - len(inside)
      padding = [(-1, 0, 0, 0, 0, 0, False)] * absent
      expected[last] = [0] * absent + frames, padding + columns
  return expected


def assert_is_as_expected(sampler, run, present, selected=None):
  kept = run.rows_of(present)
  rows = dict.fromkeys(kept), set(kept if selected is None else selected)
  settings = sampler.length, sampler.stack_size, sampler.gamma
  expected = expected_sequences(run, *rows, *settings)
  assert [kept[row] for row in sampler.steps()] == list(expected)
  assert sampler.num_steps == len(expected)
  if not expected:
    return
  assert sampler.wait_until_compiled()
  compiled = sampler.gather(sampler.steps())
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sampler._compiled, '_kernel', None)
    batch = sampler.gather(sampler.steps())
  known_runs.assert_same(compiled, batch)
  assert (batch.frames == batch.frames[..., :1, :1]).all()
  columns = [np.where(batch.mask, np.array(kept)[batch.rows], -1), *batch[2:]]
  for i, (frames, steps) in enumerate(expected.values()):
    assert batch.frames[i, :, 0, 0].tolist() == frames
    assert list(zip(*(c[i].tolist() for c in columns), strict=True)) == steps
  states = batch.state
  assert states.shape == (*batch.rows.shape, sampler.stack_size, 2, 2)
  last = sampler.length - 1
  np.testing.assert_array_equal(states[:, last], batch.frames[:, last:])
  assert np.shares_memory(states, batch.frames)


@hypothesis.given(data=st.data())
def test_all_steps_of_the_run_are_reached(tmp_path_factory, data):
  """Some shards may be missing."""
  run, present = known_runs.draw_run(data, tmp_path_factory.mktemp('run'))
  opened = open_store(run.directory)
  for stack_size in (1, data.draw(st.sampled_from([3, 4, 6]))):
    length = data.draw(st.integers(1, 12))
    gamma = data.draw(st.sampled_from([0, 0.5, 1.0]))
    sampler = make(opened, length, stack_size, gamma=gamma)
    assert_is_as_expected(sampler, run, present)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  return write_run(tmp_path_factory.mktemp('run'), LENGTHS, 50, dropped=4)


@pytest.fixture(scope='module')
def opened(run):
  return open_store(run.directory)


@pytest.mark.parametrize('count', [1, 31, 90, 1 << 63])
@pytest.mark.parametrize('from_end', [False, True])
def test_no_step_is_outside_the_subset(run, opened, count, from_end):
  steps = np.flatnonzero(run.is_step)
  selected = steps[-count:] if from_end else steps[:count]
  text = f'{"last" if from_end else "first"}_transitions({count})'
  sampler = make(opened, 7, 4, gamma=0.5, subset=text)
  assert_is_as_expected(sampler, run, run.suffixes, selected.tolist())


def test_shards_join_once_they_are_drawn_from(run, opened):
  sampler = make(opened, 4, 2, seed=0)
  sampler.restrict([])
  with pytest.raises(ValueError, match='No step of a trajectory in'):
    sampler.batch(0, 4)
  sampler.restrict(None)
  sampler.batch(0, 4)
  assert sampler.num_trajectories == len(LENGTHS)
  assert_is_as_expected(sampler, run, run.suffixes)


def test_values_do_not_depend_on_the_shards_that_are_packed(opened):
  """A sequence is shorter where rows are not packed; its other columns are equal."""
  every, some = make(opened, 6, 4), make(opened, 6, 4)
  some.restrict([1, 2])
  rows = some.steps()
  part, whole = some.gather(rows), every.gather(rows)
  assert part.mask.sum() < whole.mask.sum()
  for name in ('rows', 'action', 'reward', 'timestep', 'return_to_go'):
    left, right = getattr(part, name), getattr(whole, name)
    np.testing.assert_array_equal(left[part.mask], right[part.mask])


def test_truncated_and_late_episodes(tmp_path):
  """The last step of a truncated episode is a step, but not terminal."""
  random = np.random.default_rng(0)
  logged = [
    (random.integers(1, 256, (n, 2, 2), np.uint8), [1] * n, [1.0] * n)
    for n in (9, 8, 12, 7)
  ]
  kinds = {0: 'truncated', 2: 'late', 3: 'open'}
  opened = open_store(interchange_runs.write_run(tmp_path, logged, 15, kinds))
  sampler = make(opened, 20, 4)
  batch = sampler.gather(sampler.steps())
  last = batch.return_to_go[:, -1] == 1
  # The first three rows of the late episode are the context of the others.
  assert batch.mask[last].sum(axis=1).tolist() == [9, 8, 9, 7]
  assert batch.terminal[last, -1].tolist() == [0, 1, 1, 0]
  assert batch.terminal.sum() == 2 and sampler.num_trajectories == 4
  for i, (observation, *_) in zip(np.flatnonzero(last), logged, strict=True):
    n = len(observation)
    np.testing.assert_array_equal(batch.frames[i, -n:], observation)
    assert not batch.frames[i, :-n].any()
  complete = make(opened, 20, 4, complete_only=True)
  assert complete.num_trajectories == 2 and complete.num_steps == 9 + 8
  assert make(opened, 20, 1).num_steps == 9 + 8 + 12 + 7


def test_complete_trajectories_have_all_their_rows(tmp_path):
  """A missing shard cuts off both ends, as the end of the log does."""
  run = write_run(tmp_path, LENGTHS, 50, dropped=4)
  ring_logs.remove_shard(tmp_path, 1)
  kept = run.rows_of({0, 2, 3, 4})
  sampler = make(open_store(tmp_path), 100, 4, complete_only=True)
  batch = sampler.gather(sampler.steps())
  found = np.array(kept)[batch.rows[batch.mask.sum(axis=1) == 1][:, -1]]
  # Episodes begin at rows 0, 33, 61, 104, 118, 181; rows 49 to 98 are missing.
  assert found.tolist() == [3, 107, 121]
  assert sampler.num_steps == 30 + 11 + 60
  late = make(sampler.store, subset='last_transitions(9)', complete_only=True)
  with pytest.raises(ValueError, match='No step of a complete trajectory'):
    late.batch(0, 1)


def probabilities(run, weighting, temperature):
  """Returns the probability of each row, by a loop."""
  found = trajectories_of(run, range(len(run.rows)))
  every = [[row for row in rows if run.is_step[row]] for rows, _ in found]
  returns = [sum(run.rows[row].reward for row in rows) for rows in every]
  lowest, highest = min(returns), max(returns)
  weights = {}
  for rows, total in zip(every, returns, strict=True):
    for row in rows:
      weights[row] = {
        'steps': 1.0,
        'trajectories': 1 / len(rows),
        'returns': np.exp((total - lowest) / (highest - lowest) / temperature),
      }[weighting]
  return {row: w / sum(weights.values()) for row, w in weights.items()}


@pytest.mark.parametrize(
  ('weighting', 'temperature'),
  [('steps', 0.1), ('trajectories', 0.1), ('returns', 0.1), ('returns', 2.0)],
)
def test_steps_have_their_probabilities(run, opened, weighting, temperature):
  sampler = make(opened, weighting=weighting, temperature=temperature, seed=1)
  expected, draws = probabilities(run, weighting, temperature), 200_000
  assert sampler.steps().tolist() == list(expected)
  rows = sampler.draw(0, draws)
  found = np.bincount(rows, minlength=len(run.rows))[list(expected)]
  mean = draws * np.array(list(expected.values()))
  assert mean.sum() == pytest.approx(draws)
  assert (np.abs(found - mean) < 5 * np.sqrt(mean) + 1).all()


def test_low_temperatures_draw_the_best_trajectories(run, opened):
  rows = make(opened, weighting='returns', temperature=1e-300).draw(0, 99)
  expected = probabilities(run, 'returns', 1e-2)
  assert all(expected[row] > 1e-3 for row in rows.tolist())


@pytest.mark.parametrize(
  ('weighting', 'rows'),
  [
    ('steps', [169, 148, 11, 22, 134, 135]),
    ('trajectories', [135, 22, 116, 169, 109, 59]),
    ('returns', [73, 90, 98, 96, 72, 101]),
  ],
)
def test_the_draws_of_a_seed_never_change(opened, weighting, rows):
  assert make(opened, weighting=weighting, seed=1).draw(5, 6).tolist() == rows


def test_wrong_arguments(opened):
  wrong = {'length': 0, 'stack_size': 1.5, 'gamma': 1.01, 'temperature': 0}
  others = ('weighting', 'return'), ('temperature', None)
  for name, value in [*wrong.items(), *others]:
    with pytest.raises(ValueError, match=f'{name}[= ].?{value}'):
      make(opened, **{name: value})


def test_padding_is_not_the_end_of_a_sequence(opened):
  wrong = ([3, 0], 'row 0'), ([3, 4.5], 'Row 4.5'), ([[3]], r'\(1, 1\)')
  for rows, message in wrong:
    with pytest.raises(ValueError, match=message):
      make(opened).gather(np.array(rows))
