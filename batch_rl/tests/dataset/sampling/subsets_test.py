"""Subsets of trajectories, compared with brute force; and the text of subsets."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import subsets


def make(lengths, returns=0.0, padding=3):
  """Returns trajectories with these numbers of steps after padding, in four shards."""
  rows = np.array(lengths, np.int64) + padding
  count = len(rows)
  stop = np.cumsum(rows)
  begin = stop - rows
  shard = np.arange(count) * 4 // count
  firsts = np.append(begin, stop[-1])[np.searchsorted(shard, range(5))]
  return subsets.Trajectories(
    begin=begin,
    steps_begin=begin + padding,
    at_reset=np.ones(count, bool),
    start=begin,
    stop=stop,
    returns=np.zeros(count) + returns,
    shard=shard,
    shard_rows=dict(enumerate(itertools.pairwise(firsts.tolist()))),
  )


def steps(data):
  """Returns the selected steps: a list of rows for each trajectory."""
  first = np.maximum(data.start, data.steps_begin)
  return [list(range(*span)) for span in zip(first, data.stop, strict=True)]


def share(fraction, count):
  return max(1, round(fraction * count)) if count else 0


def brute_force(name, before, data, *arguments):
  """Returns the steps that a subset leaves of `before`, by trajectory."""
  candidates = [i for i, rows in enumerate(before) if rows]
  returns = data.returns.tolist()

  def only(chosen):
    return [rows if i in chosen else [] for i, rows in enumerate(before)]

  if name == 'shards':
    first, stop = arguments
    numbers = [n for n in data.shard_rows if first <= n < stop]
    rows = {r for n in numbers for r in range(*data.shard_rows[n])}
    return [[r for r in trajectory if r in rows] for trajectory in before]
  if name == 'first_trajectories':
    chosen = []
    for number in data.shard_rows:
      in_shard = [i for i in candidates if data.shard[i] == number]
      chosen += in_shard[: share(*arguments, len(in_shard))]
    return only(chosen)
  if name == 'first_of_shards':
    bounds, part = data.shard_rows.values(), arguments[0]
    spans = [range(a, a + round(part * (b - a))) for a, b in bounds]
    parts = [[[r for r in rows if r in s] for s in spans] for rows in before]
    return [next(filter(None, some), []) for some in parts]
  if name.startswith(('first_', 'last_')):
    every = [row for rows in before for row in rows]
    count = min(arguments[0], len(every))
    if 'fraction' in name:
      count = round(arguments[0] * len(every))
    kept = every[:count] if name[0] == 'f' else every[len(every) - count :]
    return [[r for r in trajectory if r in kept] for trajectory in before]
  if name == 'trajectories_by_return':
    low, high = arguments
    return only([i for i in candidates if low <= returns[i] <= high])
  if name == 'best_steps':
    ranked, chosen, total = sorted(candidates, key=lambda i: -returns[i]), [], 0
    for i in ranked:
      total += len(before[i])
      if chosen and total > arguments[0] * sum(map(len, before)):
        break
      chosen.append(i)
    return only(chosen)
  sign = {'best_trajectories': -1, 'worst_trajectories': 1}[name]
  ranked = sorted(candidates, key=lambda i: (sign * returns[i], i))
  return only(ranked[: share(*arguments, len(candidates))])


fraction_of = (
  *('first_trajectories', 'best_trajectories', 'worst_trajectories'),
  *('best_steps', 'first_of_shards', 'first_fraction', 'last_fraction'),
)
count_of = 'first_transitions', 'last_transitions'
parts = st.one_of(
  st.tuples(st.sampled_from(fraction_of), st.floats(0.01, 1)),
  st.tuples(st.sampled_from(count_of), st.integers(1, 120)),
  st.tuples(st.just('trajectories_by_return'), st.integers(-3, 3), st.just(9)),
  st.tuples(st.just('trajectories_by_return'), st.just(-9), st.integers(-3, 3)),
  st.tuples(st.just('shards'), st.integers(0, 3), st.integers(4, 9)),
  st.tuples(st.just('shards'), st.just(0), st.integers(1, 4)),
)
steps_and_return = st.tuples(st.integers(0, 12), st.integers(-3, 3))
runs = st.lists(steps_and_return, min_size=1, max_size=15)


@settings(max_examples=200)
@given(run=runs, chain=st.lists(parts, min_size=1, max_size=4), data=st.data())
def test_chained_subsets_agree_with_brute_force(run, chain, data):
  """Subsets of shards and of transitions may come before or after the others."""
  padding = data.draw(st.integers(0, 3))
  trajectories = make(*zip(*run, strict=True), padding=padding)
  expected = steps(trajectories)
  for name, *arguments in chain:
    expected = brute_force(name, expected, trajectories, *arguments)
  text = ' & '.join(f'{name}{(*arguments,)}' for name, *arguments in chain)
  if not any(expected):
    with pytest.raises(ValueError, match='is empty'):
      subsets.select(trajectories, text)
    return
  selected = subsets.select(trajectories, text)
  assert steps(selected) == expected
  kept = [i for i, rows in enumerate(expected) if rows]
  assert selected.selected.tolist() == kept
  assert selected.start.dtype == selected.stop.dtype == np.int64


def chosen(data, text):
  return set(subsets.select(data, text).selected.tolist())


def test_a_smaller_random_fraction_is_part_of_a_larger_one():
  """A study of data size adds data and never exchanges any."""
  data = make([5] * 100)
  small = set()
  for percent in (1, 10, 20, 50, 99, 100):
    large = chosen(data, f'random_trajectories({percent / 100}, 1)')
    assert small < large and len(large) == percent
    small = large


def test_random_trajectories_are_uniform_and_depend_on_the_seed():
  data = make([5] * 40)
  draws = [chosen(data, f'random_trajectories(0.25, {n})') for n in range(400)]
  assert len(set(map(frozenset, draws))) == 400
  times = np.array([sum(i in part for part in draws) for i in range(40)])
  assert times.sum() == 400 * 10
  # Each is in a quarter of the draws: mean 100, standard deviation 8.7.
  assert 55 < times.min() and times.max() < 145


@pytest.mark.parametrize(
  'text',
  [
    *('', 'random_trajectories', 'random_trajectories()', 'select(0.1)'),
    *('random_trajectories(0.1, data=3)', 'random_trajectories("0.1")'),
    *('random_trajectories(True)', 'random_trajectories(*[0.1])'),
    'random_trajectories(**{"fraction": 0.1})',
    'random_trajectories(0.1) and shards(0)',
    'shards(0) & (shards(0) & shards(0))',
    *('shards(0) & 3', 'shards(0)\nshards(0)', 'shards(x)', 'shards(0)\x00'),
    *('np.random(0.1)', 'shards(first=0, first=1)'),
    # Numbers out of their range.
    *('first_transitions(2.5)', 'first_transitions(1e999)', 'shards(None)'),
    *('best_trajectories(0)', 'worst_trajectories(1.01)'),
    # Other types than text: gin passes a number for `subset = 0.1`.
    0.1,
    # Code, which is never evaluated.
    'shards(0) & __import__("os").mkdir("made")',
    'shards(first=__import__("os").mkdir("made"))',
    'shards(f"{open(chr(65), chr(119))}")',
  ],
)
def test_invalid_text_is_refused_with_the_subsets(text, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError) as caught:
    subsets.select(make([5] * 8), text)
  message = str(caught.value)
  assert repr(text) in message and '\n' not in message
  assert all(name in message for name in subsets.SUBSETS)
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('text', ['shards(4)', 'shards(2, 2)'])
def test_empty_subsets_are_refused(text):
  with pytest.raises(ValueError, match='shards 0 to 3'):
    subsets.select(make([5] * 8), text)
