"""TF32 is on or off in the whole process, as a runner says."""

import pytest
import tensorflow as tf

from batch_rl.runs import float_precision


@pytest.mark.parametrize('tensor_float_32', [True, False])
def test_the_precision_is_set(tensor_float_32):
  float_precision.use(tensor_float_32)
  enabled = tf.config.experimental.tensor_float_32_execution_enabled()
  assert enabled == tensor_float_32


@pytest.mark.parametrize('value', [None, 'False', 0, 1.0])
def test_a_value_that_is_not_a_boolean_is_refused(value):
  with pytest.raises(ValueError, match=f'={value!r} is not allowed: give True'):
    float_precision.use(value)
