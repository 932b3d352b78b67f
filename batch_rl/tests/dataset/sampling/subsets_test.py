"""Parts of a run: against brute force, by hand and on stores; and their text."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import sampler, subsets
from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs, shards

PADDING = 3


def make(lengths, returns=None, shard=None, num_shards=4, padding=PADDING):
  """Trajectories of so many steps, after padding, one after the other."""
  rows = np.array(lengths, np.int64) + padding
  begin = np.cumsum(rows) - rows
  if shard is None:
    shard = np.arange(len(lengths)) * num_shards // max(len(lengths), 1)
  shard = np.asarray(shard, np.int64)
  bounds = [
    int(begin[np.searchsorted(shard, number)])
    if number <= shard[-1]
    else int(rows.sum())
    for number in range(num_shards)
  ] + [int(rows.sum())]
  return subsets.Trajectories(
    begin=begin,
    steps_begin=begin + padding,
    start=begin,
    stop=begin + rows,
    returns=np.array(
      np.zeros(len(lengths)) if returns is None else returns, np.float64
    ),
    shard=shard,
    shard_rows={i: (bounds[i], bounds[i + 1]) for i in range(num_shards)},
  )


def steps(data):
  """The selected steps, as lists of rows by trajectory: what a subset is."""
  return [
    list(range(max(int(start), int(first)), max(int(start), int(stop))))
    for start, first, stop in zip(
      data.start, data.steps_begin, data.stop, strict=True
    )
  ]


def share(fraction, count):
  return max(1, round(fraction * count)) if count else 0


def brute_force(name, before, data, *arguments):
  """What a subset should leave of steps, written without arrays.

  Args:
    name: of the subset.
    before: steps selected so far, by trajectory.
    data: the trajectories, for what they say beside that.
    *arguments: of the subset.

  Returns:
    The same form as `before`; for a random one, how many trajectories are left.
  """
  there = [i for i, rows in enumerate(before) if rows]
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
      here = [i for i in there if data.shard[i] == number]
      chosen += here[: share(*arguments, len(here))]
    return only(chosen)
  if name in ('first_transitions', 'last_transitions'):
    every = [row for rows in before for row in rows]
    count = min(arguments[0], len(every))
    kept = every[:count] if name[0] == 'f' else every[len(every) - count :]
    return [[r for r in trajectory if r in kept] for trajectory in before]
  if name == 'trajectories_by_return':
    low, high = arguments
    return only([i for i in there if low <= returns[i] <= high])
  sign = {'best_trajectories': -1, 'worst_trajectories': 1}[name]
  ranked = sorted(there, key=lambda i: (sign * returns[i], i))
  return only(ranked[: share(*arguments, len(there))])


fractions = st.floats(0.01, 1)
parts = st.one_of(
  st.tuples(
    st.sampled_from(
      ['first_trajectories', 'best_trajectories', 'worst_trajectories']
    ),
    fractions,
  ),
  st.tuples(
    st.sampled_from(['first_transitions', 'last_transitions']),
    st.integers(1, 120),
  ),
  st.tuples(st.just('trajectories_by_return'), st.integers(-3, 3), st.just(9)),
  st.tuples(st.just('trajectories_by_return'), st.just(-9), st.integers(-3, 3)),
  st.tuples(st.just('shards'), st.integers(0, 3), st.integers(4, 9)),
  st.tuples(st.just('shards'), st.just(0), st.integers(1, 4)),
)
runs = st.lists(
  st.tuples(st.integers(0, 12), st.integers(-3, 3)), min_size=1, max_size=15
)


@settings(max_examples=300, deadline=None)
@given(run=runs, chain=st.lists(parts, min_size=1, max_size=4), data=st.data())
def test_chains_of_subsets_against_brute_force(run, chain, data):
  """Trajectories may be cut before whole ones are chosen, and the other way."""
  padding = data.draw(st.integers(0, 3))
  trajectories = make(*zip(*run, strict=True), padding=padding)
  expected = steps(trajectories)
  for name, *arguments in chain:
    expected = brute_force(name, expected, trajectories, *arguments)
  text = ' & '.join(
    f'{name}({", ".join(map(repr, arguments))})' for name, *arguments in chain
  )
  if not any(expected):
    with pytest.raises(ValueError, match='is empty'):
      subsets.select(trajectories, text)
    return
  selected = subsets.select(trajectories, text)
  assert steps(selected) == expected
  there = [i for i, rows in enumerate(expected) if rows]
  assert selected.selected.tolist() == there
  for column in ('begin', 'steps_begin', 'returns', 'shard', 'shard_rows'):
    assert getattr(selected, column) is getattr(trajectories, column)
  # What selects is exact only in whole rows.
  assert selected.start.dtype == selected.stop.dtype == np.int64


# --- a random part ------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(run=runs, fraction=fractions, seed=st.integers(0, 2**32))
def test_a_random_part_is_whole_trajectories(run, fraction, seed):
  trajectories = make(*zip(*run, strict=True))
  whole = steps(trajectories)
  if not any(whole):
    return
  text = f'random_trajectories({fraction}, seed={seed})'
  selected = steps(subsets.select(trajectories, text))
  assert all(rows in (whole[i], []) for i, rows in enumerate(selected))
  there = sum(map(bool, whole))
  assert sum(map(bool, selected)) == share(fraction, there)
  assert steps(subsets.select(trajectories, text)) == selected


def chosen(data, text):
  return set(subsets.select(data, text).selected.tolist())


def test_a_smaller_random_part_is_within_a_larger_one():
  """So more data is more data, not other data."""
  data = make([5] * 100)
  for seed in (0, 1, 2):
    nested = [
      chosen(data, f'random_trajectories({fraction}, {seed})')
      for fraction in (0.01, 0.1, 0.2, 0.5, 0.99, 1.0)
    ]
    for small, large in zip(nested, nested[1:], strict=False):
      assert small < large
    assert [len(part) for part in nested] == [1, 10, 20, 50, 99, 100]


def test_other_seeds_choose_others_and_all_alike():
  data = make([5] * 40)
  assert chosen(data, 'random_trajectories(0.25)') == chosen(
    data, 'random_trajectories(fraction=0.25, seed=0)'
  )
  draws = [
    chosen(data, f'random_trajectories(0.25, seed={seed})')
    for seed in range(400)
  ]
  assert len(set(map(frozenset, draws))) == 400
  times = np.array([sum(i in part for part in draws) for i in range(40)])
  assert times.sum() == 400 * 10
  # Each is in a quarter of the parts: mean 100, deviation 8.7.
  assert 55 < times.min() and times.max() < 145


def test_returns_decide_by_rank_and_the_first_of_equals_wins():
  data = make([4] * 6, returns=[1, 3, 3, -2, 3, -2])
  assert chosen(data, 'best_trajectories(0.34)') == {1, 2}
  assert chosen(data, 'best_trajectories(0.67)') == {0, 1, 2, 4}
  assert chosen(data, 'worst_trajectories(0.2)') == {3}
  assert chosen(data, 'worst_trajectories(0.5)') == {0, 3, 5}
  assert chosen(data, 'trajectories_by_return(highest=1)') == {0, 3, 5}
  assert chosen(data, 'trajectories_by_return(-1.5)') == {0, 1, 2, 4}
  assert chosen(data, 'trajectories_by_return(3, 3)') == {1, 2, 4}


# --- the text -----------------------------------------------------------------


def refusal(text, data=None):
  """The message with which a text is refused."""
  with pytest.raises(ValueError) as caught:
    subsets.select(make([5] * 8) if data is None else data, text)
  return str(caught.value)


@pytest.mark.parametrize(
  'text',
  [
    '',
    ' ',
    'random_trajectories',
    'random_trajectories(',
    'random_trajectories(0.1))',
    'random_trajectories()',
    'random_trajectories(0.1, 0, 0)',
    'random_trajectories(0.1, sed=3)',
    'random_trajectories(0.1, fraction=0.1)',
    'random_trajectories(seed=3)',
    'random_trajectories(0.1, data=3)',
    'random_trajectories("0.1")',
    'random_trajectories(True)',
    'random_trajectories([0.1])',
    'random_trajectories(1j)',
    'random_trajectories(*[0.1])',
    'random_trajectories(**{"fraction": 0.1})',
    'random_trajectories(0.1) random_trajectories(0.1)',
    'random_trajectories(0.1) and shards(0)',
    'random_trajectories(0.1) | shards(0)',
    'random_trajectories(0.1) & ',
    '& random_trajectories(0.1)',
    'shards(0) & (shards(0) & shards(0))',
    'shards(0) & 3',
    'random_trajectory(0.1)',
    'RANDOM_TRAJECTORIES(0.1)',
    'select(0.1)',
    'np.random(0.1)',
    'shards(0)\nshards(0)',
    'shards(\n0)(1)',
    'shards(0); shards(0)',
    'shards(x)',
    'shards(first := 0)',
    'lambda: 0',
    '0.1',
    'random_trajectories(0.1).only(3)',
    'shards(0)\x00',
    'Ϣ(0)',
  ],
)
def test_what_is_no_subset_is_refused_in_one_line_that_shows_what_there_is(
  text,
):
  message = refusal(text)
  assert len(message.splitlines()) == 1
  assert repr(text) in message
  for name in subsets.SUBSETS:
    assert name in message
  assert 'random_trajectories(fraction, seed)' in message
  assert '&' in message


@pytest.mark.parametrize(
  'code',
  [
    '__import__("os").mkdir({path!r})',
    'open({path!r}, "w").write("x")',
    'shards(__import__("os").mkdir({path!r}))',
    'shards(first=__import__("os").mkdir({path!r}))',
    'shards(0, [__import__("os").mkdir({path!r}) for _ in "x"])',
    'shards(*[__import__("os").mkdir({path!r})])',
    'shards(**dict(first=__import__("os").mkdir({path!r})))',
    '(lambda: __import__("os").mkdir({path!r}))()',
    'shards(0) & __import__("os").mkdir({path!r})',
    'shards(0) if __import__("os").mkdir({path!r}) else shards(0)',
    'shards.__globals__["np"].savetxt({path!r}, [1])',
    'shards(f"{{open({path!r}, chr(119))}}")',
    'shards(().__class__.__base__.__subclasses__())',
  ],
)
def test_nothing_is_ever_evaluated(tmp_path, code):
  path = tmp_path / 'made'
  text = code.format(path=str(path))
  assert 'is not a subset' in refusal(text)
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('value', [0.1, 3, ['shards(0)'], ('shards(0)',), True])
def test_what_is_not_even_text_is_refused(value):
  """As gin gives it for `subset = 0.1`."""
  assert 'random_trajectories(fraction, seed)' in refusal(value)


@pytest.mark.parametrize('fraction', [0, -0.1, 1.01, 2, 100, '1e999', '-1e999'])
@pytest.mark.parametrize(
  'name',
  [
    'random_trajectories',
    'first_trajectories',
    'best_trajectories',
    'worst_trajectories',
  ],
)
def test_fractions_are_in_range(name, fraction):
  message = refusal(f'{name}({fraction})')
  assert name in message and f'{float(fraction):g}' in message
  assert '(0, 1]' in message


@pytest.mark.parametrize('name', ['first_transitions', 'last_transitions'])
def test_counts_are_positive(name):
  for count in (0, -3):
    text = f'{name}({count})'
    assert repr(text) in refusal(text) and f'count={count}' in refusal(text)


@pytest.mark.parametrize('name', ['first_transitions', 'last_transitions'])
def test_a_count_may_be_written_as_1e6(name):
  data = make([5, 6, 7])
  for count in ('1e6', '1e1', '10.0'):
    selected = subsets.select(data, f'{name}({count})')
    assert steps(selected) == steps(
      subsets.select(data, f'{name}({int(float(count))})')
    )
    assert selected.start.dtype == selected.stop.dtype == np.int64


@pytest.mark.parametrize(
  'text',
  [
    'first_transitions(2.5)',
    'first_transitions(1e999)',
    'first_transitions(None)',
    'random_trajectories(None)',
    'random_trajectories(0.1, seed=None)',
    'random_trajectories(0.1, seed=0.5)',
    'random_trajectories(0.1, seed=-1)',
    'best_trajectories(None)',
    'shards(None)',
    'trajectories_by_return(None)',
  ],
)
def test_numbers_that_make_no_sense_are_refused(text):
  """None is a number for `shards(3, None)` alone; a part has to be repeatable."""
  assert len(refusal(text).splitlines()) == 1


def test_shards_that_are_not_there_are_named():
  assert 'shards 0 to 3' in refusal('shards(4)')
  assert 'shards 0 to 3' in refusal('shards(2, 2)')


@pytest.mark.parametrize(
  'text',
  [
    'trajectories_by_return(lowest=5)',
    'trajectories_by_return(2, 1)',
    'shards(1, 2) & shards(2, 3)',
    'first_transitions(3) & last_transitions(100) & shards(3)',
  ],
)
def test_a_subset_of_nothing_is_refused(text):
  assert repr(text) in refusal(text) and 'empty' in refusal(text)


def test_the_text_may_be_written_with_any_spaces():
  data = make([5] * 20)
  plain = chosen(data, 'shards(0,2)&random_trajectories(0.5,seed=1)')
  assert plain == chosen(
    data, '  shards( 0, stop = 2 )  &random_trajectories(0.5, seed=1) '
  )


# --- on stores ----------------------------------------------------------------

LENGTHS = [30, 25, 40, 11, 60, 33]


def opened_store(*args, **kwargs):
  made = store.Store(*map(str, args), **kwargs)
  made.wait()
  return made


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run of five shards: its directory, rows, and the shard of each."""
  directory = tmp_path_factory.mktemp('run') / 'replay_logs'
  rows = shards.with_padding(shards.make_episodes(LENGTHS), 4)
  shard_of = ring_logs.write_run(directory, rows, capacity=50)
  return str(directory), rows, shard_of


