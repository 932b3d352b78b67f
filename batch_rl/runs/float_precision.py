"""Precision of float32 arithmetic on a GPU."""

import tensorflow as tf


def use(tensor_float_32: bool) -> None:
  """Sets the precision of this process.

  With TF32, GPUs since Ampere round the inputs of matrix products and convolutions to
  a mantissa of 10 bits, where float32 has 23, and add in float32. Other devices always
  compute in float32.

  Args:
    tensor_float_32: Whether to use TF32.

  Raises:
    ValueError: If it is not a boolean.
  """
  if not isinstance(tensor_float_32, bool):
    raise ValueError(
      f'tensor_float_32={tensor_float_32!r} is not allowed: give True or False.'
    )
  tf.config.experimental.enable_tensor_float_32_execution(tensor_float_32)
