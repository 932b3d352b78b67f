"""Number lists on the command line."""

import pytest

from batch_rl.utils import number_ranges


@pytest.mark.parametrize(
  'text, numbers',
  [('1-3', [1, 2, 3]), ('4', [4]), ('2,5-6, 9', [2, 5, 6, 9])],
)
def test_ranges_and_lists_are_parsed(text, numbers):
  assert number_ranges.parse(text, '--runs') == numbers


@pytest.mark.parametrize('text', ['a', '3-1', '1-', '1,1', '1-3,2', '-1'])
def test_wrong_lists_are_refused(text):
  with pytest.raises(ValueError, match=f'--runs={text} '):
    number_ranges.parse(text, '--runs')