@pytest.fixture(scope='module')
def opened(run):
  return opened_store(run[0])


def steps_of(rows):
  """Rows that are transitions: by their frames, none of which are black."""
  return [i for i, row in enumerate(rows) if row.frame]


def drawn(made, text, stack_size=4, **kwargs):
  """All rows that a subset of a store may be drawn from."""
  return sampler.Sampler(
    made, stack_size, subset=text, seed=0, **kwargs
  ).valid_rows()


@pytest.mark.parametrize('count', [1, 2, 29, 30, 31, 100, 198, 199, 200, 10**9])
def test_transitions_are_counted_exactly(run, opened, count):
  every = steps_of(run[1])
  first = drawn(opened, f'first_transitions({count})')
  assert first.tolist() == every[:count]
  last = drawn(opened, f'last_transitions({count})')
  assert last.tolist() == every[-count:]
  if count < len(every):  # together, and never twice
    rest = drawn(opened, f'last_transitions({len(every) - count})')
    assert [*first, *rest] == every


def test_transitions_are_counted_whatever_was_the_loggers_stack(tmp_path):
  for logged_with in (1, 2, 3, 4):
    directory = tmp_path / str(logged_with)
    rows = shards.with_padding(shards.make_episodes(LENGTHS), logged_with)
    ring_logs.write_run(directory, rows, capacity=50)
    made = opened_store(directory)
    for count in (1, 30, 31, 77):
      for stack_size in range(1, logged_with + 1):
        first = drawn(made, f'first_transitions({count})', stack_size)
        assert first.tolist() == steps_of(rows)[:count]
        last = drawn(made, f'last_transitions({count})', stack_size)
        assert last.tolist() == steps_of(rows)[-count:]


