import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import message
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.imports import examples
from batch_rl.tests.dataset.unplugged import unplugged_files

VALUES = st.one_of(
  st.lists(st.binary(max_size=300), max_size=5),
  st.lists(st.floats(width=32), max_size=200),
  st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 17), max_size=200),
)
FEATURES = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def assert_same(found, data):
  """Compares features with those that TensorFlow finds in a message."""
  read = tf.train.Example.FromString(data).features.feature
  expected = {n: f for n, f in read.items() if f.WhichOneof('kind')}
  assert found.keys() == expected.keys()
  for name, feature in expected.items():
    kind = feature.WhichOneof('kind')
    values = list(getattr(feature, kind).value)
    if kind == 'bytes_list':
      assert found[name] == values
    else:
      dtype = {'float_list': np.float32, 'int64_list': np.int64}[kind]
      assert found[name].dtype == dtype
      np.testing.assert_array_equal(found[name], np.array(values, dtype))


@settings(max_examples=100)
@given(FEATURES, st.data())
def test_messages_are_read_as_by_tensorflow_or_refused(values, draw):
  data = unplugged_files.serialize(values)
  assert_same(examples.parse(data), data)
  damaged = bytearray(data)
  for _ in range(draw.draw(st.integers(1, 3)) if data else 0):
    at = draw.draw(st.integers(0, len(data) - 1))
    damaged[at] ^= draw.draw(st.integers(1, 255))
  cut = bytes(damaged[: draw.draw(st.integers(0, len(data)))])
  try:
    found = examples.parse(cut)
  except ValueError:
    return
  assert_same(found, cut)


def field(number, content):
  return bytes([number << 3 | 2, len(content)]) + content


def test_ambiguous_features_are_refused():
  lists = field(1, b''), field(3, b'')
  for values, problem in (
    ([lists[1], lists[1]], 'repeated'),
    ([lists[0] + lists[1]], 'several lists'),
  ):
    entries = [field(1, b'x') + field(2, value) for value in values]
    content = b''.join(field(1, entry) for entry in entries)
    with pytest.raises(ValueError, match=problem):
      examples.parse(field(1, content))


def test_a_length_beyond_the_message_takes_no_memory():
  with pytest.raises(ValueError, match='not a tf.train') as raised:
    examples.parse(b'\x0a\xff\xff\xff\xff\x07')
  assert isinstance(raised.value.__cause__, message.DecodeError)
