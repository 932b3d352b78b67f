"""Mutations of `benchmarks/fuzz`: what they change, and that they can be repeated."""

import gzip
import io
import json

import numpy as np
import pytest

from benchmarks.fuzz import mutations

CONTENT = bytes(range(256)) * 3


def array_file(array):
  stream = io.BytesIO()
  np.save(stream, array)
  return gzip.compress(stream.getvalue())


def every(function, content, count=200):
  """Returns the results of a mutation with many seeds."""
  return [
    function(content, np.random.default_rng(seed)) for seed in range(count)
  ]


@pytest.mark.parametrize('name', mutations.SAME_SIZE)
def test_some_keep_the_size(name):
  for content in (CONTENT, b'x', b'xy'):
    for other in every(mutations.SAME_SIZE[name], content):
      assert len(other) == len(content)


def test_other_mutations():
  for other in every(mutations.swap_ranges, CONTENT):
    assert sorted(other) == sorted(CONTENT)
  for other in every(mutations.truncate, CONTENT):
    assert len(other) < len(CONTENT) and CONTENT.startswith(other)
  for other in every(mutations.extend, CONTENT):
    assert len(other) > len(CONTENT) and other.startswith(CONTENT)


def test_the_result_differs_and_depends_on_the_seed_only():
  # Zeros stay zeros in most mutations: those are drawn again.
  for content in (CONTENT, bytes(20)):
    names = set()
    for seed in range(100):
      one, two = (
        mutations.mutate(
          content, np.random.default_rng(seed), mutations.ANY_SIZE
        )
        for _ in range(2)
      )
      assert one == two
      assert one[1] != content
      names.add(one[0])
    assert len(names) > 3


def test_a_header_is_edited_in_a_valid_gzip_file():
  array = np.arange(12, dtype=np.int32)
  changed = 0
  for other in every(mutations.edit_header, array_file(array)):
    content = gzip.decompress(other)
    assert content.endswith(array.tobytes())
    changed += content != gzip.decompress(array_file(array))
  assert changed > 100


def test_one_value_of_a_document_changes():
  document = {'a': 1, 'b': {'c': [1, 2, 'x']}, 'd': None}
  contents = every(mutations.change_value, json.dumps(document).encode())
  texts = {content.decode() for content in contents}
  assert len(texts) > 50
  assert any('1e999' in text for text in texts)
  assert any('[[[[' in text for text in texts)
  assert any(text.count('"a"') == 2 for text in texts)
  valid = [json.loads(text) for text in texts if '[[[[' not in text]
  assert any('a' not in other for other in valid if isinstance(other, dict))
