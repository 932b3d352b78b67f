"""Faults that `benchmarks.mutants` makes, and its record of calls."""

import pytest

from benchmarks.mutants import __main__ as mutants
from benchmarks.mutants import calls, edits


@pytest.mark.parametrize(
  'source, expected',
  [
    ('a < b', ['a <= b']),
    ('a is not b', ['a is b']),
    ('x = a + 1', ['x = a - 1', 'x = a + (0)', 'x = a + (2)']),
    ("x = 'a' + b", []),
    ('x = a or (b)', ['x = a and (b)']),
    ('x = not (a)', ['x =  (a)']),
    (
      'def f(a: A | B):\n  "1 + 1"\n  return a',
      ['def f(a: A | B):\n  "1 + 1"\n  return None'],
    ),
    ('f(a, b)', ['f(b, a)', 'pass']),
    (
      "if a:\n  raise B(f'{1}')",
      ["if (not (a)):\n  raise B(f'{1}')", 'if a:\n  pass'],
    ),
    ('for x in y:\n  break', ['for x in y:\n  continue']),
  ],
)
def test_faults(source, expected):
  data = source.encode()
  found = [edit.apply(data).decode() for edit in edits.edits(data)]
  assert sorted(found) == sorted(expected)


def test_a_fault_has_its_line_and_function():
  source = b'class A:\n  def f(self):\n    """1."""\n\n    # 1\n    return 1\n'
  assert edits.code_lines(source) == {1, 2, 6}
  found = {(one.line, one.function) for one in edits.edits(source)}
  assert found == {(6, 'A.f')}


def test_calls_are_recorded_under_their_test(tmp_path):
  source = 'class A:\n  def f(self):\n    """Doc."""\n    return 1\n'
  record = calls._Calls(str(tmp_path))
  tree = calls.with_calls(source.encode(), 'm', 'm.py')
  space = {'__mutants_call__': record}
  exec(compile(tree, 'm.py', 'exec'), space)
  for record.test in ('', 'a_test', 'a_test', 'b_test'):
    assert space['A']().f() == 1
  (path,) = tmp_path.iterdir()
  assert path.read_text() == 'a_test\tm:A.f\nb_test\tm:A.f\n'


def test_interval():
  # Wilson, 1927, as computed by statsmodels' proportion_confint.
  assert mutants.interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
