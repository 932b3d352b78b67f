import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains import gym_lib

from batch_rl.multi_head import atari_helpers, gym_helpers

TORSO = ('Conv', 'Conv_1', 'Conv_2', 'fully_connected', 'fully_connected_1')


def variable_names():
  return [v.op.name for v in tf.compat.v1.trainable_variables()]


@pytest.mark.parametrize(
  'network',
  [atari_helpers.MultiHeadQNetwork, atari_helpers.QuantileNetwork],
)
def test_one_network_has_dopamines_variable_names(network):
  network(6, 7, name='Online')(tf.zeros((1, 84, 84, 4), tf.uint8))
  assert variable_names() == [
    f'Online/{layer}/{part}' for layer in TORSO for part in ('kernel', 'bias')
  ]


def test_each_subnet_has_dopamines_variable_names_in_its_scope():
  network = atari_helpers.MultiNetworkQNetwork(6, 2, name='Online')
  network(tf.zeros((1, 84, 84, 4), tf.uint8))
  assert variable_names() == [
    f'Online/subnet_{i}/{layer}/{part}'
    for i in range(2)
    for layer in TORSO
    for part in ('kernel', 'bias')
  ]


@pytest.mark.parametrize(
  'network, size',
  [
    (gym_helpers.CartpoleMultiHeadQNetwork, 4),
    (gym_helpers.CartpoleQuantileNetwork, 4),
    (gym_helpers.CartpoleMultiNetworkQNetwork, 4),
    (gym_helpers.AcrobotMultiHeadQNetwork, 6),
    (gym_helpers.AcrobotQuantileNetwork, 6),
    (gym_helpers.AcrobotMultiNetworkQNetwork, 6),
  ],
)
def test_q_values_are_the_mean_of_the_estimates(network, size):
  states = np.random.default_rng(0).uniform(-1, 1, (5, size, 1, 1))
  outputs = network(3, 7, name='Online')(tf.constant(states))
  with tf.compat.v1.Session() as sess:
    sess.run(tf.compat.v1.global_variables_initializer())
    estimates, q_values = sess.run(outputs)
  assert estimates.shape == (5, 3, 7)
  assert estimates.std(axis=2).min() > 0
  np.testing.assert_allclose(q_values, estimates.mean(axis=2), rtol=1e-5)


def test_categorical_outputs_follow_from_the_logits():
  class Network(atari_helpers.Categorical, gym_lib.CartpoleDQNNetwork):
    """CartPole's network, for C51."""

  support = np.linspace(-2, 3, 7).astype(np.float32)
  states = np.random.default_rng(0).uniform(-1, 1, (5, 4, 1, 1))
  network = Network(3, 7, tf.constant(support), name='Online')
  outputs = network(tf.constant(states))
  with tf.compat.v1.Session() as sess:
    sess.run(tf.compat.v1.global_variables_initializer())
    found = sess.run(outputs)
  assert found.logits.shape == found.probabilities.shape == (5, 3, 7)
  shares = np.exp(found.logits.astype(float))
  shares /= shares.sum(axis=2, keepdims=True)
  assert shares.std(axis=2).min() > 0
  np.testing.assert_allclose(found.probabilities, shares, rtol=1e-5)
  np.testing.assert_allclose(found.q_values, shares @ support, atol=1e-5)


def test_outputs_of_the_base_are_grouped_by_action():
  network = gym_helpers.CartpoleMultiHeadQNetwork(3, 2, name='Online')
  q_heads = network(tf.zeros((1, 4, 1, 1))).q_heads
  kernel, bias = tf.compat.v1.trainable_variables()[-2:]
  with tf.compat.v1.Session() as sess:
    sess.run([kernel.assign(tf.zeros_like(kernel)), bias.assign(range(6))])
    sess.run(
      tf.compat.v1.variables_initializer(
        tf.compat.v1.trainable_variables()[:-2]
      )
    )
    np.testing.assert_array_equal(sess.run(q_heads), [[[0, 1], [2, 3], [4, 5]]])


def test_subnets_are_stacked_in_order():
  states = tf.ones((1, 4, 1, 1))
  network = gym_helpers.CartpoleMultiNetworkQNetwork(3, 4, name='Online')
  stacked = network(states).q_heads
  one_by_one = [subnet(states).q_values for subnet in network.layers]
  with tf.compat.v1.Session() as sess:
    sess.run(tf.compat.v1.global_variables_initializer())
    stacked, one_by_one = sess.run([stacked, one_by_one])
  np.testing.assert_array_equal(stacked, np.stack(one_by_one, axis=2))


