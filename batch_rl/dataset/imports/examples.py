"""Reads a serialised `tf.train.Example` without TensorFlow.

An Example is a map from names to features. A feature is a list of bytes, of float32 or
of int64. Source of the messages: `example.proto` and `feature.proto` of TensorFlow.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  message,
  message_factory,
)

from batch_rl.utils import files

_Field = descriptor_pb2.FieldDescriptorProto
# Fields of each message: name, type, and whether it is repeated. An entry of the map is a
# message of its own, as in the encoding, so that a repeated name is noticed.
_MESSAGES: dict[str, list[tuple[str, Any, bool]]] = {
  'Example': [('features', 'Features', False)],
  'Features': [('feature', 'Entry', True)],
  'Entry': [('key', _Field.TYPE_STRING, False), ('value', 'Feature', False)],
  'Feature': [
    ('bytes_list', 'BytesList', False),
    ('float_list', 'FloatList', False),
    ('int64_list', 'Int64List', False),
  ],
  'BytesList': [('value', _Field.TYPE_BYTES, True)],
  'FloatList': [('value', _Field.TYPE_FLOAT, True)],
  'Int64List': [('value', _Field.TYPE_INT64, True)],
}
_DTYPES = {'float_list': np.float32, 'int64_list': np.int64}

Values = list[bytes] | np.ndarray


def _make_example() -> Any:
  """Returns the class of the message, in a pool apart from TensorFlow's."""
  file = descriptor_pb2.FileDescriptorProto(
    name='batch_rl_example.proto', syntax='proto3'
  )
  for name, fields in _MESSAGES.items():
    made = file.message_type.add(name=name)
    for number, (field, kind, repeated) in enumerate(fields, 1):
      label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
      added = made.field.add(name=field, number=number, label=label)
      if isinstance(kind, str):
        added.type_name = kind
      else:
        added.type = kind
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(pool.FindMessageTypeByName('Example'))


_EXAMPLE = _make_example()


def parse(data: bytes) -> dict[str, Values]:
  """Returns the features of an Example by name; features without a list are left out.

  Args:
    data: The message.

  Returns:
    For each feature a list of bytes, or an array, float32 or int64 (n,).

  Raises:
    ValueError: If the message is damaged, or a feature is repeated.
  """
  try:
    example = _EXAMPLE.FromString(data)
  except message.DecodeError as error:
    raise ValueError('it is not a tf.train.Example') from error
  found: dict[str, Values] = {}
  for entry in example.features.feature:
    if entry.key in found:
      raise ValueError(f'its feature {entry.key!r} is repeated')
    for field, values in entry.value.ListFields():
      # Lists of several types would be one feature with several values.
      if entry.key in found:
        raise ValueError(f'its feature {entry.key!r} has several lists')
      dtype = _DTYPES.get(field.name)
      found[entry.key] = (
        np.array(values.value, dtype) if dtype else list(values.value)
      )
  return found


def check(
  found: Mapping[str, Values],
  columns: Mapping[str, str],
  scalars: Mapping[str, str],
) -> None:
  """Checks the features of an episode.

  Args:
    found: Features by name.
    columns: Type of each feature with a value for each step: 'bytes', 'float32' or
      'int64'.
    scalars: Type of each other feature that an episode has.

  Raises:
    ValueError: If a feature is missing, empty, or of another type, or columns differ
      in length. The message is a clause such as 'it has no actions'.
  """
  for key, kind in {**columns, **scalars}.items():
    value = found.get(key)
    if value is None or not len(value):
      raise ValueError(f'it has no {key}, but {files.format_names(found)}')
    stored = str(getattr(value, 'dtype', 'bytes'))
    if stored != kind:
      raise ValueError(f'it has {key} of type {stored}, not {kind}')
  lengths = {key: len(found[key]) for key in columns}
  if len(set(lengths.values())) > 1:
    raise ValueError(f'its columns differ in length: {lengths}')
