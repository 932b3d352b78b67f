"""Tests of the reader of Examples, against protobuf's own."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batch_rl.dataset.unplugged import examples
from batch_rl.tests.dataset.unplugged import unplugged_files

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(
  st.lists(st.binary(max_size=300), max_size=5),
  st.lists(st.floats(width=32), max_size=200).map(
    lambda v: [float(x) for x in v]
  ),
  st.lists(INT64 | st.integers(0, 17), max_size=200),
)
FEATURES = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def varint(value):
  """Encodes an integer by the specification."""
  value %= 1 << 64
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  return bytes([*out, value])


def field(number, content):
  return varint(number << 3 | 2) + varint(len(content)) + content


def unpacked(values):
  """Encodes features with one field for each element."""
  entries = []
  for name, elements in values.items():
    kind, data = 1, b''
    for element in elements:
      if isinstance(element, bytes):
        data += field(1, element)
      elif isinstance(element, int):
        kind, data = 3, data + varint(1 << 3) + varint(element)
      else:
        kind = 2
        data += varint(1 << 3 | 5) + np.float32(element).tobytes()
    feature = field(kind, data)
    entries.append(field(1, field(1, name.encode()) + field(2, feature)))
  return field(1, b''.join(entries))


def by_protobuf(data):
  """Returns what protobuf reads; None if it refuses."""
  try:
    read = tf.train.Example.FromString(data)
  except message.DecodeError:
    return None
  found = {}
  for name, feature in read.features.feature.items():
    kind = feature.WhichOneof('kind')
    if kind:
      found[name] = kind, list(getattr(feature, kind).value)
  return found


def assert_same(found, expected):
  assert expected is not None and found.keys() == expected.keys()
  for name, (kind, values) in expected.items():
    if kind == 'bytes_list':
      assert [bytes(v) for v in found[name]] == values
    else:
      dtype = {'float_list': np.float32, 'int64_list': np.int64}[kind]
      assert found[name].dtype == dtype
      np.testing.assert_array_equal(found[name], np.array(values, dtype))


@settings(max_examples=60, deadline=None)
@given(FEATURES)
def test_what_tensorflow_writes(values):
  data = unplugged_files.serialize(values)
  assert_same(examples.parse(data), by_protobuf(data))


@settings(max_examples=60, deadline=None)
@given(FEATURES)
def test_elements_that_are_not_packed(values):
  data = unpacked(values)
  assert_same(examples.parse(data), by_protobuf(data))


@settings(max_examples=30, deadline=None)
@given(FEATURES, st.binary(max_size=20), st.integers(2, 2**29 - 1))
def test_unknown_fields_are_skipped(values, content, number):
  data = unplugged_files.serialize(values)
  more = varint(number << 3) + varint(12345), varint(number << 3 | 1) + bytes(8)
  data = field(number, content) + more[0] + data + more[1]
  assert_same(examples.parse(data), by_protobuf(data))


@settings(max_examples=300, deadline=None)
@given(FEATURES, st.booleans(), st.data())
def test_damage_is_refused_or_read_as_by_protobuf(values, packed, draw):
  data = bytearray((unplugged_files.serialize if packed else unpacked)(values))
  for _ in range(draw.draw(st.integers(1, 3))):
    if data:
      at = draw.draw(st.integers(0, len(data) - 1))
      data[at] = draw.draw(st.integers(0, 255))
  data = bytes(data[: draw.draw(st.integers(0, len(data)))])
  try:
    found = examples.parse(data)
  except ValueError:
    return
  assert_same(found, by_protobuf(data))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40))
@example(b'\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01')
@example(b'\x80' * 11)
def test_any_bytes(data):
  try:
    found = examples.parse(data)
  except ValueError:
    return
  assert_same(found, by_protobuf(data))


def test_numbers_of_a_damaged_packed_list_do_not_join():
  # A packed list that ends within an integer, then an element on its own.
  numbers = field(1, b'\x80') + varint(1 << 3) + varint(1)
  data = field(1, field(1, field(1, b'x') + field(2, field(3, numbers))))
  assert by_protobuf(data) is None
  with pytest.raises(ValueError, match='ends within one'):
    examples.parse(data)


def test_an_entry_with_an_unknown_field_is_refused():
  """Protobuf's implementations disagree on it: some leave out the feature."""
  entry = field(6, b'x') + field(2, field(1, b''))
  with pytest.raises(ValueError, match='an entry of the features is malformed'):
    examples.parse(field(1, field(1, entry)))


def test_features_of_an_episode():
  (episode,) = unplugged_files.random_episodes(50)
  values = unplugged_files.features(episode, checkpoint=300, number=-1)
  found = examples.parse(unplugged_files.serialize(values))
  assert found['checkpoint_idx'].tolist() == [300]
  assert found['episode_idx'].tolist() == [-1]
  assert found['actions'].tolist() == episode.action.tolist()
  assert [bytes(v) for v in found['observations']] == values['observations']
