"""Episodes that differ are counted, and the first difference is found at its place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.comparison import comparison
from batch_rl.tests import shards
from batch_rl.tests.dataset.comparison import small_copies

LENGTHS = [120, 90, 200, 75, 150]
EPISODES = small_copies.make_episodes(LENGTHS)
modes = pytest.mark.parametrize('with_frames', [True, False])


def compare(episodes_a, episodes_b, with_frames=True):
  a, b = (
    small_copies.MemoryCopy(episodes, padding, with_frames=with_frames)
    for episodes, padding in ((episodes_a, 3), (episodes_b, 0))
  )
  return comparison.compare(a, b, with_frames)


def where(first):
  return {n: (p['episode'], p['step']) for n, p in first.items() if n in 'ab'}


@modes
@pytest.mark.parametrize(
  'column, step, value',
  [('frame', 17, 0x202), ('action', 17, 7), ('reward', 89, 0.5)],
)
def test_a_value_is_found(with_frames, column, step, value):
  other = [*small_copies.make_episodes([80, 100], seed=1), *EPISODES[::-1]]
  other[5] = small_copies.change(EPISODES[1], step, **{column: value})
  result = compare(EPISODES, other, with_frames)
  if column == 'frame' and not with_frames:
    assert result.different == {'a': 0, 'b': 2}
    return
  assert not result.same and result.equal == len(LENGTHS) - 1
  assert result.different == {'a': 1, 'b': 3}
  # The most similar of the other episodes is compared.
  assert where(result.first) == {'a': (1, step), 'b': (5, step)}
  ((name, values),) = result.first['values'].items()
  assert name == column and values['a'] != values['b']
  if column != 'frame':
    assert values == {'a': getattr(EPISODES[1][step], column), 'b': value}


@modes
def test_ends_are_compared(with_frames):
  """An episode without its end, one that ends a step earlier, and a divided one."""
  last = LENGTHS[1] - 1
  unfinished = small_copies.change(EPISODES[1], last, terminal=0)
  shorter = small_copies.change(EPISODES[1][:last], last - 1, terminal=1)
  pieces = [EPISODES[1][:40], EPISODES[1][40:]]
  for parts, place, column, values in (
    ([unfinished], last - 1, 'transitions', (last + 1, last)),
    ([shorter], last - 1, 'terminal', (False, True)),
    (pieces, 38, 'transitions', (last + 1, 39)),
  ):
    pair = EPISODES[:2], [EPISODES[0], *parts]
    for a, b in ((0, 1), (1, 0)):
      result = compare(pair[a], pair[b], with_frames)
      assert result.equal == 1
      assert where(result.first) == {'a': (1, place), 'b': (1, place)}
      expected = {column: {'a': values[a], 'b': values[b]}}
      assert result.first['values'] == expected


def test_only_the_frame_of_an_unfinished_episodes_last_row_counts():
  one, other = EPISODES[0][:50], EPISODES[1]
  assert compare([one], [small_copies.change(one, 49, action=9)]).same
  changed = small_copies.change(one, 49, frame=999_999)
  result = compare([one, other], [changed, other])
  assert result.equal == 1
  assert where(result.first) == {'a': (0, 49), 'b': (0, 49)}
  assert list(result.first['values']) == ['frame']


@modes
def test_missing_and_repeated_episodes_are_found(with_frames):
  for other, different, first in (
    (EPISODES[:2] + EPISODES[3:], {'a': 1, 'b': 0}, {'a': (2, 0)}),
    ([*EPISODES, EPISODES[3]], {'a': 0, 'b': 1}, {'b': (5, 0)}),
  ):
    result = compare(EPISODES, other, with_frames)
    assert result.different == different
    assert where(result.first) == first
  # A piece without a transition does not count.
  piece = EPISODES[0][:1]
  assert compare([piece], [], with_frames).same
  assert not compare([EPISODES[1]], [piece], with_frames).same


def test_repeated_transitions_in_episodes_of_other_lengths_differ():
  """The sums of both copies are equal: a waiting player sees the same frames."""
  still = [shards.Row(7, 0, 0.0, 0)]
  result = compare([10 * still, 40 * still], [25 * still, 25 * still])
  assert not result.same and result.equal == 0


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_any_edits_are_counted(data, with_frames):
  lengths = data.draw(st.lists(st.integers(10, 90), min_size=2, max_size=7))
  count = len(lengths)
  episodes = small_copies.make_episodes(lengths)
  places = st.tuples(st.integers(0, count - 1), st.integers(1, 9))
  columns = st.sampled_from(['action', 'reward'] + with_frames * ['frame'])
  edits = data.draw(st.dictionaries(places, columns, max_size=6))
  other = list(episodes)
  for (e, i), column in edits.items():
    other[e] = small_copies.change(other[e], i, **{column: 77_777})
  removed = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
  kept = [e for e in range(count) if e not in removed]
  order = data.draw(st.permutations(kept))
  result = compare(episodes, [other[e] for e in order], with_frames)
  changed = {e for e, _ in edits} & set(kept)
  assert result.equal == len(kept) - len(changed)
  expected = {'a': len(changed) + len(removed), 'b': len(changed)}
  assert result.different == expected
  assert result.same == (not any(expected.values()))
