"""Checks of what a user gives to a log, before it is written.

Every error is one line that names the value.
"""

import json
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.shards import manifests, shard_reader
from batch_rl.utils import json_schema

# Far more frames than a state has; the padding of an episode is written at once.
MAX_STACK_SIZE = 512


def check_format(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
  """Returns the shape and dtype of a log's observations, in the native byte order.

  Args:
    shape: Sequence of positive integers; empty for single numbers.
    dtype: Dtype, or anything that NumPy takes for one.

  Raises:
    ValueError: If the shape is not such a sequence, the dtype is not one of booleans,
      integers or floats, or an observation is larger than readers allow.
  """
  try:
    sizes, kind = tuple(map(operator.index, shape)), np.dtype(dtype)
  except TypeError:
    sizes, kind = (), np.dtype(object)
  if any(size < 1 for size in sizes) or kind.kind not in 'biuf':
    raise ValueError(
      f'observation_shape={shape!r} and observation_dtype={dtype!r} are not a tuple '
      'of positive integers, such as (84, 84), or () for a single number, and a '
      'NumPy dtype of booleans, integers or floats, such as np.uint8.'
    )
  size, most = kind.itemsize * math.prod(sizes), shard_reader.MAX_ROW_BYTES
  if size > most:
    raise ValueError(
      f'An observation of {kind} {sizes} takes {size:,} B; the largest that can be '
      f'read have {most:,} B.'
    )
  # TensorFlow, PyTorch and JAX read no other byte order.
  return sizes, kind.newbyteorder('=')


def check_sizes(
  shard_capacity: Any, stack_size: Any, update_horizon: Any
) -> tuple[int, int, int]:
  """Returns the sizes of a log as Python's integers, which the manifest can hold.

  Raises:
    ValueError: If they are no integers, out of range, or do not fit.
  """
  try:
    capacity, stack, horizon = map(
      operator.index, (shard_capacity, stack_size, update_horizon)
    )
  except TypeError:
    capacity = stack = horizon = 0
  fits = stack + horizon < capacity <= shard_reader.MAX_ROWS
  if not (1 <= stack <= MAX_STACK_SIZE and horizon >= 1 and fits):
    raise ValueError(
      f'shard_capacity={shard_capacity}, stack_size={stack_size} and '
      f'update_horizon={update_horizon} do not fit: they are integers; stack and '
      f'horizon are at least 1, a stack at most {MAX_STACK_SIZE}; a shard has more '
      f'rows than their sum, at most {shard_reader.MAX_ROWS:,}.'
    )
  return capacity, stack, horizon


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
  """Returns entries for the manifest, with NumPy's numbers as Python's.

  Args:
    metadata: Entries; None for none.

  Raises:
    ValueError: If an entry cannot be written as JSON, could not be read back, or is
      one that the log writes itself.
  """

  def as_python(value: Any) -> Any:
    if isinstance(value, np.generic):  # e.g. the `n` of Gymnasium's spaces
      return value.item()
    raise TypeError(f'it holds {_shorten(value)}')

  try:
    text = json.dumps(dict(metadata or {}), default=as_python)
  except (TypeError, ValueError) as error:
    raise ValueError(f'metadata is not JSON-serialisable: {error}.') from None
  try:
    checked = json_schema.parse(text.encode(), manifests.SCHEMA)
  except ValueError as error:
    raise ValueError(f'metadata: {error}.') from None
  if reserved := sorted(checked.keys() & manifests.OF_THE_LOG):
    raise ValueError(
      f'metadata has {", ".join(reserved)}, which the log writes: choose other names.'
    )
  return checked


def check_value(
  name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
  """Returns an observation, an action or a reward as an array of the log's dtype.

  Only floats may lose precision.

  Args:
    name: Name of the value, for messages.
    value: Value to log.
    shape: Shape of such values in the log.
    dtype: Dtype of such values in the log.

  Raises:
    ValueError: If the shape differs, or if the dtype cannot hold the value: floats
      for an integer dtype, integers out of its range, or infinity and NaN.
  """
  try:
    array = np.asarray(value)
  except ValueError:  # e.g. lists of unequal lengths
    array = np.asarray(None)
  kinds = 'biuf' if dtype.kind == 'f' else 'biu'
  if array.dtype.kind not in kinds:
    wrong = f'is of {array.dtype}, not of numbers that {dtype} can hold'
  elif array.shape != shape:
    wrong = f'has shape {array.shape}, those of the log have {shape}'
  else:
    # Infinity is refused below.
    with np.errstate(over='ignore'):
      converted = array.astype(dtype, copy=False)
    fits = np.isfinite(converted) if dtype.kind == 'f' else converted == array
    if fits.all():
      return converted
    wrong = f'holds {array[~fits].flat[0]}, which {dtype} cannot hold'
  raise ValueError(f'The {name} {_shorten(value)} {wrong}.')


def check_action(value: Any, num_actions: int = 2**31) -> int:
  """Returns an action as an integer.

  Raises:
    ValueError: If it is not an integer, or out of range.
  """
  if isinstance(value, int | np.int64) and 0 <= value < num_actions:
    return int(value)  # at once: an online agent logs thousands a second
  action = int(check_value('action', value, (), np.dtype(np.int32)))
  if not 0 <= action < num_actions:
    raise ValueError(f'The action {action} is not in 0 to {num_actions - 1}.')
  return action


def check_reward(value: Any) -> float:
  """Returns a reward as a float.

  Raises:
    ValueError: If it is not a number, or not finite in float32.
  """
  if not (isinstance(value, float) and abs(value) < 3.4e38):  # float32's end
    check_value('reward', value, (), np.dtype(np.float32))
  return float(value)


def check_flag(name: str, value: Any) -> bool:
  """Returns whether an episode ends; raises a ValueError if it is no truth value."""
  if not isinstance(value, bool) and (np.ndim(value) or value not in (0, 1)):
    raise ValueError(f'{name}={_shorten(value)} is neither True nor False.')
  return bool(value)


def _shorten(value: Any) -> str:
  """Returns a value as one short line."""
  text = ' '.join(repr(value).split())
  return text if len(text) <= 60 else text[:57] + '...'
