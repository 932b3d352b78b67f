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

_LARGEST_ACTION = int(np.iinfo(np.int32).max)
_LARGEST_REWARD = float(np.finfo(np.float32).max)
# An episode's padding, and the transition after it, fit in one block of a log.
MAX_STACK_SIZE = 512


def check_format(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
  """Returns the shape and dtype of a log's observations.

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
  return sizes, kind


def check_sizes(
  shard_capacity: int, stack_size: int, update_horizon: int
) -> None:
  """Raises a ValueError if sizes of a log are out of range, or do not fit."""
  if not (
    1 <= stack_size <= MAX_STACK_SIZE
    and update_horizon >= 1
    and stack_size + update_horizon < shard_capacity <= shard_reader.MAX_ROWS
  ):
    raise ValueError(
      f'shard_capacity={shard_capacity}, stack_size={stack_size} and '
      f'update_horizon={update_horizon} do not fit: stack and horizon are at '
      f'least 1, a stack at most {MAX_STACK_SIZE}; a shard has more rows than their '
      f'sum, at most {shard_reader.MAX_ROWS:,}.'
    )


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
  if reserved := sorted(checked.keys() & set(manifests.OF_THE_LOG)):
    raise ValueError(
      f'metadata has {", ".join(reserved)}, which the log writes itself: choose '
      'other names.'
    )
  return checked


def check_observation(
  value: Any, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
  """Returns an observation as an array of the log's dtype.

  Args:
    value: Observation to log.
    shape: Shape of the log's observations.
    dtype: Dtype of the log's observations.

  Raises:
    ValueError: If the shape differs, or if the dtype cannot hold the observation:
      floats for an integer dtype, integers out of its range, or infinity and NaN.
  """
  try:
    array = np.asarray(value)
  except ValueError:  # e.g. lists of unequal lengths
    raise ValueError(
      f'The observation {_shorten(value)} is not an array.'
    ) from None
  if array.shape != shape:
    raise ValueError(
      f'The observation has shape {array.shape}, those of the log have {shape}.'
    )
  if array.dtype != dtype:
    array = _convert(array, dtype)
  if dtype.kind == 'f' and not np.isfinite(array).all():
    wrong = array[~np.isfinite(array)].flat[0]
    raise ValueError(
      f'The observation holds {wrong}, not only finite numbers of {dtype}.'
    )
  return array


def _convert(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
  """Returns an array in the log's dtype; only floats may lose precision."""
  wrong = f'is of {array.dtype}'
  if array.dtype.kind in ('biuf' if dtype.kind == 'f' else 'biu'):
    with np.errstate(
      over='ignore'
    ):  # Infinity is refused with its own message.
      converted = array.astype(dtype)
    changed = array[converted != array]
    if dtype.kind == 'f' or not changed.size:
      return converted
    wrong = f'holds {changed.flat[0]}'
  raise ValueError(
    f'The observation {wrong}, which {dtype}, the dtype of the log, cannot hold: '
    'convert the observation, or choose another observation_dtype.'
  )


def check_action(value: Any) -> int:
  """Returns an action as an integer.

  Raises:
    ValueError: If it is not an integer, or negative, or beyond int32.
  """
  try:
    action = operator.index(value)
  except TypeError:
    raise ValueError(
      f'The action {_shorten(value)} is not an integer.'
    ) from None
  if not 0 <= action <= _LARGEST_ACTION:
    raise ValueError(
      f'The action {action} is not between 0 and {_LARGEST_ACTION}.'
    )
  return action


def check_reward(value: Any) -> float:
  """Returns a reward as a float.

  Raises:
    ValueError: If it is not a number, or not finite in float32.
  """
  try:
    # Neither text nor a sequence of one number is a reward.
    is_number = np.ndim(value) == 0 and not isinstance(value, (str, bytes))
    reward = float(value) if is_number else math.nan
  except (TypeError, ValueError, OverflowError):
    reward = math.nan
  # False for NaN as well.
  if not abs(reward) <= _LARGEST_REWARD:
    raise ValueError(
      f'The reward {_shorten(value)} is not a finite number in float32.'
    )
  return reward


def _shorten(value: Any) -> str:
  """Returns a value as one short line."""
  text = ' '.join(repr(value).split())
  return text if len(text) <= 60 else text[:57] + '...'
