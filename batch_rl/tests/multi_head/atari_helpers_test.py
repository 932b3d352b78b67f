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
    with pytest.raises(ValueError, match='has denylisted kwarg'):
      gin.parse_config(binding)


@pytest.mark.parametrize('name', ['MultiHeadQNetwork', 'QuantileNetwork'])
def test_initial_weights_are_those_of_2020(name):
  network = getattr(atari_helpers, name)(6, 200)
  network(tf.zeros((1, 84, 84, 4), tf.uint8))
  with tf.compat.v1.Session() as sess:
    sess.run(tf.compat.v1.global_variables_initializer())
    kernels = sess.run(network.trainable_variables[::2])
  for kernel in kernels:
    largest = np.sqrt(np.sqrt(3) / np.prod(kernel.shape[:-1]))
    assert np.abs(kernel).max() == pytest.approx(largest, rel=0.02)
    assert kernel.std() == pytest.approx(largest / np.sqrt(3), rel=0.05)
  assert len(kernels) == 5 and len({k.flat[0] for k in kernels}) == 5
