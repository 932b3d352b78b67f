"""Reads a serialised `tf.train.Example` without TensorFlow or protobuf.

An Example is a map from names to features. A feature is a list of bytes, of float32 or
of int64. Messages are not trusted: each length is compared with the bytes that are left.

The reader is stricter than protobuf. It refuses repeated features, groups, and unknown
fields in an entry of the map, which no serialiser writes.

Source of the encoding: protobuf.dev, "Encoding"; of the fields: `example.proto` and
`feature.proto` of TensorFlow.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

# Wire types.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Kinds of a feature, by the number of their field.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_MAX_VARINT_BYTES = 10
_ONE_VALUE = 1 << 3 | _BYTES  # Tag of an element of a BytesList.

Values = list[memoryview] | np.ndarray


def parse(data: bytes) -> dict[str, Values]:
  """Returns the features of an Example by name; features without a list are left out.

  Args:
    data: The message.

  Returns:
    For each feature a list of views of `data`, or an array, float32 or int64 (n,).

  Raises:
    ValueError: If the message is damaged.
  """
  found: dict[str, Values] = {}
  for start, stop in _messages(data, 0, len(data), 'Example', 1):
    for entry in _messages(data, start, stop, 'Features', 1):
      name, values = _parse_entry(data, *entry)
      if name in found:
        raise ValueError(f'the feature {name!r} is repeated')
      if values is not None:
        found[name] = values
  return found


def _parse_entry(
  data: bytes, start: int, stop: int
) -> tuple[str, Values | None]:
  """Returns the name and the values of an entry of the map."""
  name, values = '', None
  seen = set()
  for number, wire, begin, end in _fields(data, start, stop):
    if number not in (1, 2) or wire != _BYTES or number in seen:
      raise ValueError('an entry of the features is malformed')
    seen.add(number)
    if number == 1:
      name = data[begin:end].decode()  # UnicodeDecodeError is a ValueError
    else:
      values = _parse_feature(data, begin, end)
  return name, values


def _parse_feature(data: bytes, start: int, stop: int) -> Values | None:
  """Returns the values of a feature; None if it has no list."""
  found: Values | None = None
  for number, wire, begin, end in _fields(data, start, stop):
    if number not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST):
      continue
    if wire != _BYTES or found is not None:
      raise ValueError('a feature is malformed')
    if number == _BYTES_LIST:
      found = _parse_bytes(data, begin, end)
    elif number == _FLOAT_LIST:
      found = _parse_numbers(data, begin, end, _FIXED32, _floats, np.float32)
    else:
      found = _parse_numbers(data, begin, end, _VARINT, _varints, np.int64)
  return found


def _parse_bytes(data: bytes, at: int, stop: int) -> list[memoryview]:
  """Returns the elements of a BytesList; written out, for it has most of them."""
  found, view = [], memoryview(data)
  while at < stop:
    if data[at] == _ONE_VALUE:
      size, at = _varint(data, at + 1, stop)
      if size > stop - at:
        raise ValueError('a value is longer than its list')
      found.append(view[at : at + size])
      at += size
    else:
      number, _, _, end, at = _field(data, at, stop)
      if number == 1:
        raise ValueError('a list of bytes is malformed')
  return found


def _parse_numbers(
  data: bytes,
  start: int,
  stop: int,
  wire_type: int,
  decode: Any,
  kind: Any,
) -> np.ndarray:
  """Returns the elements of a FloatList or an Int64List, packed or not."""
  parts = []
  for number, wire, begin, end in _fields(data, start, stop):
    if number != 1:
      continue
    if wire not in (_BYTES, wire_type):
      raise ValueError('a list of numbers is malformed')
    part = data[begin:end]
    if part and (part[-1] > 0x7F if wire_type == _VARINT else len(part) % 4):
      raise ValueError('a list of numbers ends within one')
    parts.append(part)
  # Elements that are not packed look alike, one by one.
  whole = np.frombuffer(b''.join(parts), np.uint8)
  return decode(whole) if parts else np.zeros(0, kind)


def _floats(data: np.ndarray) -> np.ndarray:
  return data.view('<f4').astype(np.float32)


def _varints(data: np.ndarray) -> np.ndarray:
  """Decodes consecutive varints: seven bits a byte, the lowest first."""
  if not (data & 0x80).any():
    return data.astype(np.int64)
  ends = np.flatnonzero(data < 0x80) + 1
  starts = np.concatenate([[0], ends[:-1]])
  lengths = ends - starts
  if lengths.max() > _MAX_VARINT_BYTES:
    raise ValueError('an integer has more than 64 bits')
  values = np.zeros(len(ends), np.uint64)
  for i in range(lengths.max()):
    longer = np.flatnonzero(lengths > i)
    bits = (data[starts[longer] + i] & 0x7F).astype(np.uint64)
    values[longer] |= bits << np.uint64(7 * i)
  return values.view(np.int64)


def _messages(
  data: bytes, start: int, stop: int, message: str, wanted: int
) -> Iterator[tuple[int, int]]:
  """Yields the range of each embedded message in the field `wanted`."""
  for number, wire, begin, end in _fields(data, start, stop):
    if number == wanted:
      if wire != _BYTES:
        raise ValueError(f'a field of {message} has wire type {wire}')
      yield begin, end


def _fields(
  data: bytes, at: int, stop: int
) -> Iterator[tuple[int, int, int, int]]:
  """Yields the number, the wire type and the range of the value of each field."""
  while at < stop:
    number, wire, begin, end, at = _field(data, at, stop)
    yield number, wire, begin, end


def _field(data: bytes, at: int, stop: int) -> tuple[int, int, int, int, int]:
  """Reads a field: number, wire type, begin and end of the value, next field."""
  tag, at = _varint(data, at, stop)
  number, wire = tag >> 3, tag & 7
  if not 0 < number < 1 << 29:
    raise ValueError(f'there is a field with the number {number}')
  begin = at
  if wire == _VARINT:
    _, at = _varint(data, at, stop)
  elif wire == _FIXED64:
    at += 8
  elif wire == _FIXED32:
    at += 4
  elif wire == _BYTES:
    size, begin = _varint(data, at, stop)
    at = begin + size
  else:
    raise ValueError(f'there is a field of wire type {wire}')
  if at > stop:
    raise ValueError('a field is longer than its message')
  return number, wire, begin, at, at


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
  """Reads an unsigned integer; returns it and the position after it."""
  value = shift = 0
  while at < stop:
    byte = data[at]
    at += 1
    value |= (byte & 0x7F) << shift
    if byte < 0x80:
      return value, at
    shift += 7
    if shift == 7 * _MAX_VARINT_BYTES:
      raise ValueError('an integer has more than 64 bits')
  raise ValueError('a message ends within an integer')
