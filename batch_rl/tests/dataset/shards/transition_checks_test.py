"""A value that does not fit a log is one line that names the value."""

import numpy as np
import pytest

from batch_rl.dataset.shards import transition_checks

FRAME = np.ones((2, 2), np.uint8)


def check_observation(value, dtype=np.uint8, shape=(2, 2)):
  return transition_checks.check_observation(value, shape, np.dtype(dtype))


@pytest.mark.parametrize(
  'dtype, value',
  [
    (np.uint8, FRAME.astype(np.int64)),
    (np.uint8, FRAME.astype(bool)),
    (np.uint8, FRAME.tolist()),
    (np.bool_, FRAME),
    (np.float32, FRAME),
    (np.float32, np.full((2, 2), 1.0)),
    (np.int64, FRAME),
  ],
)
def test_observations_that_fit_are_converted(dtype, value):
  checked = check_observation(value, dtype)
  assert checked.dtype == dtype
  np.testing.assert_array_equal(checked, FRAME)


@pytest.mark.parametrize(
  'dtype, value, message',
  [
    (np.uint8, 1, r'shape \(\), those of the log have \(2, 2\)'),
    (np.uint8, FRAME[:1], r'shape \(1, 2\), those of the log'),
    (np.uint8, FRAME[..., None], r'shape \(2, 2, 1\), those of the log'),
    (np.uint8, [[1, 2], [3]], r'\[\[1, 2\], \[3\]\] is not an array'),
    (np.uint8, FRAME * 1.0, 'is of float64, which uint8, .* cannot hold'),
    (np.uint8, FRAME * np.nan, 'is of float64, which uint8'),
    (np.uint8, FRAME.astype(object), 'is of object, which uint8'),
    (np.uint8, [['a', 'b']] * 2, 'is of <U1, which uint8'),
    (np.uint8, FRAME * np.int64(300), 'holds 300; uint8, .* holds 0 to 255'),
    (np.uint8, FRAME * np.int8(-1), 'holds -1; uint8'),
    (np.bool_, FRAME * 2, 'holds 2; bool, .* holds 0 to 1'),
    (np.float32, FRAME * 1j, 'is of complex128, which float32'),
    (np.float32, FRAME * np.nan, 'holds nan, not only finite .* float32'),
    (np.float64, FRAME * -np.inf, 'holds -inf, not only finite'),
    (np.float32, FRAME * 1e300, 'holds inf, not only finite'),
  ],
)
def test_observations_that_do_not_fit_are_refused(dtype, value, message):
  with pytest.raises(ValueError, match=message) as error:
    check_observation(value, dtype)
  assert '\n' not in str(error.value)


def test_actions_are_integers_from_0():
  for value in (3, np.int64(3), np.uint8(3), np.array(3)):
    assert transition_checks.check_action(value) == 3
  for value in (1.0, np.float32(1), 'a', None, [1], np.array([1])):
    with pytest.raises(ValueError, match='The action .* is not an integer'):
      transition_checks.check_action(value)
  for value in (-1, 2**31):
    with pytest.raises(ValueError, match=f'The action {value} is not between'):
      transition_checks.check_action(value)


def test_rewards_are_finite_numbers():
  for value in (2, 2.0, np.float32(2), np.int8(2), np.array(2.0)):
    assert transition_checks.check_reward(value) == 2.0
  nothing = (None, '1.5', [1.0], np.array([1.0]), 1j)
  for value in (*nothing, np.nan, -np.inf, 1e39, 10**400):
    with pytest.raises(
      ValueError, match='The reward .* is not a finite number'
    ):
      transition_checks.check_reward(value)


@pytest.mark.parametrize(
  'shape, dtype, message',
  [
    (4, np.uint8, 'observation_shape=4 is not a tuple'),
    ((4, 0), np.uint8, r'observation_shape=\(4, 0\) is not'),
    ((4.0,), np.uint8, r'observation_shape=\(4.0,\) is not'),
    ((4,), object, 'observation_dtype=.*object.* is not a NumPy dtype'),
    ((4,), 'uint', None),
    ((4,), 'unit8', 'observation_dtype=.unit8. is not a NumPy dtype'),
    ((), np.float16, None),
    ((1 << 20,), np.float32, None),
    ((1 << 21, 3), np.uint8, 'takes 6,291,456 B; the largest'),
    ((1 << 40, 1 << 40), np.uint8, 'the largest that can be read'),
  ],
)
def test_the_format_of_a_log_is_checked(shape, dtype, message):
  if message is None:
    checked = transition_checks.check_format(shape, dtype)
    assert checked == (shape, np.dtype(dtype))
    return
  with pytest.raises(ValueError, match=message):
    transition_checks.check_format(shape, dtype)


def test_metadata_are_json():
  given = {'environment': {'num_actions': np.int64(4)}, 'seeds': [1, 2]}
  checked = transition_checks.check_metadata(given)
  assert checked == given and type(checked['environment']['num_actions']) is int
  assert transition_checks.check_metadata(None) == {}
  for wrong in ({'a': {1, 2}}, {'a': np.ones(3)}, [1]):
    with pytest.raises(ValueError, match='metadata is not JSON-serialisable'):
      transition_checks.check_metadata(wrong)


def test_metadata_can_be_read_back():
  """Otherwise the data tools would refuse the log that has it."""
  given = {'environment': 'GridWorld'}
  with pytest.raises(ValueError, match="environment is 'GridWorld', not an"):
    transition_checks.check_metadata(given)


def test_metadata_leave_the_entries_of_the_log_alone():
  for wrong in (
    {'manifest_version': 2},
    {'truncated_rows': [3]},
    {'rows': 5, 'agent': 'mine', 'shards': []},
  ):
    names = ', '.join(sorted(key for key in wrong if key != 'agent'))
    with pytest.raises(ValueError, match=f'metadata has {names}, which'):
      transition_checks.check_metadata(wrong)