def test_subnets_go_to_the_devices_in_turn():
  with tf.device('/cpu:5'):
    network = atari_helpers.MultiNetworkQNetwork(
      3, 3, ['/cpu:0', '/cpu:1'], gym_lib.CartpoleDQNNetwork, name='Online'
    )
    network(tf.zeros((1, 4, 1, 1)))
  for variable in tf.compat.v1.global_variables():
    index = int(variable.name[len('Online/subnet_')])
    assert variable.device.endswith(f'CPU:{index % 2}')


def test_without_devices_the_enclosing_scope_applies():
  with tf.device('/cpu:5'):
    network = gym_helpers.CartpoleMultiNetworkQNetwork(3, 2, name='Online')
    network(tf.zeros((1, 4, 1, 1)))
  for variable in tf.compat.v1.global_variables():
    assert variable.device.endswith('CPU:5')


@pytest.mark.parametrize(
  'binding',
  [
    'MultiHeadQNetwork.num_heads = 3',
    # Dopamine has a JAX network of this name.
    'atari_helpers.QuantileNetwork.num_atoms = 3',
    'MultiNetworkQNetwork.num_networks = 3',
    'CartpoleMultiHeadQNetwork.num_heads = 3',
    'CartpoleQuantileNetwork.num_atoms = 3',
    'CartpoleMultiNetworkQNetwork.num_networks = 3',
    'AcrobotMultiHeadQNetwork.num_heads = 3',
    'AcrobotQuantileNetwork.num_atoms = 3',
    'AcrobotMultiNetworkQNetwork.num_networks = 3',
  ],
)
def test_a_size_that_the_agent_sets_cannot_be_bound(binding):
  with pytest.raises(ValueError, match='num_'):
    gin.parse_config(binding)


@pytest.mark.parametrize('shape', [(1, 1), (1, 4), (5, 1), (200, 1), (7, 3)])
def test_columns_of_the_matrix_sum_to_one(evaluate, shape):
  matrix = evaluate(atari_helpers.random_stochastic_matrix(*shape, (1, 2)))
  assert matrix.shape == shape
  assert (matrix > 0).all()
  np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-5)


def test_columns_of_the_matrix_are_normalised_uniform_draws(evaluate):
  # Three U(0, 1) draws over their sum: the largest share exceeds 1/2 where one
  # draw exceeds the sum of the two others, which has probability 3 / 6. (For a
  # uniform point of the simplex it would be 3 / 4.)
  matrix = evaluate(atari_helpers.random_stochastic_matrix(3, 20000, (1, 0)))
  assert (matrix.max(axis=0) > 0.5).mean() == pytest.approx(0.5, abs=0.015)


def test_the_seed_decides_the_matrix(evaluate):
  draws = [
    atari_helpers.random_stochastic_matrix(4, 2, seed)
    for seed in ((5, 0), (5, 0), (6, 0), (5, 1))
  ]
  first, again, *others = evaluate(draws)
  np.testing.assert_array_equal(first, again)
  for other in others:
    assert not np.allclose(first, other)


@pytest.mark.parametrize('shape', [(1, 1, 1), (4, 3, 2), (2, 5, 7)])
def test_select_actions(evaluate, shape):
  rng = np.random.default_rng(0)
  values = rng.normal(size=shape).astype(np.float32)
  actions = rng.integers(shape[1], size=shape[0], dtype=np.int32)
  selected = evaluate(
    atari_helpers.select_actions(tf.constant(values), tf.constant(actions))
  )
  expected = [values[i, action] for i, action in enumerate(actions)]
  np.testing.assert_array_equal(selected, expected)


def test_bellman_targets(evaluate):
  targets = atari_helpers.bellman_targets(
    tf.constant([[1.0, 2.0], [3.0, 4.0]]),
    rewards=tf.constant([0.5, -1.0]),
    terminals=tf.constant([0, 1], tf.uint8),
    discount=0.5,
  )
  np.testing.assert_allclose(evaluate(targets), [[1.0, 1.5], [-1.0, -1.0]])


def test_no_gradient_flows_through_bellman_targets():
  values = tf.ones((2, 3))
  targets = atari_helpers.bellman_targets(values, tf.ones(2), tf.zeros(2), 0.9)
  assert tf.gradients(targets, values) == [None]
