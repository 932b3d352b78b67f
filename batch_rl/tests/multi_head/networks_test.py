"""Networks of all agents, made from a plain one; `minatar/agents_test` builds them."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import atoms, ensembles, quantiles

Outputs = collections.namedtuple('Outputs', 'q_values')


def plain(num_actions, scale=1, shift=0, name=None):
  """A network of Keras' functional API; its outputs count from 0."""
  assert (scale, shift) == (1, 0)  # no number of heads, say
  state = tf.keras.Input((3,))
  count = tf.constant_initializer(np.arange(num_actions))
  layer = tf.keras.layers.Dense(num_actions, bias_initializer=count)
  return tf.keras.Model(state, Outputs(layer(state)), name=name)


def outputs(head, network):
  """Returns the outputs for two states of zeros."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    built = head.create_network(network, 2, 'Online')(tf.zeros((2, 3)))
    session.run(tf.compat.v1.global_variables_initializer())
    return session.run(built)


@pytest.mark.parametrize(
  ('head', 'field', 'arguments'),
  [
    (ensembles.Ensemble(3), 'q_heads', 1),
    (quantiles.Quantiles(3), 'quantile_values', 1),
    (atoms.Categorical(3, 0.0, 2.0), 'logits', 2),
    (ensembles.SeparateNetworks(3), 'q_heads', 1),
  ],
)
def test_a_plain_network_gets_the_outputs_of_the_head(head, field, arguments):
  found = outputs(head, plain)
  expected = np.arange(6).reshape(2, 3)  # actions, outputs
  if isinstance(head, ensembles.SeparateNetworks):
    expected = [[0] * 3, [1] * 3]  # each from 0
  np.testing.assert_array_equal(getattr(found, field), [expected, expected])
  if field == 'logits':
    assert found.q_values.shape == (2, 2)
  else:
    np.testing.assert_allclose(found.q_values[0], np.mean(expected, axis=1))

  def of_any_arguments(*args, name):
    return args, name

  _, *given = head.create_network(of_any_arguments, 2, 'Online')[0]
  assert len(given) == arguments and given[0] == 3
