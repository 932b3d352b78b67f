import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import atari_helpers

TORSO = ('Conv', 'Conv_1', 'Conv_2', 'fully_connected', 'fully_connected_1')


@pytest.mark.parametrize(
  ('network', 'scopes'),
  [
    (atari_helpers.MultiHeadQNetwork, ['']),
    (atari_helpers.QuantileNetwork, ['']),
    (atari_helpers.MultiNetworkQNetwork, ['subnet_0/', 'subnet_1/']),
  ],
)
def test_variables_have_dopamines_names_and_the_callers_device(network, scopes):
  with tf.device('/cpu:5'):
    network(6, 2, name='Online')(tf.zeros((1, 84, 84, 4), tf.uint8))
  variables = tf.compat.v1.trainable_variables()
  assert [v.op.name for v in variables] == [
    f'Online/{scope}{layer}/{part}'
    for scope in scopes
    for layer in TORSO
    for part in ('kernel', 'bias')
  ]
  assert {v.device[-5:] for v in variables} == {'CPU:5'}


def test_a_size_that_the_agent_sets_cannot_be_bound():
  for binding in (
    'MultiHeadQNetwork.num_heads = 3',
    # Dopamine has a JAX network of this name.
    'atari_helpers.QuantileNetwork.num_atoms = 3',
    'MultiNetworkQNetwork.num_networks = 3',
  ):
    with pytest.raises(ValueError, match='num_'):
      gin.parse_config(binding)


def test_columns_of_the_matrix_are_normalised_uniform_draws(evaluate):
  # Three U(0, 1) draws over their sum: the largest share exceeds 1/2 where one
  # draw exceeds the sum of the two others, which has probability 3 / 6. (For a
  # uniform point of the simplex it would be 3 / 4.)
  matrix = evaluate(atari_helpers.random_stochastic_matrix(3, 20000, (1, 0)))
  np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-5)
  assert (matrix.max(axis=0) > 0.5).mean() == pytest.approx(0.5, abs=0.015)
