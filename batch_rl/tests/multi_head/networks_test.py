"""Networks of all heads, made from a plain one; `minatar/agents_test` builds them."""

import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains.atari_lib import DQNNetworkType

from batch_rl.multi_head import atoms, ensembles, quantiles


def plain(num_actions, scale=1, shift=0, name=None):
  """A network of Keras' functional API; its outputs count from 0, 1, ...

  The first number is that at the end of the name.
  """
  assert (scale, shift) == (1, 0)  # no number of heads, say
  first = int(name[-1]) if name[-1].isdigit() else 0
  biases = tf.constant_initializer(np.arange(first, first + num_actions))
  layer = tf.keras.layers.Dense(num_actions, bias_initializer=biases)
  state = tf.keras.Input((3,))
  return tf.keras.Model(state, DQNNetworkType(layer(state)), name=name)


COUNTED = [[0, 1, 2], [3, 4, 5]]  # for two actions


@pytest.mark.parametrize(
  ('head', 'field', 'expected', 'others'),
  [
    (ensembles.Ensemble(3), 'q_heads', COUNTED, []),
    (quantiles.Quantiles(3), 'quantile_values', COUNTED, []),
    (atoms.Categorical(3, -1.0, 5.0), 'logits', COUNTED, [[-1, 2, 5]]),
    (ensembles.SeparateNetworks(3), 'q_heads', [[0, 1, 2], [1, 2, 3]], []),
  ],
)
def test_a_plain_network_gets_outputs(evaluate, head, field, expected, others):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    outputs = head.create_network(plain, 2, 'Online')(tf.zeros((2, 3)))
    session.run(tf.compat.v1.global_variables_initializer())
    found = session.run(outputs)
  np.testing.assert_array_equal(getattr(found, field), [expected, expected])
  shares = np.ones((2, 3))
  if field == 'logits':
    shares = np.exp(expected)
    normalised = shares / shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities[1], normalised, rtol=1e-5)
    expected = others
  means = np.average(np.broadcast_to(expected, (2, 3)), axis=1, weights=shares)
  np.testing.assert_allclose(found.q_values, [means, means], rtol=1e-5)

  def network(*args, name):
    return args, name

  def passes_on(num_actions, *args, **kwargs):
    return network(num_actions, *args, **kwargs)

  for own in (network, passes_on):
    (_, count, *support), name = head.create_network(own, 2, 'Online')
    assert (count, name) == (3, 'Online')
  np.testing.assert_allclose(list(map(evaluate, support)), others)
