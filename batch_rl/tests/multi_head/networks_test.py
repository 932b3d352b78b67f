"""Networks of all agents, made from a plain one; `minatar/agents_test` builds them."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import networks

Outputs = collections.namedtuple('Outputs', 'q_values')
SUPPORT = np.float32([0, 1, 2])


def plain(num_actions, scale=1, shift=0, name=None):
  """A network of Keras' functional API; its outputs count from 0."""
  assert (scale, shift) == (1, 0)  # no number of heads, say
  state = tf.keras.Input((3,))
  count = tf.constant_initializer(np.arange(num_actions))
  layer = tf.keras.layers.Dense(num_actions, bias_initializer=count)
  return tf.keras.Model(state, Outputs(layer(state)), name=name)


def outputs(network, *arguments):
  """Returns the outputs for two states of zeros."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    built = network(2, *arguments, name='Online')(tf.zeros((2, 3)))
    session.run(tf.compat.v1.global_variables_initializer())
    return session.run(built)


def of_any_arguments(*args, **kwargs):
  raise AssertionError


@pytest.mark.parametrize(
  ('head', 'arguments', 'field'),
  [
    (networks.MultiHead, (3,), 'q_heads'),
    (networks.Quantile, (3,), 'quantile_values'),
    (networks.Categorical, (3, SUPPORT), 'logits'),
  ],
)
def test_a_plain_network_gets_the_head_of_the_agent(head, arguments, field):
  network = networks.with_head(plain, head, *arguments)
  found = outputs(network, *arguments)
  expected = np.arange(6).reshape(2, 3)  # actions, outputs
  np.testing.assert_array_equal(getattr(found, field), [expected, expected])
  assert found.q_values.shape == (2, 2)
  other = networks.with_head(of_any_arguments, head, *arguments)
  assert other is of_any_arguments
  if field == 'q_heads':
    several = outputs(networks.several(plain, 3, ()), 3, ())
    np.testing.assert_array_equal(several.q_heads[0], [[0] * 3, [1] * 3])
  if field != 'logits':
    np.testing.assert_allclose(found.q_values[0], [1, 4])
