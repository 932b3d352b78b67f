import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import gym_helpers, quantile_agent
from batch_rl.multi_head.quantiles import quantile_huber_loss
from batch_rl.tests import equations

GAMMA = 0.9


@pytest.fixture(scope='module')
def make_quantile(make_agent):
  def make(**kwargs):
    return make_agent(
      quantile_agent.QuantileAgent,
      network=gym_helpers.CartpoleQuantileNetwork,
      **{'num_atoms': 7, 'gamma': GAMMA, **kwargs},
    )

  return make


@pytest.mark.parametrize('kappa', [0, 0.5, 1.0, 2])
@pytest.mark.parametrize('shape', [(1, 1, 1), (3, 5, 5), (2, 4, 9), (2, 9, 4)])
def test_loss_is_that_of_the_paper(evaluate, shape, kappa):
  batch_size, num_atoms, num_samples = shape
  rng = np.random.default_rng(0)
  quantiles = rng.normal(0, 2, (batch_size, num_atoms)).astype(np.float32)
  targets = rng.normal(0, 2, (batch_size, num_samples)).astype(np.float32)
  loss = quantile_huber_loss(
    tf.constant(quantiles), tf.constant(targets), kappa
  )
  expected = [
    equations.quantile_regression(theta, of_theta, kappa).value
    for theta, of_theta in zip(
      quantiles.astype(np.float64), targets.astype(np.float64), strict=True
    )
  ]
  np.testing.assert_allclose(evaluate(loss), expected, rtol=1e-5)


def test_loss_by_hand(evaluate):
  # tau = 1/4 and 3/4, u = 2 and -1, so the weights are 1/4 and |3/4 - 1|.
  loss = quantile_huber_loss(
    tf.constant([[0.0, 3.0]]), tf.constant([[2.0]]), kappa=1.0
  )
  np.testing.assert_allclose(evaluate(loss), [0.25 * 1.5 + 0.25 * 0.5])


def test_plain_loss_is_least_at_the_quantiles(evaluate):
  # d/d theta_i of quantile regression is P(target < theta_i) - tau_i.
  targets = tf.range(100, dtype=tf.float32)[None]
  quantiles = tf.constant([[9.5, 30.5, 79.5]])
  loss = quantile_huber_loss(quantiles, targets, kappa=0.0)
  [gradient] = evaluate(tf.gradients(loss, quantiles))
  expected = np.array([[0.10, 0.31, 0.80]]) - [[1 / 6, 1 / 2, 5 / 6]]
  np.testing.assert_allclose(gradient, expected, rtol=1e-4)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [({'num_atoms': 0}, 'num_atoms=0'), ({'kappa': -1.0}, r'kappa=-1\.0')],
)
def test_bad_arguments(make_quantile, arguments, message):
  with pytest.raises(ValueError, match=message):
    make_quantile(**arguments)


def test_gin_bindings_take_effect(make_agent):
  gin.parse_config("""
      QuantileAgent.network = @CartpoleQuantileNetwork
      QuantileAgent.num_atoms = 5
      QuantileAgent.kappa = 0.5
      QuantileAgent.gamma = 0.7
  """)
  agent = make_agent(quantile_agent.QuantileAgent)
  assert agent._net_outputs.quantile_values.shape.as_list() == [1, 3, 5]
  assert agent.kappa == 0.5
  assert agent.gamma == 0.7
