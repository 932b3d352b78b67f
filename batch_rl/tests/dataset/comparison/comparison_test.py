"""Differences between copies are found at their places, and counted by kind."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.comparison import comparison
from batch_rl.tests.dataset.comparison import small_copies

LENGTHS = [120, 90, 200, 75, 150]


def compare(episodes_a, episodes_b, with_frames=True, padding=(3, 0)):
  a, b = (
    small_copies.MemoryCopy(episodes, rows)
    for episodes, rows in zip((episodes_a, episodes_b), padding, strict=True)
  )
  return comparison.compare(a, b, with_frames)


@pytest.fixture(scope='module')
def episodes():
  return small_copies.make_episodes(LENGTHS)


modes = pytest.mark.parametrize('with_frames', [True, False])


@modes
def test_padding_and_order_make_no_difference(episodes, with_frames):
  result = compare(episodes, episodes, with_frames)
  assert result.same and result.in_order and result.equal == sum(LENGTHS)
  result = compare(episodes, episodes[::-1], with_frames)
  assert result.same and not result.in_order and result.equal == sum(LENGTHS)


@modes
@pytest.mark.parametrize(
  'column, value', [('action', 7), ('reward', 0.5), ('end', None)]
)
def test_a_value_is_found(episodes, with_frames, column, value):
  other = list(episodes)
  if column == 'end':
    last = len(other[1].frame) - 1
    other[1] = dataclasses.replace(other[1], terminated=False)
    # The last row is a transition only if it is terminal.
    result = compare(episodes, other, with_frames)
    assert result.only['a'].transitions == 1
    assert result.first[0]['a'] | {'row': 0} == {
      'episode': 1,
      'step': last,
      'row': 0,
    }
    return
  other[1] = other[1].change(column, 17, value)
  result = compare(episodes, other[::-1], with_frames)
  assert not result.same and result.equal == sum(LENGTHS) - 1
  assert result.rows == dict.fromkeys(result.rows, 0) | {column: 1}
  (difference,) = result.first
  assert difference['kind'] == column
  assert (difference['a']['episode'], difference['a']['step']) == (1, 17)
  assert (difference['b']['episode'], difference['b']['step']) == (3, 17)
  assert difference['values'] == {
    'a': getattr(episodes[1], column)[17],
    'b': value,
  }


@pytest.mark.parametrize('step', [0, 17, 89])
def test_a_frame_is_found(episodes, step):
  other = list(episodes)
  number = other[1].frame[step]
  other[1] = other[1].change('frame', step, number ^ 0x500)
  result = compare(episodes, other)
  # The frame is also the next one of the transition before.
  assert result.equal == sum(LENGTHS) - 1 - (step > 0)
  assert result.rows == {'frame': 1, 'action': 0, 'reward': 0, 'end': 0}
  (difference,) = result.first
  assert (difference['a']['episode'], difference['a']['step']) == (1, step)
  byte = number.to_bytes(4, 'little')[1]
  assert difference['values'] == {
    'differing': 1,
    'of': 4,
    'first': [1],
    'a': byte,
    'b': byte ^ 5,
  }
  assert compare(episodes, other, with_frames=False).same


def test_the_last_frame_of_an_unended_episode_is_found(episodes):
  one, other = episodes[0].part(0, 50), episodes[1]
  changed = one.change('frame', 49, 999_999)
  result = compare([one, other], [changed, other])
  assert result.rows['frame'] == 1 and result.equal == 48 + LENGTHS[1]
  assert result.first[0]['a']['step'] == 49


def test_the_action_of_an_unended_episodes_last_row_means_nothing(episodes):
  one = [episodes[0].part(0, 50)]
  assert compare(one, [one[0].change('action', 49, 9)]).same


@modes
def test_a_missing_episode_is_found(episodes, with_frames):
  result = compare(episodes, episodes[:2] + episodes[3:], with_frames)
  assert result.only['a'] == comparison.OnlyInOne(200, 1, 200)
  assert result.only['b'] == comparison.OnlyInOne()
  (difference,) = result.first
  assert difference['kind'] == 'only_a' and difference['transitions'] == 200
  assert (difference['a']['episode'], difference['a']['step']) == (2, 0)


@modes
def test_a_repeated_episode_is_found(episodes, with_frames):
  result = compare(episodes, [*episodes, episodes[3]], with_frames)
  assert result.only['b'] == comparison.OnlyInOne(75, 1, 75)
  (difference,) = result.first
  assert (difference['b']['episode'], difference['b']['step']) == (5, 0)


@modes
def test_rows_missing_within_an_episode_are_found(episodes, with_frames):
  def without(i):
    columns = ('frame', 'action', 'reward')
    values = [getattr(episodes[2], c) for c in columns]
    return small_copies.Episode(*(v[:i] + v[i + 5 :] for v in values))

  other = [*episodes[:2], without(80), *episodes[3:]]
  result = compare(episodes, other, with_frames)
  if with_frames:
    # The transition before them has another next frame.
    assert result.rows['frame'] == 1 and result.only['a'].transitions == 5
    assert result.first[0]['a']['step'] == 80
  else:
    assert result.only['a'].transitions == 5
  assert not any(map(result.rows.get, ('action', 'reward', 'end')))


@modes
@pytest.mark.parametrize('at', [3, 40, 100, 116])
def test_divided_episodes_are_joined(episodes, with_frames, at):
  pieces = [episodes[0].part(0, at), episodes[0].part(at, 120)]
  other = [pieces[0], pieces[1], *episodes[1:]]
  result = compare(episodes, other, with_frames)
  # The next frame of the row before is in the other piece.
  assert result.only['a'] == comparison.OnlyInOne(1, divided=1)
  assert result.only['b'] == comparison.OnlyInOne()
  assert not any(result.rows.values())
  assert result.equal == sum(LENGTHS) - 1
  again = compare(other, episodes, with_frames)
  assert again.only['b'] == comparison.OnlyInOne(1, divided=1)


@modes
def test_terminal_steps_that_are_observations_only(episodes, with_frames):
  """As an import with `--last_step=observation` leaves them."""
  other = [
    dataclasses.replace(e.part(0, len(e.frame) - 1), terminated=True)
    for e in episodes
  ]
  result = compare(episodes, other, with_frames)
  n = len(episodes)
  assert result.only['a'] == comparison.OnlyInOne(n, last=n)
  assert result.only['b'] == comparison.OnlyInOne()
  assert not any(result.rows.values())


@modes
def test_one_row_episodes_may_be_missing(episodes, with_frames):
  one = small_copies.make_episodes([1], seed=5)
  result = compare([*episodes, *one], episodes, with_frames)
  assert result.only['a'] == comparison.OnlyInOne(1, 1, 1)


def test_other_frames_of_the_same_run_are_told_from_another_run(episodes):
  other = [
    dataclasses.replace(e, frame=tuple(number + 5000 for number in e.frame))
    for e in episodes
  ]
  result = compare(episodes, other[::-1])
  assert result.equal == 0 and result.rows['frame'] == sum(LENGTHS)
  assert result.only == dict.fromkeys('ab', comparison.OnlyInOne())
  place = result.first[0]
  assert (place['a']['episode'], place['b']['episode']) == (0, 4)
  result = compare(episodes, small_copies.make_episodes(LENGTHS, seed=1))
  total = sum(LENGTHS)
  assert result.only['a'] == comparison.OnlyInOne(total, len(LENGTHS), total)
  assert result.equal == 0 and not any(result.rows.values())


@modes
def test_other_episodes_with_the_same_start_are_not_paired(
  episodes, with_frames
):
  start, rest = episodes[0].part(0, 70), small_copies.make_episodes([400], 7)[0]
  columns = ('frame', 'action', 'reward')
  other = small_copies.Episode(
    *(getattr(start, c) + getattr(rest, c) for c in columns)
  )
  longer = small_copies.make_episodes([300], seed=8)[0]
  one = small_copies.Episode(
    *(getattr(start, c) + getattr(longer, c) for c in columns)
  )
  result = compare([one], [other], with_frames)
  if with_frames:
    assert result.equal == 69  # Links of seventy rows.
  else:
    assert 70 <= result.equal < 110  # An action and a reward may be the same.
  assert result.only['a'].transitions == 370 - result.equal
  assert result.only['b'].transitions == 470 - result.equal
  assert not any(result.rows.values())


def test_equal_transitions_are_counted_as_often_as_they_occur():
  """Frames that repeat themselves, as those of a waiting player do."""
  still = small_copies.Episode((7,) * 30, (0,) * 30, (0,) * 30)
  longer = small_copies.Episode((7,) * 40, (0,) * 40, (0,) * 40)
  result = compare([still, still], [still, longer])
  assert not result.same and result.equal == 60
  assert result.only['a'] == comparison.OnlyInOne()
  assert result.only['b'].transitions == 10


def test_no_transitions():
  (episode,) = small_copies.make_episodes([5])
  empty = [episode.part(0, 1)]
  assert compare(empty, empty).same
  for pair in ([episode], empty), (empty, [episode]):
    for with_frames in (True, False):
      result = compare(*pair, with_frames)
      assert not result.same and result.equal == 0


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(len(LENGTHS))), st.booleans())
def test_copies_in_any_order_are_the_same(episodes, order, with_frames):
  result = compare(episodes, [episodes[e] for e in order], with_frames)
  assert result.same and result.equal == sum(LENGTHS)
  assert result.in_order == (order == sorted(order))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_edits_are_counted(data):
  lengths = data.draw(st.lists(st.integers(10, 90), min_size=2, max_size=7))
  episodes = small_copies.make_episodes(lengths)
  other = list(episodes)
  edits = data.draw(
    st.dictionaries(
      st.tuples(st.integers(0, len(lengths) - 1), st.integers(1, 9)),
      st.sampled_from(['action', 'reward']),
      max_size=6,
    )
  )
  for (e, i), column in edits.items():
    other[e] = other[e].change(column, i, 77)
  removed = data.draw(
    st.sets(st.integers(0, len(lengths) - 1), max_size=len(lengths) - 1)
  )
  kept = [e for e in range(len(lengths)) if e not in removed]
  order = data.draw(st.permutations(kept))
  result = compare(episodes, [other[e] for e in order])
  changed = [column for (e, _), column in edits.items() if e in kept]
  missing = sum(lengths[e] for e in removed)
  assert result.equal == sum(lengths) - missing - len(changed)
  assert result.only['a'] == comparison.OnlyInOne(
    missing, len(removed), missing
  )
  assert result.only['b'] == comparison.OnlyInOne()
  assert result.rows == {
    'frame': 0,
    'end': 0,
    'action': changed.count('action'),
    'reward': changed.count('reward'),
  }
  assert result.same == (not changed and not removed)
  assert result.in_order == (order == kept)
