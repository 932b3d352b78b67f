"""Verdicts of `benchmarks/fuzz` on readers and programs."""

import sys

import numpy as np
import pytest

from benchmarks.fuzz import outcomes

INTACT = {'rows': np.arange(3), 'name': 'dqn'}


def fail(error):
  raise error


@pytest.mark.parametrize(
  ('reader', 'verdict'),
  [
    (lambda: {'rows': np.arange(3), 'name': 'dqn'}, outcomes.HARMLESS),
    (lambda: {'rows': np.arange(3) + 1, 'name': 'dqn'}, outcomes.SILENT),
    (lambda: {'rows': np.arange(3.0), 'name': 'dqn'}, outcomes.SILENT),
    (lambda: {'rows': np.arange(3)}, outcomes.SILENT),
    (lambda: fail(ValueError('a.bin is damaged')), outcomes.DETECTED),
    (lambda: fail(KeyError('rows')), outcomes.CRASHED),
  ],
)
def test_readers(reader, verdict):
  assert outcomes.read('reader', reader, INTACT).verdict == verdict


def leave(text, code):
  print(text, file=sys.stderr)
  sys.exit(code)


@pytest.mark.parametrize(
  ('program', 'verdict'),
  [
    (lambda: None, outcomes.HARMLESS),
    (lambda: leave('error: a.json is damaged', 2), outcomes.DETECTED),
    (lambda: leave('a problem', 1), outcomes.DETECTED),
    (lambda: leave('usage: ...', 2), outcomes.CRASHED),
    (lambda: leave('error: one\nerror: two', 2), outcomes.CRASHED),
    (lambda: fail(TypeError('x')), outcomes.CRASHED),
  ],
)
def test_programs(program, verdict):
  assert outcomes.run_program('program', program)[0].verdict == verdict
