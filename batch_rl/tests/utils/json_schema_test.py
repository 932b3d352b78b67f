"""Files of unknown content: read as expected, or refused in one line."""

import json
import math
import numbers

import hypothesis
import pytest
from hypothesis import strategies as st

from batch_rl.utils import json_schema

SCHEMA = {
  'name': str,
  'size': range(1, 100),
  'seed': int,
  'mean': float,
  'score': numbers.Real,
  'done': bool,
  'items': [{'id': json_schema.Required(int), 'rest': list}],
  'files': {str: {'bytes': int}},
  'unknown': object,
}


@pytest.mark.parametrize(
  'text',
  [
    '{}',
    '{"name": "a", "size": 99, "seed": -5000000000000000000000, "mean": 3, "done": false}',
    '{"name": null, "size": null, "items": null, "files": {"a": null}}',
    '{"score": NaN, "unknown": -Infinity, "other": [1e999, {"a": 1}]}',
    '{"items": [{"id": 1, "rest": [], "more": 2}], "files": {"x": {}}}',
    '{"deep": ' + '[' * 60 + ']' * 60 + '}',
    json.dumps({'name': '[' * 100 + '"\\' * 3 + '[' * 100}),
    '{"other": [' + '[],' * 1000 + '[]]}',
  ],
)
def test_what_is_expected_or_unknown_is_read(text):
  value = json_schema.parse(text.encode(), SCHEMA)
  assert repr(value) == repr(json.loads(text))


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (b'', 'it is empty'),
    (b'{"name": ', 'not JSON'),
    (b'{"name": "\xff"}', 'not JSON'),
    (b'\x00' * 8, 'not JSON'),
    (b'[]', r'it is \[\], not an object'),
    (b'null', 'it is None, not an object'),
    (b'{"name": 3}', 'name is 3, not text'),
    (b'{"name": "\\ud800"}', 'name is .*, not text'),
    (b'{"size": 0}', 'size is 0, not an integer from 1 to 99'),
    (b'{"size": true}', 'size is True, not an integer'),
    (b'{"size": 4.0}', 'size is 4.0, not an integer'),
    (b'{"seed": 1e3}', 'seed is 1000.0, not an integer'),
    (b'{"mean": 1e999}', 'mean is inf, not a finite number'),
    (b'{"mean": NaN}', 'mean is nan, not a finite number'),
    (b'{"mean": "3"}', "mean is '3', not a finite number"),
    (b'{"mean": 1' + b'0' * 400 + b'}', 'mean is 10*.*, not a finite number'),
    (b'{"mean": 1' + b'0' * 5000 + b'}', 'mean is|digits'),
    (b'{"score": []}', r'score is \[\], not a number'),
    (b'{"done": 1}', 'done is 1, not true or false'),
    (b'{"items": [{"id": 1}, {}]}', r'it has no items\[1\].id'),
    (b'{"items": [{"id": null}]}', r'it has no items\[0\].id'),
    (b'{"items": [null]}', r'items\[0\] is None, not an object'),
    (b'{"items": [{"id": 1, "rest": {}}]}', r'items\[0\].rest is {}, not'),
    (b'{"files": {"a": {"bytes": []}}}', r"files\['a'\].bytes is \[\], not"),
    (b'{"seed": 1, "other": {"a": 1, "a": 2}}', "the key 'a' twice"),
    (b'[' * 100_000, 'nested deeper'),
    (b'[' * 100_000 + b']' * 100_000, 'nested deeper'),
    (b'{"a":' * 100_000, 'nested deeper'),
    (b'"' + b'\\"' * 100_000, 'not JSON'),
    (b'"' + b'\\' * 99_999, 'not JSON'),
    (b'{"other": ' + b'[' * 70 + b']' * 70 + b'}', 'nested deeper'),
  ],
)
def test_damage_is_named(text, message):
  with pytest.raises(ValueError, match=message) as error:
    json_schema.parse(text, SCHEMA)
  assert len(str(error.value)) < 200 and '\n' not in str(error.value)


VALUES = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*SCHEMA, 'id', 'x']), inner, max_size=4)
  ),
  max_leaves=8,
)


def fits(value):
  """Checks a value against `SCHEMA` as its readers do."""
  # `type`, not `isinstance`: a bool is no number.
  for key, kinds in (
    ('name', {str}),
    ('size', {int}),
    ('seed', {int}),
    ('mean', {int, float}),
    ('score', {int, float}),
    ('done', {bool}),
    ('items', {list}),
    ('files', {dict}),
  ):
    assert value.get(key) is None or type(value[key]) in kinds
  assert value.get('size') is None or 1 <= value['size'] < 100
  assert value.get('mean') is None or math.isfinite(value['mean'])
  for item in value.get('items') or []:
    assert type(item['id']) is int
    assert item.get('rest') is None or type(item['rest']) is list
  for about in (value.get('files') or {}).values():
    assert (
      about is None
      or about.get('bytes') is None
      or (type(about['bytes']) is int)
    )


ODD = [
  *(True, False, -1, 0, 1, 99, 100, 4.0, math.inf, math.nan, 10**400, '', '3'),
  *([], {}, [None], [{}], [{'id': True}], [{'id': 1.0}], [{'id': 1}]),
  *([{'id': 1, 'rest': {}}], [{'id': 1, 'rest': [3]}]),
  *({'a': 3}, {'a': None}, {'a': {'bytes': True}}, {'a': {'bytes': 1.5}}),
  {'a': {'bytes': 1}},
]


@pytest.mark.parametrize('key', SCHEMA)
def test_an_entry_fits_or_is_refused(key):
  accepted = 0
  for value in ODD:
    try:
      read = json_schema.parse(json.dumps({key: value}).encode(), SCHEMA)
    except ValueError as error:
      assert str(error).startswith((key, f'it has no {key}['))
    else:
      fits(read)
      accepted += 1
  assert 0 < accepted < len(ODD) or key == 'unknown'


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(value=VALUES)
def test_a_value_fits_or_is_refused(value):
  try:
    read = json_schema.parse(json.dumps(value).encode(), SCHEMA)
  except ValueError as error:
    assert '\n' not in str(error)
  else:
    fits(read)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(
  text=st.binary(max_size=40)
  | st.text('{}[]":,1e9-. nul', max_size=30).map(str.encode)
)
def test_any_bytes_are_read_or_refused(text):
  try:
    json_schema.parse(text)
  except ValueError as error:
    assert '\n' not in str(error)