@pytest.mark.parametrize('logged_with', [1, 2, 3, 4])
def test_transitions_of_a_single_episode_are_counted_exactly(
  tmp_path, logged_with
):
  """The start of the run shows what padding is, if no end of an episode does."""
  rows = shards.with_padding(shards.make_episodes([30]), logged_with)
  ring_logs.write_run(tmp_path, rows, capacity=50)
  made = opened_store(tmp_path)
  first = drawn(made, 'first_transitions(10)', stack_size=1)
  assert first.tolist() == steps_of(rows)[:10]


def test_black_first_frames_are_transitions(tmp_path):
  """Of another episode than the one that shows what padding is."""
  episodes = shards.make_episodes(LENGTHS)
  for i in (0, 2, 3):
    episodes[i][0] = shards.Row(0, *list(vars(episodes[i][0]).values())[1:])
  rows = shards.with_padding(episodes, 4)
  at = [3 + 3 * i + sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
  every = [r for a, n in zip(at, LENGTHS, strict=True) for r in range(a, a + n)]
  ring_logs.write_run(tmp_path, rows, capacity=50)
  made = opened_store(tmp_path)
  assert drawn(made, 'first_transitions(60)').tolist() == every[:60]
  assert drawn(made, 'last_transitions(145)').tolist() == every[-145:]


@pytest.mark.parametrize(
  'text',
  [
    'shards(1, 3)',
    'shards(2)',
    'random_trajectories(0.5, seed=1)',
    'first_trajectories(0.5)',
    'trajectories_by_return(0)',
    'trajectories_by_return(-3, 2)',
    'best_trajectories(0.5)',
    'worst_trajectories(0.3)',
    'shards(0, 3) & best_trajectories(0.5) & last_transitions(40)',
    'last_transitions(100) & random_trajectories(0.5) & shards(1)',
  ],
)
def test_subsets_of_a_store_against_brute_force(run, opened, text):
  """Trajectories are those of the rows on disk; their steps are what is drawn."""
  _, rows, shard_of = run
  begins = np.cumsum([0, *(3 + n for n in LENGTHS)])
  by_hand = make(
    LENGTHS,
    [
      sum(r.reward for r in rows[a:b])
      for a, b in zip(begins, begins[1:], strict=False)
    ],
    shard=[shard_of[begin] for begin in begins[:-1]],
    num_shards=5,
  )
  of_shard = {n: np.flatnonzero(np.equal(shard_of, n)) for n in range(5)}
  by_hand.shard_rows.update(
    {n: (int(r[0]), int(r[-1]) + 1) for n, r in of_shard.items()}
  )
  made = sampler.Sampler(opened, 4, subset=text, seed=0)
  expected = steps(subsets.select(by_hand, text))
  assert made.valid_rows().tolist() == sum(expected, [])
  assert made.num_trajectories == sum(map(bool, expected))


def test_what_is_there_of_an_episode_is_a_trajectory(run, tmp_path):
  """Where a shard is missing, the rest of an episode may be one, or two."""
  directory, rows, shard_of = run
  shutil.copytree(directory, tmp_path / 'run')
  ring_logs.remove_shard(tmp_path / 'run', 2)
  made = opened_store(tmp_path / 'run')
  there = [i for i, suffix in enumerate(shard_of) if suffix != 2]
  expected = [[]]
  for at, row in enumerate(there):
    if at and (row != there[at - 1] + 1 or rows[there[at - 1]].terminal):
      expected.append([])
    expected[-1].append(at)
  found = sampler.trajectories(made)
  spans = list(zip(found.begin.tolist(), found.stop.tolist(), strict=True))
  assert spans == [(t[0], t[-1] + 1) for t in expected]
  assert len(spans) == 5  # one was in shard 2 alone, two were cut there
  assert found.returns.tolist() == [
    sum(rows[there[at]].reward for at in t) for t in expected
  ]
  assert found.shard.tolist() == [shard_of[there[t[0]]] for t in expected]
  assert found.shard_rows == {
    number: (
      min(at for at, row in enumerate(there) if shard_of[row] == number),
      max(at for at, row in enumerate(there) if shard_of[row] == number) + 1,
    )
    for number in (0, 1, 3, 4)
  }


# --- what identifies them -----------------------------------------------------


def hash_of(made, text=None, **kwargs):
  kwargs = {'stack_size': 4, 'seed': 0, **kwargs}
  return sampler.Sampler(made, subset=text, **kwargs).subset_hash()


TEXTS = [
  None,
  'shards(0, 3)',
  'random_trajectories(0.5)',
  'random_trajectories(0.5, seed=1)',
  'best_trajectories(0.5)',
  'first_transitions(60)',
  'first_transitions(61)',
  'last_transitions(60)',
]


def test_the_hash_is_of_the_data_alone(run, opened, tmp_path):
  """Not of where it is kept, nor of how it is read."""
  directory, _, _ = run
  cache = tmp_path / 'cache'
  copy = tmp_path / 'elsewhere'
  shutil.copytree(directory, copy)
  others = [
    opened_store(directory, directory=str(cache)),
    opened_store(directory, directory=str(cache)),  # now from there
    opened_store(copy),
    store.convert(directory, str(tmp_path / 'store')),
    opened_store(tmp_path / 'store'),
  ]
  for text in TEXTS:
    expected = hash_of(opened, text)
    for made in others:
      assert hash_of(made, text) == expected
    for stack_size in (1, 2, 5):
      assert hash_of(opened, text, stack_size=stack_size) == expected
    assert hash_of(opened, text, seed=9, update_horizon=3) == expected


def test_the_hash_tells_parts_apart(opened):
  assert len({hash_of(opened, text) for text in TEXTS}) == len(TEXTS)
  for text in TEXTS:
    assert len(hash_of(opened, text)) == 16
    assert int(hash_of(opened, text), 16) >= 0


def test_the_hash_is_of_what_is_selected_not_of_the_text(opened):
  for one, other in (
    ('shards(0,2)', ' shards(first=0, stop=2)'),
    ('random_trajectories(0.5)', 'random_trajectories(0.5, seed=0)'),
    ('first_transitions(60)', 'first_transitions(70) & first_transitions(60)'),
    ('shards(0)', None),
    ('first_transitions(1000)', None),
    ('last_transitions(1000)', None),
    ('random_trajectories(1.0)', None),
  ):
    assert hash_of(opened, one) == hash_of(opened, other), one


@pytest.mark.parametrize('column', ['action', 'reward', 'terminal'])
def test_the_hash_tells_data_apart(run, opened, tmp_path, column):
  """Even if the same rows are selected."""
  _, rows, _ = run
  changed = list(rows)
  old = vars(rows[100])
  value = {'action': 7, 'reward': old['reward'] + 1, 'terminal': 1}[column]
  changed[100] = shards.Row(**{**old, column: value})
  ring_logs.write_run(tmp_path, changed, capacity=50)
  other = opened_store(tmp_path)
  for text in (None, 'shards(0, 2)', 'first_transitions(60)'):
    assert hash_of(other, text) != hash_of(opened, text)


def test_the_hash_tells_runs_of_other_shards_apart(run, opened):
  directory, _, _ = run
  hashes = {
    hash_of(opened),
    *(
      hash_of(opened_store(directory, suffixes=suffixes))
      for suffixes in ([0, 1, 2], [1, 2], [3, 4], [0, 2])
    ),
    hash_of(opened_store(directory, max_rows=40)),
  }
  assert len(hashes) == 6
