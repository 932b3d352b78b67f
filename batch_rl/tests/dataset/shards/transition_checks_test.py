"""A value that does not fit a log is one line that names the value."""

import re

import numpy as np
import pytest

from batch_rl.dataset.shards import transition_checks

FRAME = np.ones((2, 2), np.uint8)


def refused(value, check, *arguments):
  """Checks that a value is refused in one line that names what was expected."""
  with pytest.raises(ValueError, match=re.escape(value)) as error:
    check(*arguments)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'dtype, value, wrong',
  [
    (np.uint8, FRAME.astype(np.int64), None),
    (np.uint8, FRAME.astype(bool), None),
    (np.uint8, FRAME.tolist(), None),
    (np.bool_, FRAME, None),
    (np.float32, FRAME, None),
    (np.float32, np.full((2, 2), 1.0), None),
    (np.uint64, FRAME.astype(np.int64), None),
    (np.uint8, 1, 'shape ()'),
    (np.uint8, FRAME[..., None], 'shape (2, 2, 1)'),
    (np.uint8, [[1, 2], [3]], '[[1, 2], [3]]'),
    (np.uint8, FRAME * 1.0, 'float64'),
    (np.uint8, FRAME.astype(object), 'object'),
    (np.uint8, [['a', 'b']] * 2, '<U1'),
    (np.uint8, FRAME * np.int64(300), '300'),
    (np.uint8, FRAME * np.int8(-1), '-1'),
    (np.uint64, FRAME * np.int8(-1), '-1'),
    (np.bool_, FRAME * 2, 'holds 2'),
    (np.float32, FRAME * 1j, 'complex128'),
    (np.float32, FRAME * np.nan, 'nan'),
    (np.float64, FRAME * -np.inf, '-inf'),
    (np.float32, FRAME * 1e300, 'holds 1e+300'),
  ],
)
def test_observations_have_the_shape_and_dtype_of_the_log(dtype, value, wrong):
  arguments = 'observation', value, (2, 2), np.dtype(dtype)
  if wrong is None:
    checked = transition_checks.check_value(*arguments)
    assert checked.dtype == dtype
    np.testing.assert_array_equal(checked, FRAME)
  else:
    refused(wrong, transition_checks.check_value, *arguments)


def test_actions_are_integers_from_0():
  for value in (3, np.int64(3), np.uint8(3), np.array(3)):
    assert transition_checks.check_action(value) == 3
  assert transition_checks.check_action(2**31 - 1) == 2**31 - 1
  assert transition_checks.check_action(2, num_actions=3) == 2
  for value in (1.0, np.float32(1), 'a', None, [1], np.array([1]), -1, 2**31):
    refused(repr(value), transition_checks.check_action, value)
  refused('3 is not in 0 to 2', transition_checks.check_action, 3, 3)


def test_rewards_are_finite_numbers():
  for value in (2, 2.0, np.float32(2), np.int8(2), np.array(2.0)):
    assert transition_checks.check_reward(value) == 2.0
  nothing = (None, '1.5', b'1', [1.0], np.array([1.0]), 1j)
  for value in (*nothing, np.nan, -np.inf, 1e39, -1e39):
    refused(repr(value), transition_checks.check_reward, value)
  refused('1000', transition_checks.check_reward, 10**400)


@pytest.mark.parametrize(
  'shape, dtype, wrong',
  [
    ((4,), 'uint', None),
    ((), np.float16, None),
    ((2,), '>f4', None),
    ((1 << 20,), np.float32, None),
    (4, np.uint8, 'observation_shape=4'),
    ((4, 0), np.uint8, 'observation_shape=(4, 0)'),
    ((4.0,), np.uint8, 'observation_shape=(4.0,)'),
    ((4,), object, "observation_dtype=<class 'object'>"),
    ((4,), 'unit8', "observation_dtype='unit8'"),
    (((1 << 20) + 1,), np.float32, '4,194,308 B'),
    ((1 << 40, 1 << 40), np.uint8, 'largest'),
  ],
)
def test_the_format_of_a_log_is_checked(shape, dtype, wrong):
  if wrong is None:
    checked = transition_checks.check_format(shape, dtype)
    assert checked == (shape, np.dtype(dtype).newbyteorder('='))
  else:
    refused(wrong, transition_checks.check_format, shape, dtype)


def test_sizes_of_a_log_are_integers_that_fit():
  for sizes in ((np.int64(40), 4, 1), (6, 4, 1), (1 << 24, 512, 1)):
    checked = transition_checks.check_sizes(*sizes)
    assert checked == sizes and {*map(type, checked)} == {int}
  wrong = (5, 4, 1), (40, 0, 1), (40, 4, 0), (1e3, 4, 1), (40, None, 1)
  for sizes in (*wrong, ((1 << 24) + 1, 4, 1), (2000, 513, 1)):
    value = f'shard_capacity={sizes[0]}, stack_size={sizes[1]}'
    refused(value, transition_checks.check_sizes, *sizes)


def test_metadata_are_json():
  given = {'environment': {'num_actions': np.int64(4)}, 'seeds': [1, 2]}
  checked = transition_checks.check_metadata(given)
  assert checked == given and type(checked['environment']['num_actions']) is int
  assert transition_checks.check_metadata(None) == {}
  for metadata, wrong in (
    ({'a': {1, 2}}, '{1, 2}'),
    ({'a': np.ones(3)}, 'array([1., 1., 1.])'),
    ([1], 'metadata'),
    # The data tools would refuse a log that has it.
    ({'environment': 'GridWorld'}, "environment is 'GridWorld'"),
    # The log writes these itself.
    ({'manifest_version': 2}, 'manifest_version'),
    ({'rows': 5, 'agent': 'mine', 'shards': []}, 'rows, shards'),
  ):
    refused(wrong, transition_checks.check_metadata, metadata)
