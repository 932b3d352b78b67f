"""Mutations of `benchmarks/fuzz`, and verdicts on readers and programs."""

import gzip
import io
import json
import sys

import numpy as np

from benchmarks.fuzz import mutations, outcomes


def every(function, content):
  """Returns the results of a mutation with many seeds."""
  return [function(content, np.random.default_rng(seed)) for seed in range(100)]


def test_the_result_differs_and_depends_on_the_seed_only():
  # Zeros stay zeros in most mutations: those are drawn again.
  for content in (bytes(range(256)) * 3, bytes(20)):

    def mutate(content, random):
      return mutations.mutate(content, random, mutations.ANY_SIZE)

    found = every(mutate, content)
    assert found == every(mutate, content)
    assert all(other != content for _, other in found)
    assert len({name for name, _ in found}) > 3
    for mutation in mutations.SAME_SIZE.values():
      assert set(map(len, every(mutation, content))) == {len(content)}


def test_headers_and_values_are_edited():
  array, stream = np.arange(12, dtype=np.int32), io.BytesIO()
  np.save(stream, array)
  content = stream.getvalue()
  found = [
    gzip.decompress(other)
    for other in every(mutations.edit_header, gzip.compress(content))
  ]
  assert all(other.endswith(array.tobytes()) for other in found)
  assert sum(other != content for other in found) > 50
  content = json.dumps({'a': 1, 'b': {'c': [1, 'x']}, 'd': None}).encode()
  texts = {other.decode() for other in every(mutations.change_value, content)}
  assert len(texts) > 30 and any('1e999' in text for text in texts)


def fail(error):
  raise error


def leave(text, code):
  print(text, file=sys.stderr)
  sys.exit(code)


def test_verdicts_on_readers_and_programs():
  rows = {'rows': np.arange(3)}
  for reader, verdict in (
    (lambda: {'rows': np.arange(3)}, outcomes.HARMLESS),
    (lambda: {'rows': np.arange(3) + 1}, outcomes.SILENT),
    (lambda: {'rows': np.arange(3.0)}, outcomes.SILENT),
    (dict, outcomes.SILENT),
    (lambda: fail(ValueError('a.bin is damaged')), outcomes.DETECTED),
    (lambda: fail(KeyError('rows')), outcomes.CRASHED),
  ):
    assert outcomes.read('reader', reader, rows).verdict == verdict
  for program, verdict in (
    (lambda: None, outcomes.HARMLESS),
    (lambda: leave('error: a.json is damaged', 2), outcomes.DETECTED),
    (lambda: leave('a problem', 1), outcomes.DETECTED),
    (lambda: leave('error: one\nerror: two', 2), outcomes.CRASHED),
    (lambda: fail(TypeError('x')), outcomes.CRASHED),
  ):
    assert outcomes.run_program('program', program)[0].verdict == verdict
