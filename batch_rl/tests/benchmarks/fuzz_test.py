"""Mutations of `benchmarks/fuzz`, and verdicts on readers and programs."""

import gzip
import io
import json
import sys

import numpy as np
import pytest

from benchmarks.fuzz import mutations, outcomes

CONTENT = bytes(range(256)) * 3


def every(function, content, count=100):
  """Returns the results of a mutation with many seeds."""
  return [
    function(content, np.random.default_rng(seed)) for seed in range(count)
  ]


@pytest.mark.parametrize('name', mutations.SAME_SIZE)
def test_some_keep_the_size(name):
  for content in (CONTENT, b'x', b'xy'):
    for other in every(mutations.SAME_SIZE[name], content):
      assert len(other) == len(content)


def test_the_result_differs_and_depends_on_the_seed_only():
  # Zeros stay zeros in most mutations: those are drawn again.
  for content in (CONTENT, bytes(20)):

    def mutate(content, random):
      return mutations.mutate(content, random, mutations.ANY_SIZE)

    found = every(mutate, content)
    assert found == every(mutate, content)
    assert all(other != content for _, other in found)
    assert len({name for name, _ in found}) > 3


def test_a_header_is_edited_in_a_valid_gzip_file():
  array, stream = np.arange(12, dtype=np.int32), io.BytesIO()
  np.save(stream, array)
  content = stream.getvalue()
  found = [
    gzip.decompress(other)
    for other in every(mutations.edit_header, gzip.compress(content))
  ]
  assert all(other.endswith(array.tobytes()) for other in found)
  assert sum(other != content for other in found) > 50


def test_one_value_of_a_document_changes():
  document = {'a': 1, 'b': {'c': [1, 2, 'x']}, 'd': None}
  content = json.dumps(document).encode()
  texts = {other.decode() for other in every(mutations.change_value, content)}
  assert len(texts) > 30
  for part in ('1e999', '[[[['):
    assert any(part in text for text in texts)
  assert any(text.count('"a"') != 1 for text in texts)


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
