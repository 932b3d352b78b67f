import pytest

from batch_rl.utils import number_ranges


def test_ranges_and_lists_are_parsed():
  assert number_ranges.parse('2,5-6, 9', '--runs') == [2, 5, 6, 9]
  largest = number_ranges.parse('1-5000,7000-11999', '--runs')
  assert largest == [*range(1, 5001), *range(7000, 12000)]


@pytest.mark.parametrize('text', ['a', '3-1', '1-3,2', '', '²', '1-10001'])
def test_wrong_lists_are_refused(text):
  with pytest.raises(ValueError, match=f'--runs={text} '):
    number_ranges.parse(text, '--runs')


def test_names_sort_by_their_numbers():
  names = ['run9', 'run10', '1', '9', '10']
  for few in (names[:2], names[2:]):
    assert sorted(reversed(few), key=number_ranges.natural_key) == few
