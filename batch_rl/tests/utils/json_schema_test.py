import json
import numbers

import pytest

from batch_rl.utils import json_schema

SCHEMA = dict(name=str, size=range(1, 100), seed=int, mean=float, done=bool)
SCHEMA |= dict(items=[{'id': json_schema.Required(int), 'rest': list}])
SCHEMA |= dict(files={str: {'bytes': int}}, score=numbers.Real, unknown=object)


@pytest.mark.parametrize(
  'text',
  [
    '{}',
    '{"name": "a", "size": 99, "seed": -5000000000000000000000, "mean": 3, "done": false}',
    '{"name": null, "size": null, "items": null, "files": {"a": null}}',
    '{"score": NaN, "unknown": -Infinity, "other": [1e999, {"a": 1}]}',
    '{"items": [{"id": 1, "rest": [], "more": 2}], "files": {"x": {}}}',
  ],
)
def test_what_is_expected_or_unknown_is_read(text):
  value = json_schema.parse(text.encode(), SCHEMA)
  assert repr(value) == repr(json.loads(text))


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (b'{"name": "\xff"}', 'not JSON'),
    (b'[]', r'it is \[\], not an object'),
    (b'{"name": 3}', 'name is 3, not text'),
    (b'{"size": 0}', 'size is 0, not an integer from 1 to 99'),
    (b'{"seed": 1e3}', 'seed is 1000.0, not an integer'),
    (b'{"mean": 1e999}', 'mean is inf, not a finite number'),
    (b'{"mean": 1' + b'0' * 400 + b'}', 'mean is 10*.*, not a finite number'),
    (b'{"score": []}', r'score is \[\], not a number'),
    (b'{"done": 1}', 'done is 1, not true or false'),
    (b'{"items": [{"id": 1}, {}]}', r'it has no items\[1\].id'),
    (b'{"files": {"a": {"bytes": []}}}', r"files\['a'\].bytes is \[\], not"),
    (b'{"seed": 1, "other": {"a": 1, "a": 2}}', "the key 'a' twice"),
    (b'[' * 100_000, 'nested too deeply'),
  ],
)
def test_damage_is_named(text, message):
  with pytest.raises(ValueError, match=message) as error:
    json_schema.parse(text, SCHEMA)
  assert len(str(error.value)) < 200 and '\n' not in str(error.value)
