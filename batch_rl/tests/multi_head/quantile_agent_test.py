"""The quantile Huber loss; `parts_test` and `equations_test` test the agent."""

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head.quantiles import quantile_huber_loss
from batch_rl.tests import equations


@pytest.mark.parametrize('kappa', [0, 0.5])
def test_loss_is_that_of_the_paper(evaluate, kappa):
  rng = np.random.default_rng(0)
  quantiles = rng.normal(0, 2, (2, 4)).astype(np.float32)
  targets = rng.normal(0, 2, (2, 9)).astype(np.float32)
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
